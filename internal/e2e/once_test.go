//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// calls has every front end call run_job so often, all at once, and returns
// which job each answer names.
func calls(t *testing.T, fronts []*rig.Front, each int, arguments map[string]any) []string {
	t.Helper()
	type call struct {
		front  *rig.Front
		answer <-chan rig.Message
	}
	var under []call
	for range each {
		for _, f := range fronts {
			under = append(under, call{f, f.Start("tools/call", map[string]any{"name": "run_job", "arguments": arguments})})
		}
	}
	var ids []string
	timeout := time.After(time.Minute)
	for i, c := range under {
		select {
		case m, ok := <-c.answer:
			if !ok {
				t.Fatalf("mcp-stdio ended before it answered call %d", i)
			}
			r := c.front.Result(m)
			if r.IsError {
				t.Fatalf("call %d failed: %s", i, r.Text())
			}
			ids = append(ids, r.TaskID+r.Meta.Job.ID)
		case <-timeout:
			t.Fatalf("call %d of %d was not answered within a minute", i, len(under))
		}
	}
	return ids
}

// counted is a command that writes its name into the file "runs".
func counted(name string, seconds float64) string {
	return fmt.Sprintf("echo %s >> runs; sleep %g; echo the answer of %s", name, seconds, name)
}

// ran is how often a counted command ran.
func ran(r *rig.Rig, name string) int {
	n := 0
	for _, line := range r.Lines("runs") {
		if line == name {
			n++
		}
	}
	return n
}

// different are the different values of a list.
func different(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestIdenticalCalls_AtOnceAreOneJob(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	var fronts, others []*rig.Front
	for i := range 10 {
		fronts = append(fronts, r.Front("one"))
		if i%2 == 0 {
			others = append(others, r.Front("two"))
		}
	}
	both := append(slices.Clone(fronts[:5]), others...)
	for name, c := range map[string]struct {
		fronts []*rig.Front
		key    string
		want   int
	}{
		"one session":              {fronts, "", 1},
		"one session, with a key":  {fronts, "k1", 1},
		"two sessions":             {both, "", 2},
		"two sessions, with a key": {both, "k2", 1},
		"a client with no session": {[]*rig.Front{r.Front("")}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			word := strings.ReplaceAll(name, " ", "-")
			arguments := map[string]any{"command": counted(word, 1.2), "name": name}
			if c.key != "" {
				arguments["idempotency_key"] = c.key
			}
			ids := calls(t, c.fronts, 100/len(c.fronts), arguments)
			if len(ids) != 100 {
				t.Fatalf("there are %d answers", len(ids))
			}
			jobs := different(ids)
			if len(jobs) != c.want {
				t.Errorf("the answers name %d jobs, want %d: %v", len(jobs), c.want, jobs)
			}
			for _, id := range jobs {
				r.UntilState(30*time.Second, id, "succeeded")
			}
			if n := ran(r, word); n != c.want {
				t.Errorf("the command ran %d times, want %d", n, c.want)
			}
		})
	}
}

// A fall is what dies between the receipt of a call and its reply.
type fall struct {
	// step is where the daemon dies, "" = it does not.
	step string
	// front: the front end dies too, once the daemon has.
	front bool
	// frozen: the front end dies while the daemon stands still, so that its
	// request lies in the socket, unread.
	frozen bool
	// reached is a step that the daemon has reached when the front end dies.
	reached string
	// waits: the client takes no task, so that the call waits for the end.
	waits bool
}

