//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// Scripts become tools by a job file; what they ask is asked in Claude Code.
func TestJobFile_IsUsedInClaudeCode(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if err := os.CopyFS(r.Project, os.DirFS("testdata/conformance-jobs")); err != nil {
		t.Fatal(err)
	}
	r.Jobd("trust")
	p := &person{t: t, rig: r, claude: claudecode.New(t, r)}
	p.claude.Serve()
	p.pane = p.claude.Start()
	calls := func(tool string, arguments map[string]string) {
		t.Helper()
		text, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		p.pane.Type("CALL mcp__jobd__" + tool + " " + string(text) + " please")
	}

	// The job asks.
	name := `$(touch executed) "it's"; a.txt`
	calls("confirm_delete", map[string]string{"filename": name})
	job := named(t, r, "confirm_delete")
	p.isAsked("requests your input", "Delete $(touch executed)", "❯ * Delete it?")
	p.pane.Key("Space")
	p.accepts()
	p.modelIsTold("<status>completed</status>", "confirm_delete", "succeeded", "deleted "+name)
	if u := p.updates(job.ID); len(u) != 1 || u[0]["q1"].Action != "accept" || u[0]["q1"].Content["confirm"] != true {
		t.Errorf("Claude Code sent %v", u)
	}
	if _, err := os.Stat(r.Project + "/executed"); err == nil {
		t.Error("an argument was executed")
	}

	// The person is asked before there is a job.
	calls("test_tool_with_task", map[string]string{})
	p.pane.Until("needs this before it starts")
	p.pane.Until("❯ * Your name")
	for _, job := range r.Jobs() {
		if job.Name == "test_tool_with_task" {
			t.Errorf("the job is there before the form was answered: %+v", job)
		}
	}
	p.pane.Text("Ada")
	p.accepts()
	p.modelIsTold("<status>completed</status>", "Hello, Ada, from the background")

	// A tool that comes while Claude Code runs.
	listed := len(p.claude.Wire().Requests("tools/list"))
	if err := os.MkdirAll(r.State+"/jobs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/jobs/mine.yaml", []byte("jobs:\n  late:\n    description: Came late.\n    argv: [echo, better than never]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, 30*time.Second, "Claude Code lists the tools again", func() bool {
		return len(p.claude.Wire().Requests("tools/list")) > listed
	})
	calls("late", map[string]string{})
	told := p.claude.API.Told(t, time.Minute, claudecode.ToolResult, "better than never")
	if !strings.Contains(told.Text, "(late) succeeded") {
		t.Errorf("the model was told %q", told.Text)
	}
	p.noErrors()
}
