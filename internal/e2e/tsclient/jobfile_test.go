//go:build e2e

package tsclient

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jobd/internal/e2e/rig"
)

// project is an installation whose project has a job file that is trusted: the
// tools that the conformance suite calls.
func project(t *testing.T) *rig.Rig {
	t.Helper()
	r := rig.New(t)
	if err := os.CopyFS(r.Project, os.DirFS("../testdata/conformance-jobs")); err != nil {
		t.Fatal(err)
	}
	r.Jobd("trust")
	return r
}

func TestTheTypeScriptClientCallsToolsOfAJobFile(t *testing.T) {
	t.Parallel()
	r := project(t)
	accept := func(tool string, arguments, content map[string]any) call {
		return call{Tool: tool, Arguments: arguments, Answer: map[string]any{"action": "accept", "content": content}}
	}
	name := `"Ada"; $(touch executed) ` + "`x`\n-- 🚀"
	calls := []call{
		{Tool: "greet", Arguments: map[string]any{"name": name}},
		{Tool: "slow_compute", Arguments: map[string]any{"seconds": 1, "label": name}},
		{Tool: "failing_job"},
		{Tool: "protocol_error_job"},
		accept("confirm_delete", map[string]any{"filename": "a.txt"}, map[string]any{"confirm": true}),
		{Tool: "confirm_delete", Arguments: map[string]any{"filename": "b.txt"}, Answer: map[string]any{"action": "decline"}},
		accept("multi_input", nil, map[string]any{"name": "Ada", "confirm": true}),
		accept("test_tool_with_task", nil, map[string]any{"name": "Ada"}),
		{Tool: "slow_compute", Arguments: map[string]any{"seconds": 600}, Cancel: true},
	}
	wants := []struct {
		kind, outcome, text string
		isError             bool
		questions           int
	}{
		{kind: "immediate", outcome: "completed", text: "Hello, " + name + "!"},
		{kind: "task", outcome: "completed", text: name + ": computed for 1 seconds"},
		{kind: "task", outcome: "completed", text: "this job fails, as it is meant to", isError: true},
		{kind: "task", outcome: "failed"},
		{kind: "task", outcome: "completed", text: "deleted a.txt", questions: 1},
		{kind: "task", outcome: "completed", text: "declined", isError: true, questions: 1},
		{kind: "task", outcome: "completed", text: "both questions are answered", questions: 2},
		{kind: "task", outcome: "completed", text: "Hello, Ada, from the background", questions: 1},
		{kind: "task", outcome: "cancelled"},
	}
	all := make([]any, len(calls))
	for i, c := range calls {
		all[i] = c
	}
	for i, got := range drive(t, r, nil, all...) {
		want := wants[i]
		if got.Kind != want.kind || got.Outcome != want.outcome || got.IsError != want.isError || len(got.Questions) != want.questions || !strings.Contains(got.Text, want.text) {
			t.Errorf("call %d gave %+v, want %+v", i, got, want)
		}
		if want.outcome == "failed" && !strings.Contains(got.Error, "raises a protocol error") {
			t.Errorf("call %d failed with %q", i, got.Error)
		}
	}
	if _, err := os.Stat(filepath.Join(r.Project, "executed")); err == nil {
		t.Error("an argument was executed")
	}
}

func TestTheInspectorCallsToolsOfAJobFile(t *testing.T) {
	t.Parallel()
	r := project(t)
	out := run(t, r, "", filepath.Join(modules(t), ".bin/mcp-inspector"), "--cli", filepath.Join(r.Bin, "mcp-stdio"), "-e", "JOBD_HOME="+r.State, "--protocol-era", "modern",
		"--method", "tools/call", "--tool-name", "slow_compute", "--tool-arg", "seconds=1", "--tool-arg", "label=the sum")
	if out.Code != 0 || !strings.Contains(out.Stdout, "the sum: computed for 1 seconds") {
		t.Errorf("code %d, stdout:\n%s\nstderr:\n%s", out.Code, out.Stdout, out.Stderr)
	}
}

// mcpdo is the Inspector for scripts: one command connects, others call and
// answer.
func TestTheInspectorAnswersAQuestionOfAJobFile(t *testing.T) {
	t.Parallel()
	r := project(t)
	private := []string{"MCP_INSPECTOR_DAEMON_DIR=" + r.Dir + "/mcpdo", "MCP_INSPECTOR_DAEMON_TOKEN=" + rand.Text(), "MCP_INSPECTOR_SECRET_STORE=memory"}
	mcpdo := func(args ...string) string {
		t.Helper()
		out := runWith(t, r, private, "", filepath.Join(modules(t), ".bin/mcpdo"), args...)
		if out.Code != 0 {
			t.Fatalf("mcpdo %s: code %d, stdout:\n%s\nstderr:\n%s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
		}
		return out.Stdout
	}
	if err := os.Mkdir(r.Dir+"/mcpdo", 0o700); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(r.Bin, "mcp-stdio")
	mcpdo("connect", "--era", "modern", "--transport", "stdio", "--cwd", r.Project, "-e", "JOBD_HOME="+r.State, "--", server)
	defer mcpdo("daemon", "stop")

	var asked struct {
		Pending struct {
			ID      string `json:"elicitationId"`
			Message string `json:"message"`
			Origin  string `json:"origin"`
		} `json:"elicitationPending"`
	}
	said := mcpdo("--connection", server, "--format", "json", "tools/call", "confirm_delete", "filename:=a.txt")
	if err := json.Unmarshal([]byte(said), &asked); err != nil || asked.Pending.Message != "Delete a.txt?" || asked.Pending.Origin != "task-input-required" {
		t.Fatalf("the call gave %s (%v)", said, err)
	}
	said = mcpdo("--connection", server, "--format", "json", "elicitation/respond", asked.Pending.ID, "confirm:=true")
	if !strings.Contains(said, "deleted a.txt") {
		t.Errorf("the answer led to %s", said)
	}
}
