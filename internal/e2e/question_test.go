//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// An openQuestion is a question as "jobd status --json" prints it.
type openQuestion struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Mode    string `json:"mode"`
	Message string `json:"message"`
	URL     string `json:"url"`
	Fault   string `json:"fault"`
	Hidden  bool   `json:"hidden"`
	LeftMS  int64  `json:"left_ms"`
}

// asks are the open questions of a job.
func asks(t testing.TB, r *rig.Rig, id string) []openQuestion {
	t.Helper()
	var jobs []struct {
		Questions []openQuestion `json:"questions"`
	}
	decode(t, []byte(r.Jobd("status", id, "--json")), &jobs)
	return jobs[0].Questions
}

// untilAsked waits until so many questions of a job are open.
func untilAsked(t testing.TB, r *rig.Rig, id string, n int) []openQuestion {
	t.Helper()
	var open []openQuestion
	rig.Until(t, time.Minute, fmt.Sprintf("%d questions are open", n), func() bool {
		open = asks(t, r, id)
		return len(open) == n
	})
	return open
}

// answerSecret gives a job its secret as a pipe does.
func answerSecret(t testing.TB, r *rig.Rig, id, value string) {
	t.Helper()
	cmd := r.Command(t.Context(), "jobd", "answer", id, "--stdin")
	cmd.Stdin = strings.NewReader(value + "\n")
	if out := rig.Run(t, cmd); out.Code != 0 {
		t.Errorf("jobd answer --stdin ended with %d: %s", out.Code, out.Stderr)
	}
}

// An inputTask is a task as far as questions go.
type inputTask struct {
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage"`
	InputRequests map[string]struct {
		Method string `json:"method"`
		Params struct {
			Mode    string          `json:"mode"`
			Message string          `json:"message"`
			Schema  json.RawMessage `json:"requestedSchema"`
			URL     string          `json:"url"`
		} `json:"params"`
	} `json:"inputRequests"`
}

func (i inputTask) keys() []string { return slices.Sorted(maps.Keys(i.InputRequests)) }

// look polls a task; params may hold more, such as other capabilities.
func look(t testing.TB, front *rig.Front, id string, more map[string]any) inputTask {
	t.Helper()
	params := map[string]any{"taskId": id}
	maps.Copy(params, more)
	m := front.Call("tasks/get", params)
	if m.Error != nil {
		t.Fatalf("tasks/get gives %s", m.Line)
	}
	var task inputTask
	decode(t, m.Result, &task)
	return task
}

// send answers a task's questions; it must not be refused, whatever it holds.
func send(t testing.TB, front *rig.Front, id string, answers map[string]any) {
	t.Helper()
	if m := front.Call("tasks/update", map[string]any{"taskId": id, "inputResponses": answers}); m.Error != nil {
		t.Errorf("tasks/update with %v gives %s", answers, m.Line)
	}
}

func accept(content map[string]any) map[string]any {
	return map[string]any{"action": "accept", "content": content}
}

// keyOf is the key under which a question is open.
func keyOf(t testing.TB, open []openQuestion, message string) string {
	t.Helper()
	i := slices.IndexFunc(open, func(q openQuestion) bool { return q.Message == message })
	if i < 0 {
		t.Fatalf("%q is not among %+v", message, open)
	}
	return open[i].Key
}

