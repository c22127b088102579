//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// A person sits in front of a Claude Code whose jobs ask.
type person struct {
	t      *testing.T
	rig    *rig.Rig
	claude *claudecode.Claude
	pane   *claudecode.Pane
}

func sitDown(t *testing.T) *person {
	t.Helper()
	r := rig.New(t)
	p := &person{t: t, rig: r, claude: claudecode.New(t, r)}
	p.claude.Serve()
	p.pane = p.claude.Start()
	return p
}

// asker is the prompt that has the model start a job, whose question lasts a
// minute unless it says otherwise.
func asker(name, command string) string {
	arguments, err := json.Marshal(map[string]any{"name": name, "command": command})
	if err != nil {
		panic(err)
	}
	return "CALL mcp__jobd__run_job " + string(arguments) + " please"
}

// starts has the model start a job, and returns it.
func (p *person) starts(name, command string) rig.Job {
	p.t.Helper()
	p.pane.Type(asker(name, command))
	return named(p.t, p.rig, name)
}

// named waits for the job of a name.
func named(t *testing.T, r *rig.Rig, name string) rig.Job {
	t.Helper()
	var job rig.Job
	rig.Until(t, time.Minute, "there is a job "+name, func() bool {
		jobs := r.Jobs()
		i := slices.IndexFunc(jobs, func(j rig.Job) bool { return j.Name == name })
		if i >= 0 {
			job = jobs[i]
		}
		return i >= 0
	})
	return job
}

// form is what the screen shows of a form, without the conversation above it.
func (p *person) form() string {
	_, form, _ := strings.Cut(p.pane.Screen(), "MCP server “jobd” ")
	return form
}

// isAsked waits for a form that shows all of the texts.
func (p *person) isAsked(texts ...string) {
	p.t.Helper()
	rig.Until(p.t, time.Minute, fmt.Sprintf("a form shows %q", texts), func() bool {
		form := p.form()
		missing := func(text string) bool { return !strings.Contains(form, text) }
		return strings.Contains(form, "Esc to answer later") && !slices.ContainsFunc(texts, missing)
	})
}

// accepts sends the form as it is filled in.
func (p *person) accepts() {
	p.t.Helper()
	p.presses("Down", "❯ Accept")
	p.enters("❯ Accept")
}

func (p *person) declines() {
	p.t.Helper()
	p.presses("Down", "❯ Accept")
	p.presses("Right", "❯ Decline")
	p.enters("❯ Decline")
}

// consents says that the address was opened. The person's browser is not Claude
// Code's, which has none.
func (p *person) consents() {
	p.t.Helper()
	p.presses("Right", "❯ I'm done, continue")
	p.enters("❯ I'm done, continue")
}

// enters presses Enter on a button, again if a busy Claude Code let it fall.
func (p *person) enters(button string) {
	p.t.Helper()
	rig.Until(p.t, time.Minute, fmt.Sprintf("Enter on %q is taken", button), func() bool {
		p.pane.Key("Enter")
		for range 10 {
			if !strings.Contains(p.form(), button) {
				return true
			}
			time.Sleep(200 * time.Millisecond)
		}
		return false
	})
}

// presses presses a key until the screen shows a text.
func (p *person) presses(key, text string) {
	p.t.Helper()
	rig.Until(p.t, 30*time.Second, fmt.Sprintf("%s leads to %q", key, text), func() bool {
		if p.pane.Shows(text) {
			return true
		}
		p.pane.Key(key)
		return false
	})
}

// modelIsTold waits for the notification with these texts.
func (p *person) modelIsTold(texts ...string) claudecode.Turn {
	p.t.Helper()
	return p.claude.API.Told(p.t, time.Minute, claudecode.Notification, texts...)
}

// updates are the answers that Claude Code sent about a job, one map a request.
func (p *person) updates(job string) []map[string]response {
	p.t.Helper()
	var found []map[string]response
	for _, raw := range p.claude.Wire().Requests("tasks/update") {
		var u struct {
			TaskID         string              `json:"taskId"`
			InputResponses map[string]response `json:"inputResponses"`
		}
		decode(p.t, raw, &u)
		if u.TaskID == job {
			found = append(found, u.InputResponses)
		}
	}
	return found
}

// A response is an answer on the wire.
type response struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content"`
}

// noErrors checks that mcp-stdio answered nothing with an error.
func (p *person) noErrors() {
	p.t.Helper()
	for _, e := range p.claude.Wire() {
		var m struct {
			Error json.RawMessage `json:"error"`
		}
		if e.Event == "out" && json.Unmarshal([]byte(e.Text), &m) == nil && m.Error != nil {
			p.t.Errorf("mcp-stdio answered with an error: %s", e.Text)
		}
	}
}

