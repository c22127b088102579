//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// hook is the session-start hook of the rig's jobd.
func hook(r *rig.Rig) string { return r.Bin + "/jobd hook session-start" }

// resumed starts Claude Code with a session, and returns once it has the tools.
func resumed(t *testing.T, claude *claudecode.Claude, session string) *claudecode.Pane {
	t.Helper()
	lists := func() int { return len(claude.Wire().Requests("tools/list")) }
	before := lists()
	pane := claude.Start("--resume", session)
	rig.Until(t, time.Minute, "Claude Code has listed the tools", func() bool { return lists() > before })
	return pane
}

// untold waits until the one job has ended, keeping mcp-stdio from telling
// anybody. It returns the job and mcp-stdio's process, which stands still.
func untold(t *testing.T, r *rig.Rig, claude *claudecode.Claude) (job rig.Job, server int) {
	t.Helper()
	job = named(t, r, "deep thought")
	r.UntilState(time.Minute, job.ID, "running")
	server = claude.Wire().Server()
	signal(t, server, syscall.SIGSTOP)
	r.UntilState(time.Minute, job.ID, "succeeded")
	return job, server
}

// isTheSameJob checks that the model was given the result of a job that ran
// once, by a call that said that it joined.
func isTheSameJob(t *testing.T, r *rig.Rig, claude *claudecode.Claude, job rig.Job) {
	t.Helper()
	claude.API.Told(t, time.Minute, claudecode.ToolResult, "the answer is 42", "no new job was started", "was not delivered before")
	if runs := r.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
	if jobs := r.Jobs(); len(jobs) != 1 || jobs[0].ID != job.ID {
		t.Errorf("the jobs are %+v", jobs)
	}
}

func TestClaudeCode_HeadlessIsKilledBeforeItIsToldAndAsksAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	stream := claude.Stream()
	stream.Say("CALL " + runJob(3) + " please")
	job, server := untold(t, r, claude)
	stream.Kill()
	rig.Kill(t, server)
	if r.Job(job.ID).DeliveredAt != nil {
		t.Error("the job counts as delivered, and nobody was told")
	}
	out := claude.Print("CALL "+runJob(3)+" please", "--resume", claude.Session())
	if out.Code != 0 {
		t.Errorf("claude -p ended with %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	isTheSameJob(t, r, claude, job)
	if again := claude.Session(); again != job.Session {
		t.Errorf("the resumed session is %s, the job's %s", again, job.Session)
	}
}

func TestClaudeCode_SubagentIsKilledBeforeItIsToldAndAsksAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	pane := claude.Start()
	pane.Type("AGENT " + runJob(3) + " please")
	job, server := untold(t, r, claude)
	pane.Kill()
	rig.Kill(t, server)
	pane = resumed(t, claude, claude.Session())
	pane.Type("CALL " + runJob(3) + " please")
	isTheSameJob(t, r, claude, job)
	delivered(t, r, job.ID)
	// What was delivered is asked for anew.
	pane.Type("CALL " + runJob(3) + " please")
	pane.Until("1 MCP task")
	rig.Until(t, 20*time.Second, "the command runs again", func() bool { return len(r.Lines("runs")) == 2 })
}

func TestClaudeCode_StopsATaskAndAsksAgain(t *testing.T) {
	t.Parallel()
	c := converse(t, 30)
	c.pane.Type("/tasks")
	c.pane.Until("x to stop")
	c.pane.Key("x")
	c.rig.UntilState(time.Minute, c.job, "cancelled")
	c.pane.Key("Escape")
	c.pane.Type("CALL " + runJob(30) + " please")
	var again rig.Job
	rig.Until(t, time.Minute, "there is a new job", func() bool {
		again = c.rig.Jobs()[0]
		return again.ID != c.job
	})
	c.rig.UntilState(time.Minute, again.ID, "running")
	rig.Until(t, 10*time.Second, "the command runs again", func() bool { return len(c.rig.Lines("runs")) == 2 })
	// Whoever cancelled a job need not be told of it.
	if left := pending(t, c.rig); !slices.Equal(left, []string{again.ID}) {
		t.Errorf("jobd status shows %v", left)
	}
	c.rig.Jobd("cancel", again.ID)
}