func TestQuestion_TakesOneSomeAndAllKeysAndNoOthers(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"name": "three", "command": `for q in a b c; do jobd ask "Question $q" --field n:integer --raw >$q & done; wait; echo $(cat a b c)`})
	open := untilAsked(t, r, id, 3)
	a, b, c := keyOf(t, open, "Question a"), keyOf(t, open, "Question b"), keyOf(t, open, "Question c")
	if task := look(t, front, id, nil); task.Status != "input_required" || !slices.Equal(task.keys(), []string{"q1", "q2", "q3"}) {
		t.Fatalf("the task is %+v", task)
	}

	// Everybody sees what is asked, for how long, and how to answer.
	for name, text := range map[string]string{
		"get_job":      front.Tool("get_job", map[string]any{"job_id": id}).Text(),
		"list_jobs":    front.Tool("list_jobs", nil).Text(),
		"status":       r.Jobd("status"),
		"status ID":    r.Jobd("status", id),
		"get_job wait": front.Tool("get_job", map[string]any{"job_id": id, "wait_seconds": 50}).Text(),
	} {
		for _, part := range []string{"Question a", "Question b", "Question c", "jobd answer " + id[:8], " left"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not show %q: %s", name, part, text)
			}
		}
		if !regexp.MustCompile(`(59 ?m(in)?|60 ?m(in)?|1 ?h)( \d+ ?s)? left`).MatchString(text) {
			t.Errorf("%s does not show the time that is left: %s", name, text)
		}
	}
	for _, q := range asks(t, r, id) {
		if q.LeftMS < 3_500_000 || q.LeftMS > 3_600_000 {
			t.Errorf("%s has %d ms left", q.Message, q.LeftMS)
		}
	}

	// One, beside keys that there are not.
	send(t, front, id, map[string]any{"q99": accept(map[string]any{"n": 9}), "": accept(map[string]any{"n": 9}), b: accept(map[string]any{"n": 2})})
	if task := look(t, front, id, nil); task.Status != "input_required" || len(task.InputRequests) != 2 || slices.Contains(task.keys(), b) {
		t.Errorf("after one answer the task is %+v", task)
	}
	// A repeated and an invalid one.
	send(t, front, id, map[string]any{b: accept(map[string]any{"n": 22}), a: accept(map[string]any{"n": "many"})})
	task := look(t, front, id, nil)
	reopened := keyOf(t, asks(t, r, id), "Question a")
	if len(task.InputRequests) != 2 || reopened != "q4" || !strings.Contains(task.InputRequests[reopened].Params.Message, "The last answer was not taken: ") {
		t.Errorf("after an invalid answer the task is %+v", task)
	}
	if text := r.Jobd("status"); !strings.Contains(text, "the last answer was not taken") {
		t.Errorf("status does not show the fault: %s", text)
	}
	// What is no answer at all leaves the question as it is.
	send(t, front, id, map[string]any{reopened: map[string]any{"action": "cancel"}, c: map[string]any{"no": "action"}})
	// All, with one under the key that it had before.
	send(t, front, id, map[string]any{a: accept(map[string]any{"n": 11}), reopened: accept(map[string]any{"n": 1}), c: accept(map[string]any{"n": 3})})
	done := front.UntilDone(time.Minute, id)
	if text := done.Result.Text(); !strings.Contains(text, "1 2 3") {
		t.Errorf("the job says %s", text)
	}
	// Late.
	send(t, front, id, map[string]any{c: accept(map[string]any{"n": 33}), reopened: map[string]any{"action": "decline"}})
	if job := r.Job(id); job.State != "succeeded" {
		t.Errorf("after a late answer the job is %s", job.State)
	}
}

func TestQuestion_PastThe16thIsAnsweredInAShell(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"name": "many", "command": `for q in $(seq 18); do jobd ask "Question $q" --field n:integer --raw >a$q & done; wait; cat a* | sort -n | tr '\n' ' '`})
	open := untilAsked(t, r, id, 18)
	task := look(t, front, id, nil)
	if task.Status != "input_required" || len(task.InputRequests) != 16 || slices.Contains(task.keys(), "q17") || slices.Contains(task.keys(), "q18") {
		t.Errorf("with 18 questions the task is %s with %v", task.Status, task.keys())
	}
	if !strings.Contains(task.StatusMessage, "2 of them only in a shell: jobd answer "+id[:12]) {
		t.Errorf("the task says %q", task.StatusMessage)
	}
	answers := map[string]any{}
	for i, q := range open {
		if q.Hidden != (i >= 16) || q.Key != fmt.Sprint("q", i+1) {
			t.Errorf("question %d is %+v", i+1, q)
		}
		answers[q.Key] = accept(map[string]any{"n": i + 1})
	}
	delete(answers, "q17")
	delete(answers, "q18")
	send(t, front, id, answers)
	task = look(t, front, id, nil)
	if task.Status != "working" || len(task.InputRequests) != 0 || !strings.Contains(task.StatusMessage, "answer it in a shell: jobd answer "+id[:12]) {
		t.Errorf("with the last two open the task is %+v", task)
	}
	r.Jobd("answer", id, "--question", "q18", "n=18")
	r.Jobd("answer", id, "n=17")
	done := front.UntilDone(time.Minute, id)
	if text := done.Result.Text(); !strings.Contains(text, "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18") {
		t.Errorf("the job says %s", text)
	}
}