func TestQuestion_IsAnsweredInClaudeCodesForms(t *testing.T) {
	t.Parallel()
	p := sitDown(t)
	r := p.rig

	// Accepted, with a default that was changed and a box that was ticked.
	job := p.starts("accept", `jobd ask "Which branch?" --field 'branch:string,default=main,title=Branch,description=Name of the branch' --field sure:boolean; echo code $?`)
	p.isAsked("requests your input", "Which branch?", "Branch: main", "Name of the branch")
	p.pane.Text("-x")
	p.presses("Down", "❯ * sure")
	p.pane.Key("Space")
	p.accepts()
	p.modelIsTold("<status>completed</status>", `{"branch":"main-x","sure":true}`, "code 0")
	if u := p.updates(job.ID); len(u) != 1 || u[0]["q1"].Action != "accept" {
		t.Errorf("Claude Code sent %v", u)
	}

	// Declined.
	p.starts("decline", `jobd ask "Overwrite it?" --field 'sure:boolean,default=true'; echo "code $?, not overwritten"`)
	p.isAsked("Overwrite it?")
	p.declines()
	p.modelIsTold("<status>completed</status>", "code 10, not overwritten")

	// Two at once are answered in one request. The server is held meanwhile, so
	// that the next poll sees both.
	job = p.starts("both", `until [ -e both ]; do sleep 0.05; done
jobd ask "First of both?" --field 'a:integer,default=1' & jobd ask "Second of both?" --field 'b:integer,default=2' & wait; echo both done`)
	p.pane.Until("1 MCP task")
	server := p.claude.Wire().Server()
	signal(t, server, syscall.SIGSTOP)
	r.Write("both", "", 0o600)
	rig.Until(t, time.Minute, "both questions are open", func() bool { return len(asks(t, r, job.ID)) == 2 })
	signal(t, server, syscall.SIGCONT)
	p.isAsked(" of both?")
	one, other := "First of both?", "Second of both?"
	if strings.Contains(p.form(), other) {
		one, other = other, one
	}
	p.isAsked(one)
	p.accepts()
	p.isAsked(other)
	p.accepts()
	p.modelIsTold("both done", `{"a":1}`, `{"b":2}`)
	if u := p.updates(job.ID); len(u) != 1 || len(u[0]) != 2 {
		t.Errorf("two answers were sent as %v", u)
	}

	// Two in turn have keys of their own.
	job = p.starts("turns", `a=$(jobd ask "The first?" --field 'a:integer,default=1' --raw) && b=$(jobd ask "And the second?" --field 'b:integer,default=2' --raw) && echo "turns $a $b"`)
	p.isAsked("The first?")
	p.accepts()
	p.isAsked("And the second?")
	p.accepts()
	p.modelIsTold("turns 1 2")
	if u := p.updates(job.ID); len(u) != 2 || u[0]["q1"].Action != "accept" || u[1]["q2"].Action != "accept" {
		t.Errorf("two answers in turn were sent as %v", u)
	}

	// A secret: the accept is consent, and the value goes past Claude Code.
	job = p.starts("secret", `v=$(jobd ask "The token of the registry?" --secret --raw) && echo "a token of ${#v} characters"`)
	p.isAsked("wants to open a URL", "The token of the registry?", "http://127.0.0.1:")
	p.consents()
	rig.Until(t, time.Minute, "the consent is sent", func() bool { return len(p.updates(job.ID)) == 1 })
	if a := p.updates(job.ID)[0]["q1"]; a.Action != "accept" || len(a.Content) != 0 {
		t.Errorf("the consent was sent as %v", a)
	}
	rig.Until(t, 30*time.Second, "the task works", func() bool {
		return strings.Contains(p.lastTask(job.ID), `"status":"working"`)
	})
	if now := r.Job(job.ID); now.State != "waiting" {
		t.Errorf("before the value is there the job is %s", now.State)
	}
	answerSecret(t, r, job.ID, "hunter2-hunter2")
	p.modelIsTold("a token of 15 characters")
	for _, e := range p.claude.Wire() {
		if strings.Contains(e.Text, "hunter2") {
			t.Errorf("the secret is on the wire: %s", e.Text)
		}
	}

	p.noErrors()
	for _, job := range r.Jobs() {
		if job.State != "succeeded" {
			t.Errorf("job %s is %s: %s", job.Name, job.State, job.StatusMessage)
		}
	}
}

// lastTask is the newest answer of mcp-stdio about a task.
func (p *person) lastTask(job string) string {
	p.t.Helper()
	last := ""
	for _, e := range p.claude.Wire() {
		if e.Event == "out" && strings.Contains(e.Text, `"taskId":"`+job) {
			last = e.Text
		}
	}
	return last
}

