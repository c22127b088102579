package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// A Front is a running mcp-stdio, spoken to by raw lines in the way of Claude
// Code: protocol 2026-07-28, everything in each request's _meta.
type Front struct {
	t testing.TB
	// Tasks declares the Tasks extension in every request.
	Tasks bool

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *syncBuffer
	ended  chan struct{}
	err    error

	mu      sync.Mutex
	next    int
	waiting map[string]chan Message
	lines   []string
}

// A Message is one line from mcp-stdio.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *WireError      `json:"error"`
	// Line is the whole line.
	Line string `json:"-"`
}

// A WireError is the error of a Message.
type WireError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Front starts mcp-stdio for one session, as an interactive Claude Code would.
// More environment goes on top.
func (r *Rig) Front(session string, env ...string) *Front {
	r.t.Helper()
	cmd := exec.Command(r.Bin + "/mcp-stdio") //nolint:noctx // its life ends with its input
	cmd.Dir = r.Project
	cmd.Env = r.Env(append([]string{
		"CLAUDE_PROJECT_DIR=" + r.Project,
		"CLAUDE_CODE_SESSION_ID=" + session,
		"CLAUDE_CODE_ENTRYPOINT=cli",
		"CLAUDECODE=1",
	}, env...)...)
	return StartFront(r.t, cmd)
}

// StartFront runs a prepared mcp-stdio.
func StartFront(t testing.TB, cmd *exec.Cmd) *Front {
	t.Helper()
	f := &Front{t: t, Tasks: true, cmd: cmd, stderr: new(syncBuffer), ended: make(chan struct{}), waiting: map[string]chan Message{}}
	var err error
	if f.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = f.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go f.read(stdout)
	t.Cleanup(func() {
		_ = f.stdin.Close()
		select {
		case <-f.ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			t.Errorf("mcp-stdio outlived its input by 10 s")
		}
		if t.Failed() {
			t.Logf("mcp-stdio said on stderr: %s", f.stderr)
		}
	})
	return f
}

func (f *Front) read(stdout io.Reader) {
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			f.take(bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil {
			break
		}
	}
	f.err = f.cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, answer := range f.waiting {
		delete(f.waiting, id)
		close(answer)
	}
	close(f.ended)
}

func (f *Front) take(line []byte) {
	m := Message{Line: string(line)}
	err := json.Unmarshal(line, &m)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, string(line))
	if err != nil {
		f.t.Errorf("mcp-stdio wrote a line that is no message: %.500q", line)
		return
	}
	if ch, ok := f.waiting[string(m.ID)]; ok && m.Method == "" {
		delete(f.waiting, string(m.ID))
		ch <- m
	}
}

// PID is the process id.
func (f *Front) PID() int { return f.cmd.Process.Pid }

// Send writes one line as it is.
func (f *Front) Send(line string) {
	f.t.Helper()
	if _, err := io.WriteString(f.stdin, line+"\n"); err != nil {
		f.t.Fatalf("writing to mcp-stdio: %v", err)
	}
}

// Lines are all lines that it wrote so far.
func (f *Front) Lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.lines...)
}

// Start sends a request and returns where its answer will arrive. The channel
// is closed without one if mcp-stdio ends.
func (f *Front) Start(method string, params map[string]any) <-chan Message {
	f.t.Helper()
	f.mu.Lock()
	f.next++
	id := f.next
	answer := make(chan Message, 1)
	if f.Running() {
		f.waiting[fmt.Sprint(id)] = answer
	} else {
		close(answer)
	}
	f.mu.Unlock()

	capabilities := map[string]any{"roots": map[string]any{}, "elicitation": map[string]any{"form": map[string]any{}, "url": map[string]any{}}}
	if f.Tasks {
		capabilities["extensions"] = map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}
	}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "rig", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": capabilities,
		"progressToken":        id,
		"claudecode/toolUseId": fmt.Sprintf("toolu_%d_%d", f.PID(), id),
	}
	all := map[string]any{"_meta": meta}
	for name, value := range params {
		if name == "_meta" {
			for k, v := range value.(map[string]any) {
				meta[k] = v
			}
			continue
		}
		all[name] = value
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": all})
	if err != nil {
		f.t.Fatal(err)
	}
	// If it cannot be written, mcp-stdio has ended, and the channel is closed.
	_, _ = f.stdin.Write(append(line, '\n'))
	return answer
}