// capabilities are those of another client than Claude Code.
func capabilities(elicitation map[string]any) map[string]any {
	declared := map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
	if elicitation != nil {
		declared["elicitation"] = elicitation
	}
	return map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/clientCapabilities": declared}}
}

func TestQuestion_ForAClientThatLacksItsMode(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"name": "modes", "command": `jobd ask "A number?" --field n:integer --raw & jobd ask "A token?" --secret >/dev/null & wait; echo both`})
	untilAsked(t, r, id, 2)
	for name, c := range map[string]struct {
		elicitation map[string]any
		shown       bool
	}{
		"forms and pages": {map[string]any{"form": map[string]any{}, "url": map[string]any{}}, true},
		"forms only":      {map[string]any{"form": map[string]any{}}, false},
		"pages only":      {map[string]any{"url": map[string]any{}}, false},
		"nothing":         {nil, false},
	} {
		task := look(t, front, id, capabilities(c.elicitation))
		if shown := task.Status == "input_required" && len(task.InputRequests) == 2; shown != c.shown {
			t.Errorf("a client with %s sees %+v", name, task)
		}
		if !c.shown && (task.Status != "working" || !strings.Contains(task.StatusMessage, "jobd answer "+id[:12])) {
			t.Errorf("a client with %s is told %s, %q", name, task.Status, task.StatusMessage)
		}
	}
	// Who has no forms passes the person's answer on by the tool; who has them
	// does not. A secret passes by no tool.
	call := func(elicitation map[string]any, arguments map[string]any) rig.ToolResult {
		params := capabilities(elicitation)
		arguments["job_id"] = id
		params["name"], params["arguments"] = "answer_job", arguments
		return front.Result(front.Call("tools/call", params))
	}
	open := asks(t, r, id)
	number, token := keyOf(t, open, "A number?"), keyOf(t, open, "A token?")
	forms := map[string]any{"form": map[string]any{}, "url": map[string]any{}}
	if got := call(forms, map[string]any{"question": number, "content": map[string]any{"n": 1}}); !got.IsError || !strings.Contains(got.Text(), "is for the person, not for a model") {
		t.Errorf("a client with forms may answer: %s", got.Text())
	}
	if got := call(nil, map[string]any{"question": token, "content": map[string]any{"value": "hunter2"}}); !got.IsError {
		t.Errorf("a tool may pass a secret on: %s", got.Text())
	}
	if got := call(nil, map[string]any{"question": number, "content": map[string]any{"n": 1}}); got.IsError {
		t.Errorf("a client without forms may not answer: %s", got.Text())
	}
	answerSecret(t, r, id, "hunter2")
	if done := front.UntilDone(time.Minute, id); !strings.Contains(done.Result.Text(), "both") {
		t.Errorf("the job says %s", done.Result.Text())
	}
}