// Whatever dies between a call and its reply, the client that calls again has
// one job, which ran once.
func TestACallIsRepeated_AfterWhatItWasSentToDied(t *testing.T) {
	t.Parallel()
	r := rig.NewFaulty(t)
	for name, f := range map[string]fall{ // by-key: with an idempotency key
		"daemon-before-the-commit":          {step: "submit prepared"},
		"daemon-after-the-commit":           {step: "submit committed"},
		"daemon-before-the-launch":          {step: "launch recorded"},
		"daemon-after-the-launch":           {step: "launch done"},
		"daemon-before-the-end":             {step: "exit seen", waits: true},
		"daemon-after-the-end":              {step: "exit recorded", waits: true},
		"both-before-the-commit":            {step: "submit prepared", front: true},
		"both-after-the-commit":             {step: "submit committed", front: true},
		"both-after-the-end":                {step: "exit recorded", front: true, waits: true},
		"front-end-before-the-receipt":      {frozen: true},
		"front-end-before-the-commit":       {reached: "submit prepared"},
		"front-end-after-the-commit":        {reached: "submit committed"},
		"front-end-after-the-end-unwritten": {reached: "exit recorded", waits: true},
		"by-key-daemon-after-the-commit":    {step: "submit committed"},
		"by-key-both-after-the-commit":      {step: "submit committed", front: true},
		"by-key-front-end-after-the-commit": {reached: "submit committed"},
		"by-key-both-after-the-end":         {step: "exit recorded", front: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) { repeat(t, r.For(t), name, f) })
	}
}

func repeat(t *testing.T, r *rig.Rig, word string, f fall) {
	r.Jobd("start")
	r.TraceSteps()
	front := r.Front("session")
	front.Tasks = !f.waits
	front.Call("tools/list", nil) // it has come up
	arguments := map[string]any{"command": counted(word, 0.4), "name": word}
	if strings.HasPrefix(word, "by-key") {
		arguments["idempotency_key"] = word
	}
	call := map[string]any{"name": "run_job", "arguments": arguments}
	daemon := r.Daemon()
	if f.step != "" {
		r.DieAt(1, f.step)
	}
	if f.frozen {
		signal(t, daemon, syscall.SIGSTOP)
	}
	answer := front.Start("tools/call", call)
	dead := true
	switch {
	case f.frozen:
		time.Sleep(100 * time.Millisecond) // most likely the request is in the socket
		front.Kill()
		signal(t, daemon, syscall.SIGCONT)
	case f.reached != "":
		rig.Until(t, 30*time.Second, "the daemon has come to "+f.reached, func() bool { return slices.Contains(r.Steps(), f.reached) })
		front.Kill()
	default:
		rig.Until(t, 30*time.Second, "the daemon has died", func() bool { return len(r.Faults()) == 0 && !rig.Alive(daemon) })
		if dead = f.front; dead {
			front.Kill()
		}
	}
	var result rig.ToolResult
	if dead {
		// The model calls again, with an id of its own, in the resumed session.
		front = r.Front("session")
		front.Tasks = !f.waits
		answer = front.Start("tools/call", call)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			t.Fatal("mcp-stdio ended")
		}
		result = front.Result(m)
	case <-time.After(time.Minute):
		t.Fatal("the call was not answered within a minute")
	}
	id := result.TaskID + result.Meta.Job.ID
	if result.TaskID != "" {
		result = *front.UntilDone(30*time.Second, id).Result
	}
	if want := "the answer of " + word; !strings.Contains(result.Text(), want) {
		t.Errorf("the result lacks %q: %s", want, result.Text())
	}
	var named []string
	for _, job := range r.Jobs() {
		if job.Name == word {
			named = append(named, job.ID)
		}
	}
	if len(named) != 1 || named[0] != id {
		t.Errorf("there are the jobs %v, and the answer named %s", named, id)
	}
	if n := ran(r, word); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

// A shell never joins, so that only the request's own key is left to tell a
// repeated call from a new one.
func TestARequestIsRepeated_ByTheCommandLine(t *testing.T) {
	t.Parallel()
	r := rig.NewFaulty(t)
	for i, step := range []string{"submit prepared", "submit committed", "launch recorded", "launch done"} {
		word := fmt.Sprint("job", i)
		r.DieAt(1, step)
		out := r.Try("run", "--wait", "--name", word, "--", "sh", "-c", counted(word, 0.1))
		if out.Code != 0 || !strings.Contains(out.Stdout, "the answer of "+word) {
			t.Errorf("%s: jobd run ended with %d: %s%s", step, out.Code, out.Stdout, out.Stderr)
		}
		if left := r.Faults(); len(left) != 0 {
			t.Errorf("%s: the daemon did not die: %v", step, left)
		}
		if jobs, n := r.Jobs(), ran(r, word); len(jobs) != i+1 || n != 1 {
			t.Errorf("%s: there are %d jobs, and the command ran %d times", step, len(jobs), n)
		}
	}
}