func TestQuestion_IsAnsweredLater(t *testing.T) {
	t.Parallel()
	p := sitDown(t)

	// In the list of tasks.
	job := p.starts("later", `jobd ask "Go on later?" --field 'go:boolean,default=true'; echo later $?`)
	p.isAsked("Go on later?")
	p.pane.Key("Escape")
	p.pane.Until("needs your input")
	if u := p.updates(job.ID); len(u) != 0 {
		t.Errorf("Esc sent %v", u)
	}
	if now := p.rig.Job(job.ID); now.State != "waiting" {
		t.Errorf("after Esc the job is %s", now.State)
	}
	p.pane.Type("/tasks")
	p.pane.Until("The server is waiting for your answer")
	p.pane.Key("Enter")
	p.isAsked("Go on later?")
	p.accepts()
	p.modelIsTold("<status>completed</status>", `{"go":true}`, "later 0")

	// In a shell.
	job = p.starts("elsewhere", `jobd ask "Go on elsewhere?" --field go:boolean; echo elsewhere $?`)
	p.isAsked("Go on elsewhere?")
	p.pane.Key("Escape")
	p.pane.Until("needs your input")
	p.rig.Jobd("answer", job.ID, "go=no")
	p.modelIsTold("<status>completed</status>", `{"go":false}`, "elsewhere 0")
	if u := p.updates(job.ID); len(u) != 0 {
		t.Errorf("Claude Code sent %v", u)
	}
	p.noErrors()
}

// While a form is open Claude Code does not poll, so to the server it looks as
// if nobody were there. The job must not wait for that.
func TestQuestion_IsLeftOpenPastItsDeadline(t *testing.T) {
	t.Parallel()
	p := sitDown(t)
	job := p.starts("night", `echo begun; jobd ask "Deploy to production?" --field 'go:boolean,default=true' --timeout 4s; echo went on after $? | tee went-on`)
	p.isAsked("Deploy to production?")
	ended := p.rig.UntilState(time.Minute, job.ID, "unanswered")
	if !strings.Contains(p.form(), "Deploy to production?") {
		t.Error("the form is gone, so this shows nothing of a late answer")
	}
	if len(p.rig.Lines("went-on")) != 0 {
		t.Errorf("the script went on after the deadline: %q", p.rig.Lines("went-on"))
	}
	p.accepts()
	rig.Until(t, time.Minute, "the late answer is sent", func() bool { return len(p.updates(job.ID)) == 1 })
	turn := p.modelIsTold("was ended because it was not answered", "Deploy to production?", "within 4s", "begun",
		"Call again when someone is there to answer", "question_timeout_seconds", "Do not make up the answer")
	if !strings.Contains(turn.Text, "<status>failed</status>") {
		t.Errorf("the model was told: %s", turn.Text)
	}
	if now := p.rig.Job(job.ID); now.State != "unanswered" || !now.EndedAt.Equal(*ended.EndedAt) {
		t.Errorf("after the late answer the job is %s, ended at %v", now.State, now.EndedAt)
	}
	p.noErrors()
}

func TestQuestion_OutlivesTheSession(t *testing.T) {
	t.Parallel()
	p := sitDown(t)
	job := p.starts("long", `jobd ask "Which one?" --field 'n:integer,default=7' --raw; echo code $?`)
	p.isAsked("Which one?")
	p.leaves()
	if now := p.rig.Job(job.ID); now.State != "waiting" {
		t.Errorf("the session is gone, and the job is %s", now.State)
	}
	// The form comes up again by itself.
	p.pane = p.claude.Start("--resume", p.claude.Session())
	p.isAsked("Which one?")
	p.leaves()

	p.rig.Jobd("answer", job.ID, "n=42")
	p.rig.UntilState(time.Minute, job.ID, "succeeded")
	p.pane = p.claude.Start("--resume", p.claude.Session())
	p.modelIsTold("<status>completed</status>", "42", "code 0")
	rig.Until(t, 20*time.Second, "the job counts as delivered", func() bool { return p.rig.Job(job.ID).DeliveredAt != nil })
	if u := p.updates(job.ID); len(u) != 0 {
		t.Errorf("Claude Code sent %v", u)
	}
}

// leaves ends Claude Code by TERM, whatever it shows.
func (p *person) leaves() {
	p.t.Helper()
	signal(p.t, p.pane.PID(), syscall.SIGTERM)
	rig.Until(p.t, time.Minute, "Claude Code has ended", func() bool { return !rig.Alive(p.pane.PID()) })
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("there is no process %d", pid)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("sending %v to %d: %v", s, pid, err)
	}
}

