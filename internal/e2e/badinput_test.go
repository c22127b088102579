//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// refused gives the text by which a call was refused, as a result that is an
// error or as a protocol error.
func refused(t *testing.T, m rig.Message) string {
	t.Helper()
	if m.Error != nil {
		return m.Error.Message
	}
	var r rig.ToolResult
	decode(t, m.Result, &r)
	if !r.IsError {
		t.Errorf("the call was not refused: %s", m.Line)
	}
	return r.Text()
}

// Whatever is wrong with a call, the answer says what, with the value that is
// wrong, and what to send instead; the same mcp-stdio answers the next call.
func TestWrongCalls_AreRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	file := r.Write("file", "", 0o600)
	front := r.Front("session")
	front.Tasks = false
	running := front.Tool("run_job", map[string]any{"command": "true"}).Meta.Job.ID

	tool := func(name string, arguments map[string]any) rig.Message {
		t.Helper()
		return front.Call("tools/call", map[string]any{"name": name, "arguments": arguments})
	}
	type object = map[string]any
	for _, c := range []struct {
		name string
		got  rig.Message
		says []string
	}{
		{"unknown tool", tool("run_jab", object{}), []string{"run_jab"}},
		{"nothing to run", tool("run_job", object{}), []string{"command", "argv"}},
		{"two things to run", tool("run_job", object{"command": "true", "argv": []string{"true"}}), []string{"command", "argv"}},
		{"an unknown argument", tool("run_job", object{"command": "true", "comand": "x"}), []string{"comand"}},
		{"a number for a text", tool("run_job", object{"command": 5}), []string{"command", "string"}},
		{"an empty command", tool("run_job", object{"command": ""}), []string{"command"}},
		{"an empty argv", tool("run_job", object{"argv": []string{}}), []string{"argv"}},
		{"a NUL byte", tool("run_job", object{"command": "a\x00b"}), []string{"NUL"}},
		{"a negative timeout", tool("run_job", object{"command": "true", "timeout_seconds": -5}), []string{"timeout_seconds", "-5"}},
		{"a bad name in env", tool("run_job", object{"command": "true", "env": object{"A=B": "x"}}), []string{"A=B"}},
		{"no directory", tool("run_job", object{"command": "true", "cwd": "/no/such/dir"}), []string{"/no/such/dir"}},
		{"a file for a directory", tool("run_job", object{"command": "true", "cwd": file}), []string{file, "directory"}},
		{"no such program", tool("run_job", object{"argv": []string{"no-such-program"}}), []string{"no-such-program", "not found"}},
		{"no such command", tool("run_job", object{"command": "no-such-command"}), []string{"no-such-command", "127"}},
		{"unknown job", tool("get_job", object{"job_id": "feedfacefeedfacefeedfacefeedface"}), []string{"feedface", "list_jobs"}},
		{"no job id", tool("get_job", object{}), []string{"job_id"}},
		{"an id that is none", tool("cancel_job", object{"job_id": "../../etc"}), []string{"../../etc"}},
		{"a negative offset", tool("read_job_output", object{"job_id": running, "offset": -1}), []string{"offset"}},
		{"unknown state", tool("list_jobs", object{"state": "sleeping"}), []string{"sleeping", "running"}},
		{"unknown method", front.Call("jobs/dance", nil), []string{"jobs/dance"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := refused(t, c.got)
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("the answer does not say %q: %s", part, text)
				}
			}
		})
	}

	front.Tasks = true
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		m := front.Call(method, object{"taskId": "feedfacefeedfacefeedfacefeedface", "inputResponses": object{}})
		if m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s of an unknown task was answered: %s", method, m.Line)
		}
	}

	for _, line := range []string{
		`{`, `{}`, `[]`, `[1,2]`, `"text"`, `null`, ` `, "\ufeff", `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `{"jsonrpc":"2.0","id":true,"method":"ping"}`, `{"jsonrpc":"2.0","id":"x","method":5}`,
		`{"jsonrpc":"2.0","id":"y","method":"tools/call"}`, `{"jsonrpc":"2.0","id":"z","method":"tasks/get"}`,
		`{"jsonrpc":"2.0","id":99999,"result":{}}`, "\xff\xfe{", strings.Repeat("[", 5000), strings.Repeat("x", 1<<20),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}`,
	} {
		front.Send(line)
	}
	if jobs := front.Tool("list_jobs", object{}); jobs.IsError {
		t.Errorf("after all of it list_jobs fails: %s", jobs.Text())
	}
	if !front.Running() {
		t.Error("mcp-stdio has ended")
	}
}

// A state directory that cannot be used is named at once in every answer, and
// mcp-stdio serves on.
func TestUnusableStateDirectory_IsNamed(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	file := r.Write("file", "", 0o600)
	linked := filepath.Join(r.Dir, "linked")
	if err := os.Symlink(r.Project, linked); err != nil {
		t.Fatal(err)
	}
	opened := filepath.Join(r.Dir, "opened")
	if err := os.Mkdir(opened, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(opened, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]string{
		"below a file": file + "/state",
		"not writable": "/proc/jobd",
		"a link":       linked,
		"open to all":  opened,
		"not absolute": "state",
		"the root":     "/",
	} {
		t.Run(name, func(t *testing.T) {
			front := r.Front("session", "JOBD_HOME="+state)
			discover := front.Call("server/discover", nil)
			if discover.Error != nil {
				t.Errorf("discover was answered: %s", discover.Line)
			}
			began := time.Now()
			text := refused(t, front.Call("tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{"command": "true"}}))
			if !strings.Contains(text, state) {
				t.Errorf("the answer does not name %s: %s", state, text)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the answer took %v", took)
			}
			if m := front.Call("tools/list", nil); m.Error != nil {
				t.Errorf("tools/list was answered: %s", m.Line)
			}
			if !front.Running() {
				t.Error("mcp-stdio has ended")
			}
		})
	}
	if jobs := r.Lines("runs"); len(jobs) != 0 {
		t.Errorf("jobs ran: %v", jobs)
	}
}

// A state directory with a path too long for a socket works like any other.
func TestLongStateDirectory_Works(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for _, length := range []int{90, 107, 108, 150, 250} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			r := *r
			r.State = filepath.Join(r.Dir, strings.Repeat("d", length))
			t.Cleanup(func() { r.Jobd("stop") })
			front := r.Front("session")
			result := front.Tool("run_job", map[string]any{"command": "echo fine"})
			if result.IsError || !strings.Contains(result.Text(), "fine") {
				t.Errorf("the job gave %+v", result)
			}
			if jobs := r.Jobs(); len(jobs) != 1 {
				t.Errorf("the shell sees %d jobs", len(jobs))
			}
		})
	}
}