// pending are the jobs that "jobd status" shows of itself.
func pending(t *testing.T, r *rig.Rig) []string {
	t.Helper()
	var jobs []rig.Job
	decode(t, []byte(r.Jobd("status", "--json")), &jobs)
	ids := []string{}
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

// delivered waits until a job counts as delivered, which a client's word takes
// 2 s for at most.
func delivered(t *testing.T, r *rig.Rig, id string) rig.Job {
	t.Helper()
	var job rig.Job
	rig.Until(t, 20*time.Second, "job "+id+" counts as delivered", func() bool {
		job = r.Job(id)
		return job.DeliveredAt != nil
	})
	if slices.Contains(pending(t, r), id) {
		t.Errorf("jobd status still shows job %s, whose result was delivered", id)
	}
	return job
}

func TestDelivered_IsWhatTheOwningSessionWasGiven(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for name, give := range map[string]func(t *testing.T, f *rig.Front, id string){
		"tasks-get": func(_ *testing.T, f *rig.Front, id string) { f.Task(id) },
		"get-job":   func(_ *testing.T, f *rig.Front, id string) { f.Tool("get_job", map[string]any{"job_id": id[:12]}) },
		"notifications": func(t *testing.T, f *rig.Front, id string) {
			f.Start("subscriptions/listen", map[string]any{"notifications": map[string]any{"taskIds": []string{id}}})
			rig.Until(t, 10*time.Second, "the notification has come", func() bool {
				return slices.ContainsFunc(f.Lines(), func(line string) bool {
					return strings.Contains(line, `"notifications/tasks"`) && strings.Contains(line, id) && strings.Contains(line, `"completed"`)
				})
			})
		},
		"the-call-repeated": func(t *testing.T, f *rig.Front, id string) {
			f.Tasks = false
			defer func() { f.Tasks = true }()
			again := f.Tool("run_job", map[string]any{"command": counted("the-call-repeated", 1.2)})
			mine := strings.HasPrefix(r.Job(id).Session, "owner") && r.Job(again.Meta.Job.ID).Session == r.Job(id).Session
			if same := again.Meta.Job.ID == id; same != mine {
				t.Errorf("the repeated call gave job %s for %s", again.Meta.Job.ID, id)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := r.For(t)
			owner := r.Front("owner-" + name)
			id := owner.Run(map[string]any{"command": counted(name, 1.2)})
			r.UntilState(20*time.Second, id, "succeeded")

			stranger := r.Front("stranger")
			give(t, stranger, id)
			r.Jobd("result", id)                // a shell's reading is not the session's
			time.Sleep(2500 * time.Millisecond) // longer than it would take
			if r.Job(id).DeliveredAt != nil {
				t.Fatal("it was delivered to another session, or a shell")
			}
			if !slices.Contains(pending(t, r), id) {
				t.Error("jobd status does not show the job, whose result nobody was given")
			}
			give(t, owner, id)
			delivered(t, r, id)
		})
	}
}

// A client that is gone within two seconds may not have read what was written
// to it; one that says anything has.
func TestDelivered_NeedsAClientThatIsStillThere(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"command": counted("job", 1.2)})
	r.UntilState(20*time.Second, id, "succeeded")
	front.Task(id)
	front.Close()
	time.Sleep(2500 * time.Millisecond)
	if r.Job(id).DeliveredAt != nil {
		t.Fatal("it was delivered to a client that was gone")
	}
	front = r.Front("session")
	began := time.Now()
	front.Task(id)
	front.Call("tools/list", nil) // a further request is as good as 2 s
	front.Close()
	delivered(t, r, id)
	t.Logf("reported within %v", time.Since(began).Round(time.Millisecond))
}

