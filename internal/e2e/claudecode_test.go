//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// A conversation is a Claude Code that was asked for a job.
type conversation struct {
	t      *testing.T
	rig    *rig.Rig
	claude *claudecode.Claude
	pane   *claudecode.Pane
	// job is the job's id, and the task's.
	job string
}

// secondsToTell is how long a result may take from the job's end to the model.
const secondsToTell = 60 * time.Second

// command counts its runs in the file "runs", takes its time, and says so.
func command(seconds int) string {
	return fmt.Sprintf("echo run >> runs; sleep %d; echo the answer is 42", seconds)
}

func runJob(seconds int) string {
	arguments, err := json.Marshal(map[string]any{"command": command(seconds), "name": "deep thought"})
	if err != nil {
		panic(err)
	}
	return "mcp__jobd__run_job " + string(arguments)
}

// converse starts Claude Code and asks for a job of so many seconds.
func converse(t *testing.T, seconds int) *conversation {
	t.Helper()
	r := rig.New(t)
	c := &conversation{t: t, rig: r, claude: claudecode.New(t, r)}
	c.claude.Serve()
	c.pane = c.claude.Start()
	c.pane.Type("CALL " + runJob(seconds) + " please")
	c.pane.Until("1 MCP task")
	note := c.claude.API.Told(t, time.Minute, claudecode.ToolResult, "started server-side task")
	jobs := r.Jobs()
	if len(jobs) != 1 {
		t.Fatalf("there are %d jobs", len(jobs))
	}
	c.job = jobs[0].ID
	if !strings.Contains(note.Text, c.job) {
		t.Errorf("the model was told of another task than %s: %s", c.job, note.Text)
	}
	return c
}

// resume starts Claude Code with the newest session.
func (c *conversation) resume() {
	c.t.Helper()
	c.pane = c.claude.Start("--resume", c.claude.Session())
}

// stillRuns checks that the shell sees the job running.
func (c *conversation) stillRuns() {
	c.t.Helper()
	if job := c.rig.Job(c.job); job.State != "running" {
		c.t.Errorf("the job is %s, not running", job.State)
	}
	if table := c.rig.Jobd("status"); !strings.Contains(table, "deep thought") || !strings.Contains(table, "running") {
		c.t.Errorf("jobd status does not show the job running:\n%s", table)
	}
}

// ends checks that the model is told the result, and once; that the job ran
// once and succeeded; and that nobody asked for its end.
func (c *conversation) ends() {
	c.t.Helper()
	c.claude.API.Told(c.t, secondsToTell, claudecode.Notification, "<status>completed</status>", "the answer is 42")
	if runs := c.rig.Lines("runs"); len(runs) != 1 {
		c.t.Errorf("the job ran %d times", len(runs))
	}
	if job := c.rig.Job(c.job); job.State != "succeeded" || job.Code() != 0 {
		c.t.Errorf("the job is %s with exit code %d", job.State, job.Code())
	}
	rig.Until(c.t, 20*time.Second, "the job counts as delivered", func() bool { return c.rig.Job(c.job).DeliveredAt != nil })
	if n := c.claude.API.Count(claudecode.Notification, "the answer is 42"); n != 1 {
		c.t.Errorf("the model was told %d times", n)
	}
	if cancels := c.claude.Wire().Requests("tasks/cancel"); len(cancels) != 0 {
		c.t.Errorf("tasks/cancel was sent: %s", cancels)
	}
}

// reconnect picks "Reconnect" in /mcp, as a person does whose server died.
func (c *conversation) reconnect() {
	c.t.Helper()
	c.pane.Type("/mcp")
	c.pane.Until("✘ jobd")
	c.pane.Key("Enter")
	c.pane.Until("❯ Reconnect")
	c.pane.Key("Enter")
	c.pane.Until("Reconnected to jobd")
}

func TestClaudeCode_IsLeftAfterThreeSecondsAndResumed(t *testing.T) {
	t.Parallel()
	c := converse(t, 20)
	time.Sleep(3 * time.Second) // the person's
	c.pane.Exit()
	c.stillRuns()
	c.resume()
	c.ends()
}

func TestClaudeCode_IsResumedAfterTheJobEnded(t *testing.T) {
	t.Parallel()
	c := converse(t, 4)
	c.pane.Exit()
	c.rig.UntilState(time.Minute, c.job, "succeeded")
	if c.rig.Job(c.job).DeliveredAt != nil {
		t.Error("the job counts as delivered, and nobody was told")
	}
	c.resume()
	c.ends()
}