// A form and a shell answer at the same moment, ten times: one of them wins,
// the shell knows whether it did, and the job has the winner's answer.
func TestQuestion_IsAnsweredInTwoPlacesAtOnce(t *testing.T) {
	t.Parallel()
	const rounds = 10
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"name": "race", "command": fmt.Sprintf(`for i in $(seq %d); do jobd ask "Round $i?" --field n:integer --raw >> answers || exit; done`, rounds)})
	shells := 0
	for i := range rounds {
		key := untilAsked(t, r, id, 1)[0].Key
		shell := make(chan int, 1)
		go func() { shell <- r.Try("answer", id, "--question", key, "n=2").Code }()
		send(t, front, id, map[string]any{key: accept(map[string]any{"n": 1})})
		code := <-shell
		rig.Until(t, time.Minute, "the answer is there", func() bool { return len(r.Lines("answers")) > i })
		want := "1"
		if code == 0 {
			want = "2"
			shells++
		}
		if got := r.Lines("answers"); len(got) != i+1 || got[i] != want {
			t.Fatalf("in round %d the shell ended with %d, and the job has %q", i+1, code, got)
		}
	}
	t.Logf("the shell won %d of %d rounds", shells, rounds)
	front.UntilDone(time.Minute, id)
}

// The deadline comes from the question, else the job, else the configuration.
func TestQuestion_DeadlineIsTheNearestThatIsSet(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	configure(t, r, "question_timeout: 30m\n")
	front := r.Front("session")
	for name, c := range map[string]struct {
		job  map[string]any
		ask  string
		want time.Duration
	}{
		"config":   {nil, "", 30 * time.Minute},
		"job":      {map[string]any{"question_timeout_seconds": 600}, "", 10 * time.Minute},
		"question": {map[string]any{"question_timeout_seconds": 600}, "--timeout 5m", 5 * time.Minute},
	} {
		arguments := map[string]any{"name": name, "command": "jobd ask Go? " + c.ask}
		maps.Copy(arguments, c.job)
		id := front.Run(arguments)
		left := time.Duration(untilAsked(t, r, id, 1)[0].LeftMS) * time.Millisecond
		if left > c.want || left < c.want-time.Minute {
			t.Errorf("by the %s the question has %v left, not %v", name, left, c.want)
		}
	}
	front.Tool("cancel_job", map[string]any{"job_id": r.Jobs()[0].ID})
}

func configure(t testing.TB, r *rig.Rig, text string) {
	t.Helper()
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The notify command gets hostile texts as whole arguments of one line each.
func TestQuestion_TellsAnAbsentPerson(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	note := r.Write("note", "#!/bin/sh\nprintf '%s\\0' \"$@\" END >> \""+r.Dir+"/notes\"\n", 0o700)
	configure(t, r, fmt.Sprintf("notify: [%q, '{event}', '{name}', '{message}', '{command}', 'state={state}', '{job}', '{project}']\n", note))
	front := r.Front("session")
	message := "Go on?\n$(touch pwned) `touch pwned` \x1b[31mred {job} --flag"
	id := front.Run(map[string]any{"name": "; touch pwned", "argv": []string{"jobd", "ask", message, "--field", "go:boolean"}})
	untilAsked(t, r, id, 1)
	r.Jobd("answer", id, "go=yes")
	front.UntilDone(time.Minute, id)
	const args = 8
	var notes [][]string
	rig.Until(t, time.Minute, "the person was told twice", func() bool {
		data, err := os.ReadFile(r.Dir + "/notes")
		if err != nil {
			return false
		}
		words := strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
		notes = slices.Collect(slices.Chunk(words, args))
		return len(notes) == 2
	})
	want := [][]string{
		{"question", "; touch pwned", "Go on? $(touch pwned) `touch pwned` red {job} --flag", "jobd answer " + id[:8], "state=waiting", id, r.Project, "END"},
		{"finished", "; touch pwned", "exit code 0", "jobd result " + id[:8], "state=succeeded", id, r.Project, "END"},
	}
	for i := range want {
		if !slices.Equal(notes[i], want[i]) {
			t.Errorf("the person was told %q, not %q", notes[i], want[i])
		}
	}
	if _, err := os.Stat(r.Project + "/pwned"); err == nil {
		t.Error("a text was run")
	}
}