// The daemon that would note the delivery dies as the result is written.
func TestDelivered_OutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"command": counted("job", 1.2)})
	r.UntilState(20*time.Second, id, "succeeded")
	front.Task(id)
	r.KillDaemon()
	delivered(t, r, id)
	r.Jobd("restart")
	job := delivered(t, r, id)
	front.Task(id)
	front.Call("tools/list", nil)
	time.Sleep(500 * time.Millisecond)
	if again := r.Job(id); !again.DeliveredAt.Equal(*job.DeliveredAt) {
		t.Errorf("it was delivered at %v, and again at %v", job.DeliveredAt, again.DeliveredAt)
	}
}

func TestDelivered_EachOfManyThatEndAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	var answers []<-chan rig.Message
	for i := range 8 {
		// They end together, whenever each was started.
		command := fmt.Sprintf("while [ ! -e go ]; do sleep 0.02; done; echo the answer of %d", i)
		answers = append(answers, front.Start("tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{"command": command}}))
	}
	ids := map[string]string{}
	for i, answer := range answers {
		ids[front.Result(<-answer).TaskID] = fmt.Sprintf("the answer of %d", i)
	}
	if len(ids) != 8 {
		t.Fatalf("there are the tasks %v", ids)
	}
	r.Write("go", "", 0o600)
	first, last := time.Time{}, time.Time{}
	for id, text := range ids {
		task := front.UntilDone(20*time.Second, id)
		if task.Result == nil || !strings.Contains(task.Result.Text(), text) {
			t.Errorf("task %s gave %+v", id, task.Result)
		}
		ended := *r.Job(id).EndedAt
		if first.IsZero() || ended.Before(first) {
			first = ended
		}
		if ended.After(last) {
			last = ended
		}
	}
	t.Logf("they ended within %v", last.Sub(first).Round(time.Millisecond))
	for id := range ids {
		delivered(t, r, id)
	}
	if left := pending(t, r); len(left) != 0 {
		t.Errorf("jobd status shows %v", left)
	}
}

func TestDelivered_AShellReadsTheJobsOfShells(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	for name, args := range map[string][]string{
		"result": {"result", "ID"}, "wait": {"wait", "ID"}, "logs -f": {"logs", "-f", "ID"}, "run --wait": nil,
	} {
		var id string
		if args == nil {
			var jobs []rig.Job
			r.Jobd("run", "--wait", "--name", "waited", "--", "true")
			decode(t, []byte(r.Jobd("status", "--json", "--text", "waited")), &jobs)
			id = jobs[0].ID
		} else {
			id = strings.TrimSpace(r.Jobd("run", "--", "sh", "-c", "echo of the shell"))
			r.UntilState(20*time.Second, id, "succeeded")
			front.Tool("get_job", map[string]any{"job_id": id})
			front.Call("tools/list", nil)
			for _, look := range [][]string{{"status", id}, {"logs", id}} {
				r.Jobd(look...) // these may be looks at a job that runs
			}
			if r.Job(id).DeliveredAt != nil {
				t.Errorf("%s: it was delivered before a shell read it", name)
			}
			args = slices.Clone(args)
			args[len(args)-1] = id[:12]
			r.Jobd(args...)
		}
		delivered(t, r, id)
	}
}

// What was removed is told from what never was, everywhere.
func TestExpired_JobsAreGoneAndSaySo(t *testing.T) {
	t.Parallel()
	r := rig.NewFaulty(t)
	front := r.Front("session")
	old := front.Run(map[string]any{"command": counted("old", 1.2)})
	shells := strings.TrimSpace(r.Jobd("run", "--wait", "--", "sh", "-c", "echo of the shell")) // prints no id
	if shells != "of the shell" {
		t.Fatalf("it printed %q", shells)
	}
	alive := front.Run(map[string]any{"command": "sleep 300", "idempotency_key": "k"})
	r.UntilState(20*time.Second, old, "succeeded")

	// By hand: what ended and was read.
	removed := strings.Fields(r.Jobd("prune", "--older-than", "0s"))
	if len(removed) != 1 || removed[0] == old {
		t.Errorf("jobd prune removed %v", removed)
	}
	bundle := func(id string) string { return r.State + "/bundles/" + id }
	isThere(t, bundle(removed[0]), false)
	isThere(t, bundle(old), true)
	// By itself: what ended longer ago than the retention, read or not.
	r.SetClock("sleep 721h")
	r.Jobd("restart")
	rig.Until(t, 20*time.Second, "the old job is removed", func() bool { return len(r.Jobs()) == 1 })
	isThere(t, bundle(old), false)
	if job := r.Job(alive); job.State != "running" {
		t.Errorf("the job that was started a month ago is %s", job.State)
	}

	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		for id, says := range map[string]string{old: "expired", strings.Repeat("0", 32): "no such task"} {
			m := front.Call(method, map[string]any{"taskId": id, "inputResponses": map[string]any{}})
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, says) {
				t.Errorf("%s of %s gives %s", method, id, m.Line)
			}
		}
	}
	for _, tool := range []string{"get_job", "read_job_output", "cancel_job"} {
		if res := front.Tool(tool, map[string]any{"job_id": old[:12]}); !res.IsError || !strings.Contains(res.Text(), "no longer kept") {
			t.Errorf("%s says %q", tool, res.Text())
		}
	}
	for _, command := range [][]string{{"status"}, {"logs"}, {"result"}, {"wait"}, {"cancel"}, {"answer"}} {
		out := r.Try(append(command, old[:12])...)
		if out.Code == 0 || !strings.Contains(out.Stderr, "job "+old+" is no longer kept") {
			t.Errorf("jobd %s ended with %d: %s%s", command[0], out.Code, out.Stdout, out.Stderr)
		}
	}
	// The same call is a new one; the key of what is alive still holds.
	if again := front.Run(map[string]any{"command": counted("old", 1.2)}); again == old {
		t.Error("a call got a job that has expired")
	}
	if again := front.Run(map[string]any{"command": "sleep 300", "idempotency_key": "k"}); again != alive {
		t.Errorf("the key gave job %s, not %s", again, alive)
	}
	r.Jobd("cancel", alive)
}