const nightly = `jobd ask "Rotate the keys?" --field go:boolean --raw; echo "code $?"`

// Without the extension the question comes in the answer to the call.
func TestQuestion_InAHeadlessCall(t *testing.T) {
	t.Parallel()
	t.Run("ends the job", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t)
		claude := claudecode.New(t, r)
		claude.Serve()
		configure(t, r, "unattended: cancel\n")
		if out := claude.Print(asker("nightly", nightly)); out.Code != 0 {
			t.Errorf("claude -p ended with %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
		claude.API.Told(t, time.Second, claudecode.ToolResult, "was ended because it was not answered", "nobody can answer", "Rotate the keys?",
			"Call again when someone is there to answer", "Do not make up the answer")
		if job := named(t, r, "nightly"); job.State != "unanswered" {
			t.Errorf("the job is %s: %s", job.State, job.StatusMessage)
		}
	})
	t.Run("leaves the job waiting", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t)
		claude := claudecode.New(t, r)
		claude.Serve()
		configure(t, r, "unattended: wait\n")
		if out := claude.Print(asker("nightly", nightly)); out.Code != 0 {
			t.Errorf("claude -p ended with %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
		job := named(t, r, "nightly")
		claude.API.Told(t, time.Second, claudecode.ToolResult, "Rotate the keys?", "jobd answer "+job.ID[:12], "Do not answer for the person", "Do not call the tool again")
		waitsUnfollowed(t, r, job.ID)
		r.Jobd("answer", job.ID, "go=yes")
		r.UntilState(time.Minute, job.ID, "succeeded")
	})
}

// waitsUnfollowed waits until a job waits and nobody follows it. Claude Code tells
// its model before it tells the server.
func waitsUnfollowed(t *testing.T, r *rig.Rig, id string) {
	t.Helper()
	rig.Until(t, 30*time.Second, "nobody follows the job", func() bool {
		var jobs []struct {
			State      string `json:"state"`
			Unfollowed bool   `json:"unfollowed"`
		}
		decode(t, []byte(r.Jobd("status", id, "--json")), &jobs)
		if jobs[0].State != "waiting" {
			t.Fatalf("the job is %s", jobs[0].State)
		}
		return jobs[0].Unfollowed
	})
	if text := r.Jobd("status", id); !strings.Contains(text, "no longer follows it") {
		t.Errorf("status does not say that nobody follows the job:\n%s", text)
	}
}

// With the extension Claude Code cancels the task when it sees the question.
func TestQuestion_InAHeadlessTask(t *testing.T) {
	t.Parallel()
	t.Run("ends the job", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t)
		claude := claudecode.New(t, r)
		claude.Serve()
		claude.HeadlessTasks()
		configure(t, r, "unattended: cancel\n")
		stream := claude.Stream()
		stream.Say(asker("nightly", nightly))
		claude.API.Told(t, time.Minute, claudecode.Notification, "<status>cancelled</status>", "asked the user a question")
		r.UntilState(time.Minute, named(t, r, "nightly").ID, "cancelled")
		stream.End()
		if n := len(claude.Wire().Requests("tasks/cancel")); n == 0 {
			t.Error("Claude Code sent no tasks/cancel, so this shows nothing")
		}
	})
	t.Run("leaves the job waiting", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t)
		claude := claudecode.New(t, r)
		claude.Serve()
		claude.HeadlessTasks()
		configure(t, r, "unattended: wait\n")
		stream := claude.Stream()
		stream.Say(asker("nightly", nightly))
		claude.API.Told(t, time.Minute, claudecode.Notification, "<status>cancelled</status>", "asked the user a question")
		job := named(t, r, "nightly")
		waitsUnfollowed(t, r, job.ID)

		// The same call joins the job, while it waits and when it has ended.
		stream.Say(asker("nightly", nightly))
		claude.API.Told(t, time.Minute, claudecode.ToolResult, "no new job was started", job.ID[:12])
		rig.Until(t, time.Minute, "the second task is cancelled too", func() bool {
			return claude.API.Count(claudecode.Notification, "<status>cancelled</status>") == 2
		})
		waitsUnfollowed(t, r, job.ID)
		r.Jobd("answer", job.ID, "go=yes")
		r.UntilState(time.Minute, job.ID, "succeeded")
		stream.Say(asker("nightly", nightly))
		claude.API.Told(t, time.Minute, claudecode.ToolResult, "true\ncode 0")
		stream.End()
		if jobs := r.Jobs(); len(jobs) != 1 {
			t.Errorf("there are %d jobs", len(jobs))
		}
	})
}
