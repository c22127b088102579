//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// An exchange is a job that asks once, and a person who answers. Whatever the
// daemon dies of, the script gets its answer once, in the file "answers".
type exchange struct {
	name string
	ask  string // the arguments of jobd ask
	// answer plays the person, until the question is closed.
	answer func(t *testing.T, r *rig.Rig, front *rig.Front, id string)
	// answers is what the script writes down, "" = nothing.
	answers string
	state   string
	// steps are those of the exchange: a daemon that dies at one is brought back
	// in the short run of the test. The long one dies at every step there is.
	steps []string
}

var asking = []string{"ask checked", "asked", "ask told", "question shown"}

var exchanges = []exchange{
	{"form", `"Which one?" --field n:integer --raw`, byForm, "42", "succeeded",
		append(asking, "answer received", "answer recorded", "answer seen")},
	{"shell", `"Which one?" --field n:integer --raw`, byShell, "42", "succeeded",
		[]string{"answer received", "answer recorded"}},
	{"declined", `"Which one?" --field n:integer --raw`, byDecline, "", "failed",
		[]string{"answer recorded"}},
	{"secret", `"The token?" --secret --raw`, bySecret, "hunter2-hunter2", "succeeded",
		[]string{"asked", "secret given", "secret held", "secret seen", "secret received", "secret recorded"}},
	{"default", `"Which one?" --field n:integer,default=7 --raw --timeout 1s --on-timeout default`, byNobody, "7", "succeeded",
		[]string{"deadline recorded", "answer seen"}},
	{"unanswered", `"Which one?" --field n:integer --raw --timeout 1s`, byNobody, "", "unanswered",
		[]string{"deadline recorded"}},
}

// byForm answers as Claude Code does: it polls the task, whatever errors come
// back, shows each key once, and sends what was typed.
func byForm(t *testing.T, r *rig.Rig, front *rig.Front, id string) {
	t.Helper()
	rig.Until(t, time.Minute, "the form is shown", func() bool { return poll(front, id).Status == "input_required" })
	answers := map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"n": 42}}}
	rig.Until(t, time.Minute, "the answer is given", func() bool {
		m := front.Call("tasks/update", map[string]any{"taskId": id, "inputResponses": answers})
		return m.Error == nil || !unlucky(t, m.Error.Message)
	})
}

// poll asks for a task; while there is no daemon it gives an empty one.
func poll(front *rig.Front, id string) rig.ToolResult {
	m := front.Call("tasks/get", map[string]any{"taskId": id})
	if m.Error != nil && m.Error.Code == -32603 {
		return rig.ToolResult{}
	}
	return front.Result(m)
}

// unlucky reports whether a daemon that was only just started for a request has
// died too; who asked is told, and asks again. Nothing else may fail.
func unlucky(t *testing.T, message string) bool {
	t.Helper()
	if !strings.Contains(message, "jobd cannot be started: the daemon ended at once") {
		t.Errorf("it failed: %s", message)
		return false
	}
	return true
}

// try runs jobd until its daemon lives long enough to answer. An answer that was
// taken although its sender heard nothing is not taken again.
func try(t *testing.T, r *rig.Rig, input string, args ...string) string {
	t.Helper()
	var out rig.Outcome
	again := false
	rig.Until(t, time.Minute, "jobd "+args[0]+" is answered", func() bool {
		cmd := r.Command(t.Context(), "jobd", args...)
		cmd.Stdin = strings.NewReader(input)
		out = rig.Run(t, cmd)
		if out.Code == 0 || again && strings.Contains(out.Stderr, " asks nothing") {
			return true
		}
		again = unlucky(t, out.Stderr)
		return !again
	})
	return out.Stdout
}

// isOpen waits until the question is open.
func isOpen(t *testing.T, r *rig.Rig, id string) {
	t.Helper()
	rig.Until(t, time.Minute, "the question is open", func() bool { return strings.Contains(try(t, r, "", "status", id, "--json"), `"key": "q1"`) })
}