func isThere(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Lstat(path); (err == nil) != want {
		t.Errorf("%s is there: %t", path, err == nil)
	}
}

// A job whose id was lost is found again, by either face of jobd.
func TestLostJobs_AreFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	ids := map[string]string{
		"build":  front.Run(map[string]any{"command": "sleep 1.2; echo built", "name": "build", "idempotency_key": "release-1"}),
		"failed": front.Run(map[string]any{"command": "sleep 1.2; exit 3", "name": "failed"}),
		"alive":  front.Run(map[string]any{"command": "sleep 300 # migrate the database", "name": "alive"}),
	}
	other := r.Command(t.Context(), "jobd", "run", "--name", "elsewhere", "--", "true")
	other.Dir = r.Home
	out := rig.Run(t, other)
	ids["elsewhere"] = strings.TrimSpace(out.Stdout)
	r.UntilState(20*time.Second, ids["build"], "succeeded")
	r.UntilState(20*time.Second, ids["failed"], "failed")

	for _, c := range []struct {
		status []string
		list   map[string]any // of list_jobs; nil = it has no such choice
		want   string
	}{
		{[]string{"--all"}, map[string]any{"all_projects": true}, "alive build elsewhere failed"},
		{[]string{"--all", "--project", r.Project}, map[string]any{}, "alive build failed"},
		{[]string{"--all", "--project", r.Home}, nil, "elsewhere"},
		{[]string{"--state", "failed"}, map[string]any{"state": "failed"}, "failed"},
		{[]string{"--state", "failed", "--state", "running"}, nil, "alive failed"},
		{nil, map[string]any{"state": "live"}, "alive"},
		{[]string{"--key", "release-1"}, map[string]any{"key": "release-1"}, "build"},
		{[]string{"--text", "MIGRATE the"}, map[string]any{"text": "MIGRATE the"}, "alive"},
		{[]string{"--key", "release-2"}, map[string]any{"key": "release-2"}, ""},
		{[]string{"--text", "50%_"}, map[string]any{"text": "50%_"}, ""},
	} {
		if c.status != nil {
			var jobs []rig.Job
			decode(t, []byte(r.Jobd(append([]string{"status", "--json"}, c.status...)...)), &jobs)
			var names []string
			for _, job := range jobs {
				names = append(names, job.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("jobd status %s shows %q, want %q", c.status, got, c.want)
			}
		}
		if c.list == nil {
			continue
		}
		text := front.Tool("list_jobs", c.list).Text()
		var found []string
		for name, id := range ids {
			if strings.Contains(text, id[:12]) {
				found = append(found, name)
			}
		}
		slices.Sort(found)
		if got := strings.Join(found, " "); got != c.want {
			t.Errorf("list_jobs %v shows %q, want %q:\n%s", c.list, got, c.want, text)
		}
	}
	if text := front.Tool("list_jobs", map[string]any{"state": "failed"}).Text(); !strings.Contains(text, "[result not delivered]") {
		t.Errorf("list_jobs does not mark the result that nobody was given:\n%s", text)
	}
	r.Jobd("cancel", ids["alive"])
}