func TestClaudeCode_IsKilledAndResumed(t *testing.T) {
	t.Parallel()
	c := converse(t, 8)
	c.pane.Kill()
	c.stillRuns()
	c.resume()
	c.ends()
}

func TestClaudeCode_ServerIsKilledAndReconnected(t *testing.T) {
	t.Parallel()
	c := converse(t, 8)
	rig.Kill(t, c.claude.Wire().Server())
	c.stillRuns()
	c.reconnect()
	c.ends()
}

func TestClaudeCode_ServerIsKilledAndTheSessionResumed(t *testing.T) {
	t.Parallel()
	c := converse(t, 8)
	rig.Kill(t, c.claude.Wire().Server())
	c.pane.Exit()
	c.stillRuns()
	c.resume()
	c.ends()
}

func TestClaudeCode_DaemonIsKilled(t *testing.T) {
	t.Parallel()
	c := converse(t, 8)
	killed := c.rig.KillDaemon()
	c.ends()
	if pid := c.rig.Daemon(); pid == killed {
		t.Errorf("process %d was killed and is the daemon", pid)
	}
}

func TestClaudeCode_AllAreKilledAndTheSessionResumed(t *testing.T) {
	t.Parallel()
	c := converse(t, 8)
	c.rig.KillDaemon()
	rig.Kill(t, c.claude.Wire().Server())
	c.pane.Kill()
	c.resume()
	c.ends()
}

func TestClaudeCode_StopsATaskInItsList(t *testing.T) {
	t.Parallel()
	c := converse(t, 300)
	c.pane.Type("/tasks")
	c.pane.Until("x to stop")
	c.pane.Key("x")
	rig.Until(t, time.Minute, "both cancels arrive", func() bool { return len(c.claude.Wire().Requests("tasks/cancel")) == 2 })
	c.rig.UntilState(time.Minute, c.job, "cancelled")
	rig.Until(t, 10*time.Second, "no process of the job is left", func() bool { return len(c.rig.Processes("jobd-shim"))+len(c.rig.Processes("sleep")) == 0 })
	if runs := c.rig.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
	for _, p := range c.claude.Wire() {
		if p.Event == "out" && strings.Contains(p.Text, `"error"`) {
			t.Errorf("mcp-stdio answered with an error: %s", p.Text)
		}
	}
}

func TestClaudeCode_HeadlessWaitsInTheCall(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	// Longer than the pace of progress notifications.
	out := claude.Print("CALL " + runJob(12) + " please")
	if out.Code != 0 || !strings.Contains(out.Stdout, "the answer is 42") {
		t.Errorf("claude -p ended with %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	claude.API.Told(t, time.Second, claudecode.ToolResult, "the answer is 42")
	waited(t, r, claude)
}

func TestClaudeCode_SubagentWaitsInTheCall(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	claude := claudecode.New(t, r)
	claude.Serve()
	pane := claude.Start()
	pane.Type("AGENT " + runJob(12) + " please")
	turn := claude.API.Told(t, 2*time.Minute, claudecode.ToolResult, "the answer is 42")
	if turn.Tool != "mcp__jobd__run_job" {
		t.Errorf("the first to be told was told by %s", turn.Tool)
	}
	waited(t, r, claude)
	rig.Until(t, 20*time.Second, "the job counts as delivered", func() bool { return r.Jobs()[0].DeliveredAt != nil })
}

// waited checks that the one job was waited for inside of the call.
func waited(t *testing.T, r *rig.Rig, claude *claudecode.Claude) {
	t.Helper()
	wire := claude.Wire()
	if polls := wire.Requests("tasks/get"); len(polls) != 0 {
		t.Errorf("it polled a task %d times", len(polls))
	}
	progress := 0
	for _, p := range wire {
		if p.Event == "out" && strings.Contains(p.Text, `"notifications/progress"`) {
			progress++
		}
	}
	if progress == 0 {
		t.Error("the client was sent no progress in 12 s")
	}
	if runs := r.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
	jobs := r.Jobs()
	if len(jobs) != 1 || jobs[0].State != "succeeded" {
		t.Errorf("the jobs are %+v", jobs)
	}
}