func byShell(t *testing.T, r *rig.Rig, _ *rig.Front, id string) {
	t.Helper()
	isOpen(t, r, id)
	try(t, r, "", "answer", id, "n=42")
}

func byDecline(t *testing.T, r *rig.Rig, _ *rig.Front, id string) {
	t.Helper()
	isOpen(t, r, id)
	try(t, r, "", "answer", id, "--decline")
}

// bySecret says the value again as long as it is asked for: what a daemon had
// in memory only is gone with it.
func bySecret(t *testing.T, r *rig.Rig, front *rig.Front, id string) {
	t.Helper()
	isOpen(t, r, id)
	rig.Until(t, time.Minute, "the secret is taken", func() bool {
		cmd := r.Command(t.Context(), "jobd", "answer", id, "--stdin")
		cmd.Stdin = strings.NewReader("hunter2-hunter2\n")
		if out := rig.Run(t, cmd); out.Code == 0 {
			return true
		}
		task := poll(front, id)
		return task.Status == "completed" || task.Status == "working" && !strings.Contains(task.StatusMessage, "The token?")
	})
}

func byNobody(*testing.T, *rig.Rig, *rig.Front, string) {}

// The daemon is killed at every step of a question, in the long run also each
// time that the step is reached, and at two steps of one life.
func TestSoak_AQuestionSurvivesAKillAtEveryStep(t *testing.T) {
	t.Parallel()
	whole := os.Getenv("WHOLE") == "1"
	for _, e := range exchanges {
		var fates [][]string
		for _, step := range e.steps {
			fates = append(fates, []string{"1 " + step})
		}
		if whole {
			fates = nil
			reached := e.play(t, nil, true)
			for step, times := range reached {
				for n := range times {
					fates = append(fates, []string{fmt.Sprint(n+1, " ", step)})
				}
				for other := range reached {
					fates = append(fates, []string{"1 " + step, "1 " + other})
				}
			}
			t.Logf("%s reaches %v", e.name, reached)
		}
		for _, fate := range fates {
			t.Run(e.name+"/"+strings.Join(fate, ", "), func(t *testing.T) {
				t.Parallel()
				e.play(t, fate, false)
			})
		}
	}
}

// play plays an exchange with a daemon that dies at the steps of its fate, and
// returns how often each step was reached where trace is set.
func (e exchange) play(t *testing.T, fate []string, trace bool) map[string]int {
	t.Helper()
	r := rig.NewFaulty(t)
	if trace {
		r.TraceSteps()
	}
	for _, f := range fate {
		n, step := 0, ""
		count, step, _ := strings.Cut(f, " ")
		if _, err := fmt.Sscan(count, &n); err != nil {
			t.Fatal(err)
		}
		r.DieAt(n, step)
	}
	front := r.Front("session")
	id := front.Tool("run_job", map[string]any{"name": e.name,
		"command": "echo asked >> asked; answer=$(jobd ask " + e.ask + ") || exit; echo \"$answer\" >> answers"}).TaskID
	if id == "" { // it ended before the call was answered
		try(t, r, "", "status")
		id = named(t, r, e.name).ID
	}
	e.answer(t, r, front, id)
	var task rig.ToolResult
	rig.Until(t, time.Minute, "the task has ended", func() bool {
		task = poll(front, id)
		return task.Status == "completed"
	})
	try(t, r, "", "status") // from here on there is a daemon

	if left := r.Faults(); len(left) != 0 {
		// A step may be reached a different number of times in another run.
		if os.Getenv("WHOLE") != "1" {
			t.Errorf("the daemon lived on: %v", left)
		} else {
			t.Logf("the daemon lived on: %v", left)
		}
	}
	job := r.Job(id)
	if job.State != e.state {
		t.Errorf("the job is %s (%s), not %s", job.State, job.StatusMessage, e.state)
	}
	if got := strings.Join(r.Lines("answers"), "\n"); got != e.answers {
		t.Errorf("the script got %q, not %q", got, e.answers)
	}
	if n := len(r.Lines("asked")); n != 1 {
		t.Errorf("the job ran %d times", n)
	}
	if n := questionCount(t, r, id); n != 1 {
		t.Errorf("the job has %d questions", n)
	}
	if jobs := r.Jobs(); len(jobs) != 1 {
		t.Errorf("there are %d jobs", len(jobs))
	}
	if open := asks(t, r, id); len(open) != 0 {
		t.Errorf("questions are open: %+v", open)
	}
	if task.Result == nil || task.Result.IsError != (e.state != "succeeded") {
		t.Errorf("the task is %+v", task)
	}
	if e.state == "unanswered" && !strings.Contains(task.Result.Text(), "“Which one?”") && !strings.Contains(task.Result.Text(), `"Which one?"`) {
		t.Errorf("the model is told %q", task.Result.Text())
	}
	reached := map[string]int{}
	for _, step := range r.Steps() {
		reached[step]++
	}
	// It is polled, so these are reached without end.
	for _, step := range []string{"question shown"} {
		reached[step] = min(reached[step], 3)
	}
	return reached
}