// A beginning of an id that fits one job names it; one that fits more names them.
func TestIDs_ByTheirBeginning(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	// Two of seventeen have the same first digit.
	byDigit := map[string][]string{}
	for i := range 17 {
		id := strings.TrimSpace(r.Jobd("run", "--name", fmt.Sprint("number ", i), "--", "sh", "-c", "echo of "+fmt.Sprint(i)))
		byDigit[id[:1]] = append(byDigit[id[:1]], id)
	}
	digit, same := "", []string(nil)
	for d, list := range byDigit {
		if len(list) > len(same) {
			digit, same = d, list
		}
	}
	for _, id := range same {
		r.UntilState(20*time.Second, id, "succeeded")
	}
	says := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, fmt.Sprintf("more than one job has an id that starts with %q", digit)) {
			t.Errorf("%s says %q", what, text)
		}
		for _, id := range same[:min(len(same), 2)] {
			if len(same) <= 5 && !strings.Contains(text, id[:8]) {
				t.Errorf("%s does not name %s: %q", what, id, text)
			}
		}
	}
	unique := same[0][:16]
	for _, command := range []string{"status", "logs", "result", "wait", "cancel", "answer"} {
		out := r.Try(command, digit)
		if out.Code == 0 {
			t.Errorf("jobd %s %s ended with 0", command, digit)
		}
		says("jobd "+command, out.Stderr)
		if command == "answer" {
			continue // there is nothing to answer
		}
		if out := r.Try(command, unique); out.Code != 0 {
			t.Errorf("jobd %s %s ended with %d: %s", command, unique, out.Code, out.Stderr)
		}
	}
	for _, tool := range []string{"get_job", "read_job_output", "cancel_job"} {
		says(tool, front.Tool(tool, map[string]any{"job_id": digit}).Text())
		if res := front.Tool(tool, map[string]any{"job_id": unique}); res.IsError {
			t.Errorf("%s %s says %q", tool, unique, res.Text())
		}
	}
	var read struct {
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
	}
	m := front.Call("resources/read", map[string]any{"uri": "jobd://jobs/" + unique})
	if m.Error != nil || json.Unmarshal(m.Result, &read) != nil || !strings.Contains(read.Contents[0].Text, "of ") {
		t.Errorf("the resource gives %s", m.Line)
	}
	// A task is named by the whole id: a client was given it.
	if m := front.Call("tasks/get", map[string]any{"taskId": unique}); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("tasks/get of a beginning gives %s", m.Line)
	}
}