func TestClaudeCode_ANewSessionHearsOfAJobThatNobodyWasToldOf(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	claude.Hook(hook(r))
	front := r.Front("a session that is over")
	id := front.Run(map[string]any{"command": command(2), "name": "deep thought"})
	front.Close()
	r.UntilState(20*time.Second, id, "succeeded")

	news := "ended, and nobody was told (get_job gives the result): deep thought (job " + id[:8] + ", succeeded)"
	pane := claude.Start()
	pane.Until("SessionStart:startup says: jobd, this project's jobs. " + news)
	pane.Type("hello")
	claude.API.Told(t, time.Minute, claudecode.Prompt, "hello", news)
	pane.Exit()

	pane = claude.Start()
	pane.Type("hello again")
	claude.API.Told(t, time.Minute, claudecode.Prompt, "hello again")
	if n := claude.API.Count(claudecode.Prompt, "hello again", "jobd, this project's jobs"); n != 0 || pane.Shows("SessionStart:startup says") {
		t.Error("a second session was told of the job")
	}
	if r.Job(id).DeliveredAt != nil {
		t.Error("the job counts as delivered, and only its name was told")
	}
	// The model asks for it then.
	pane.Type(`CALL mcp__jobd__get_job {"job_id":"` + id[:8] + `"} please`)
	claude.API.Told(t, time.Minute, claudecode.ToolResult, "the answer is 42")
}

// After /clear the process is in another session, which its server's
// environment does not say.
func TestClaudeCode_IsClearedAndAsksAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	claude.Hook(hook(r))
	pane := claude.Start()
	pane.Type("CALL " + runJob(9) + " please")
	pane.Until("1 MCP task")
	first := named(t, r, "deep thought")
	pane.Type("/clear")
	pane.Until("SessionStart:clear says: jobd, this project's jobs. still running: deep thought (job " + first.ID[:8] + ")")
	pane.Type("CALL " + runJob(9) + " please")
	var second rig.Job
	rig.Until(t, time.Minute, "there is a new job", func() bool {
		second = r.Jobs()[0]
		return second.ID != first.ID
	})
	if now := claude.Session(); second.Session != now || first.Session == now {
		t.Errorf("the jobs belong to %s and %s, and the session is %s", first.Session, second.Session, now)
	}
	// Both results come to the process that follows them.
	for _, job := range []rig.Job{first, second} {
		claude.API.Told(t, secondsToTell, claudecode.Notification, job.ID, "the answer is 42")
		delivered(t, r, job.ID)
	}
	if runs := r.Lines("runs"); len(runs) != 2 {
		t.Errorf("the command ran %d times", len(runs))
	}
	// In the session that was cleared, once it is resumed, nothing is left to say.
	pane.Exit()
	pane = resumed(t, claude, first.Session)
	pane.Type("hello")
	rig.Until(t, time.Minute, "the model is greeted", func() bool {
		return slices.ContainsFunc(claude.API.Turns(), func(turn claudecode.Turn) bool { return strings.Contains(turn.Typed, "hello") })
	})
	if strings.Contains(pane.Screen(), "SessionStart:resume says") {
		t.Errorf("the resumed session was told of jobs:\n%s", pane.Screen())
	}
}

// The first job of a session that was cleared before there was a daemon belongs
// to it, so that its resumption gets the result.
func TestClaudeCode_IsClearedBeforeAnythingRan(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	claude.Hook(hook(r))
	pane := claude.Start()
	pane.Type("/clear")
	pane.Type("AGENT " + runJob(3) + " please")
	job, server := untold(t, r, claude)
	if now := claude.Session(); job.Session != now {
		t.Errorf("the job belongs to %s, and the session is %s", job.Session, now)
	}
	pane.Kill()
	rig.Kill(t, server)
	pane = resumed(t, claude, job.Session)
	pane.Until("ended while this session was away")
	pane.Type("CALL " + runJob(3) + " please")
	isTheSameJob(t, r, claude, job)
	delivered(t, r, job.ID)
}