// Call sends a request and waits a minute at most for its answer.
func (f *Front) Call(method string, params map[string]any) Message {
	f.t.Helper()
	select {
	case m, ok := <-f.Start(method, params):
		if !ok {
			<-f.ended
			f.t.Fatalf("mcp-stdio ended during %s: %v; stderr: %s", method, f.err, f.stderr)
		}
		return m
	case <-time.After(time.Minute):
		f.t.Fatalf("%s was not answered within a minute", method)
	}
	return Message{}
}

// A ToolResult is what a call of a tool gives: a task, or a result.
type ToolResult struct {
	ResultType string `json:"resultType"`

	TaskID         string `json:"taskId"`
	Status         string `json:"status"`
	StatusMessage  string `json:"statusMessage"`
	PollIntervalMS int64  `json:"pollIntervalMs"`

	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
	Meta    struct {
		Job struct {
			ID       string `json:"job_id"`
			State    string `json:"state"`
			ExitCode *int   `json:"exit_code"`
		} `json:"jobd/job"`
		Task struct {
			Note string `json:"modelImmediateResponse"`
		} `json:"com.anthropic/agent-task"`
	} `json:"_meta"`

	// Result is a completed task's.
	Result *ToolResult `json:"result"`
	// Error is a failed task's.
	Error *WireError `json:"error"`
}

// Text is all text of the content.
func (r ToolResult) Text() string {
	var b bytes.Buffer
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// Tool calls a tool. The answer must not be a protocol error.
func (f *Front) Tool(name string, arguments map[string]any) ToolResult {
	f.t.Helper()
	return f.Result(f.Call("tools/call", map[string]any{"name": name, "arguments": arguments}))
}

// Task asks for a task. The answer must not be an error.
func (f *Front) Task(id string) ToolResult {
	f.t.Helper()
	return f.Result(f.Call("tasks/get", map[string]any{"taskId": id}))
}

// Result reads a message that must be a tool's result or a task.
func (f *Front) Result(m Message) ToolResult {
	f.t.Helper()
	if m.Error != nil {
		f.t.Fatalf("the answer is an error: %s", m.Line)
	}
	var r ToolResult
	if err := json.Unmarshal(m.Result, &r); err != nil {
		f.t.Fatalf("the result is no tool result: %v in %s", err, m.Line)
	}
	return r
}

// Run starts a job as a task; answer_within is passed by its length, so the
// command must take longer than a second.
func (f *Front) Run(arguments map[string]any) string {
	f.t.Helper()
	r := f.Tool("run_job", arguments)
	if r.ResultType != "task" || r.TaskID == "" {
		f.t.Fatalf("run_job gave no task but %+v", r)
	}
	return r.TaskID
}

// UntilDone polls a task, as Claude Code does, until it has ended.
func (f *Front) UntilDone(within time.Duration, id string) ToolResult {
	f.t.Helper()
	var task ToolResult
	Until(f.t, within, "task "+id+" has ended", func() bool {
		task = f.Task(id)
		return task.Status != "working" && task.Status != "input_required"
	})
	return task
}

// Kill ends it by KILL.
func (f *Front) Kill() {
	f.t.Helper()
	if err := f.cmd.Process.Kill(); err != nil {
		f.t.Fatalf("kill -9 mcp-stdio: %v", err)
	}
	<-f.ended
}

// Close ends its input and waits until it has ended.
func (f *Front) Close() {
	f.t.Helper()
	_ = f.stdin.Close()
	select {
	case <-f.ended:
	case <-time.After(10 * time.Second):
		f.t.Fatal("mcp-stdio outlived its input by 10 s")
	}
}

// Running reports whether it has not ended.
func (f *Front) Running() bool {
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