func questionCount(t testing.TB, r *rig.Rig, id string) int {
	t.Helper()
	var jobs []struct {
		Count int `json:"question_count"`
	}
	decode(t, []byte(r.Jobd("status", id, "--json")), &jobs)
	return jobs[0].Count
}

// An asker that is killed says nothing. Its question goes after 15 seconds, and
// an answer that comes then is refused with a reason.
func TestQuestion_OfAKilledAskerIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"name": "asker", "command": `jobd ask "Still there?" --field go:boolean & echo $! > pid.tmp; mv pid.tmp pid; wait $!; echo asker ended with $?; sleep 300`})
	rig.Until(t, time.Minute, "the question is open", func() bool { return len(asks(t, r, id)) == 1 })
	var pid int
	if _, err := fmt.Sscan(r.Lines("pid")[0], &pid); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	signal(t, pid, syscall.SIGKILL)
	if got := r.Job(id); got.State != "waiting" {
		t.Errorf("at once the job is %s; a daemon that is replaced must not cost the question", got.State)
	}
	r.UntilState(time.Minute, id, "running")
	if took := time.Since(began); took < 10*time.Second || took > 40*time.Second {
		t.Errorf("the question was withdrawn after %v", took)
	}
	if out := r.Try("answer", id, "go=yes"); out.Code == 0 || !strings.Contains(out.Stderr, "asks nothing at the moment") {
		t.Errorf("a late answer ended with %d: %s", out.Code, out.Stderr)
	}
	m := front.Call("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"go": true}}}})
	if m.Error != nil {
		t.Errorf("a late answer of the client gives %s", m.Line)
	}
	if task := front.Task(id); task.Status != "working" {
		t.Errorf("the task is %+v", task)
	}
	rig.Until(t, time.Minute, "the script knows", func() bool { return strings.Contains(r.Jobd("logs", id), "asker ended with 137") })
}

// stepsOfQuestions must be those that the daemon has: a step that nobody kills
// at shows nothing.
func TestQuestion_StepsAreThoseOfTheDaemon(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	reached := map[string]bool{}
	for _, e := range exchanges {
		for _, step := range e.steps {
			known[step] = true
		}
		for step := range e.play(t, nil, true) {
			if !slices.ContainsFunc([]string{"submit ", "launch ", "exit "}, func(p string) bool { return strings.HasPrefix(step, p) }) {
				reached[step] = true
			}
		}
	}
	for step := range reached {
		if !known[step] {
			t.Errorf("no exchange dies at the step %q", step)
		}
	}
	for step := range known {
		if !reached[step] {
			t.Errorf("there is no step %q", step)
		}
	}
}
