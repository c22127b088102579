package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// bin holds the three programs, built once.
var bin string

func TestMain(m *testing.M) {
	os.Exit(builtAndRun(m))
}

func builtAndRun(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "jobd-bin"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin+"/", "jobd/cmd/mcp-stdio", "jobd/cmd/jobd", "jobd/cmd/jobd-shim")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the programs:", err)
		return 1
	}
	return m.Run()
}

// A place is a jobd of its own, with a project.
type place struct {
	t       *testing.T
	env     []string
	project string
}

func newPlace(t *testing.T, more ...string) *place {
	t.Helper()
	home, err := os.MkdirTemp("/tmp", "jobd") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, project: t.TempDir()}
	p.env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "JOBD_HOME=" + home,
		"CLAUDE_CODE_SESSION_ID=session-1", "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_PROJECT_DIR=" + p.project}, more...)
	t.Cleanup(func() {
		stop := exec.Command(filepath.Join(bin, "jobd"), "stop", "--kill-jobs")
		stop.Env = p.env
		if out, err := stop.CombinedOutput(); err != nil {
			t.Logf("stopping jobd: %v: %s", err, out)
		}
		os.RemoveAll(home)
	})
	return p
}

// A client speaks to one mcp-stdio.
type client struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	next   int
	tasks  bool
}

func (p *place) start(tasks bool) *client {
	p.t.Helper()
	c := &client{t: p.t, tasks: tasks, cmd: exec.Command(filepath.Join(bin, "mcp-stdio"))}
	c.cmd.Env, c.cmd.Dir, c.cmd.Stderr = p.env, p.project, &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// write sends a request and returns its id.
func (c *client) write(method string, params map[string]any) int {
	c.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	caps := map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}
	if c.tasks {
		caps["extensions"] = map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}
	}
	params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": caps}
	c.next++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
	return c.next
}

// read returns the result of a request; whatever comes before it is passed over.
func (c *client) read(id int) map[string]any {
	c.t.Helper()
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("reading the reply to %d: %v; stderr: %s", id, err, c.stderr.String())
		}
		if !utf8.Valid(line) {
			c.t.Fatalf("not UTF-8: %q", line)
		}
		var m struct {
			ID     any
			Result map[string]any
			Error  any
		}
		if err := json.Unmarshal(line, &m); err != nil {
			c.t.Fatalf("not JSON: %q: %v", line, err)
		}
		if m.ID == float64(id) {
			if m.Error != nil {
				c.t.Fatalf("error: %v", m.Error)
			}
			return m.Result
		}
	}
}

func (c *client) request(method string, params map[string]any) map[string]any {
	c.t.Helper()
	return c.read(c.write(method, params))
}

func (c *client) call(tool string, arguments map[string]any) map[string]any {
	c.t.Helper()
	return c.request("tools/call", map[string]any{"name": tool, "arguments": arguments})
}

// result polls a task until it has ended.
func (c *client) result(id string) map[string]any {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got := c.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" {
			r, _ := got["result"].(map[string]any)
			return r
		}
	}
	c.t.Fatalf("the job %s does not end", id)
	return nil
}

// gone waits for the process's end and returns how long it took.
func (c *client) gone(since time.Time) time.Duration {
	c.t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		c.t.Fatal("the process does not end")
	}
	return time.Since(since)
}

func said(result map[string]any) string {
	var b strings.Builder
	content, _ := result["content"].([]any)
	for _, block := range content {
		fmt.Fprintln(&b, block.(map[string]any)["text"])
	}
	return b.String()
}

func TestAJobOutlivesTheServerThatStartedIt(t *testing.T) {
	p := newPlace(t)
	a := p.start(true)
	task := a.call("run_job", map[string]any{"command": "until [ -e go ]; do sleep 0.05; done; echo ran >> ran; echo finished"})
	id, _ := task["taskId"].(string)
	if task["resultType"] != "task" || id == "" {
		t.Fatalf("got %v", task)
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b := p.start(true)
	if got := b.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" {
		t.Fatalf("the next server says %v", got)
	}
	if err := os.WriteFile(filepath.Join(p.project, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := said(b.result(id)); !strings.Contains(got, "succeeded") || !strings.Contains(got, "finished") {
		t.Errorf("the result is %q", got)
	}
	if ran, _ := os.ReadFile(filepath.Join(p.project, "ran")); string(ran) != "ran\n" {
		t.Errorf("it ran %q", ran)
	}
}

func TestAJobRunsInTheCallersSurroundings(t *testing.T) {
	p := newPlace(t, "MARK=of the caller", "AI_AGENT=x", "CLAUDE_CODE_MESSAGING_TOKEN=secret")
	old := syscall.Umask(0o027)
	c := p.start(false)
	syscall.Umask(old)
	limits, err := exec.Command("sh", "-c", "ulimit -Sn").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := said(c.call("run_job", map[string]any{"command": `pwd; umask; ulimit -Sn; echo "[$MARK] [$GIVEN] [$AI_AGENT$CLAUDE_CODE_MESSAGING_TOKEN$CLAUDE_CODE_SESSION_ID]"; command -v jobd`,
		"env": map[string]any{"GIVEN": "by the call"}}))
	for _, part := range []string{p.project, "0027", strings.TrimSpace(string(limits)), "[of the caller] [by the call] []", filepath.Join(bin, "jobd")} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %q", part, got)
		}
	}
}

func TestTheEndOfInputEndsTheServerAndNoJob(t *testing.T) {
	p := newPlace(t)
	c := p.start(false)
	c.request("server/discover", nil)
	c.write("tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{"command": "until [ -e go ]; do sleep 0.05; done; echo finished"}})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got := said(c.call("list_jobs", nil)); strings.Contains(got, " running,") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the job does not run: %s", got)
		}
	}
	last := c.write("tools/list", nil)
	start := time.Now()
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.read(last); got["tools"] == nil {
		t.Errorf("the last request was answered by %v", got)
	}
	rest, err := io.ReadAll(c.out)
	if err != nil || len(rest) != 0 {
		t.Errorf("after it came %q, %v", rest, err)
	}
	if took := c.gone(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if c.stderr.Len() > 0 {
		t.Errorf("stderr: %s", c.stderr.String())
	}
	if err := os.WriteFile(filepath.Join(p.project, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Nobody was told of the result, so the same call gives it.
	got := said(p.start(false).call("run_job", map[string]any{"command": "until [ -e go ]; do sleep 0.05; done; echo finished"}))
	if !strings.Contains(got, "finished") || !strings.Contains(got, "no new job was started") {
		t.Errorf("the same call gives %q", got)
	}
}

func TestSignalsEndTheServerAtOnce(t *testing.T) {
	p := newPlace(t)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		c := p.start(false)
		c.request("server/discover", nil)
		c.write("tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{"command": "sleep 60"}})
		c.call("list_jobs", nil)
		start := time.Now()
		if err := c.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if took := c.gone(start); took > 500*time.Millisecond {
			t.Errorf("%v took %v", s, took)
		}
	}
}

func TestAClosedOutputEndsTheServer(t *testing.T) {
	p := newPlace(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, cmd: exec.Command(filepath.Join(bin, "mcp-stdio"))}
	c.cmd.Env, c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = p.env, p.project, w, &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	c.write("server/discover", nil)
	c.gone(time.Now())
	if code := c.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(c.stderr.String(), "broken pipe") {
		t.Errorf("it ended with %d: %s", code, c.stderr.String())
	}
}

func TestEveryByteThatAJobPrintsIsSafe(t *testing.T) {
	p := newPlace(t)
	every := make([]byte, 0, 256*100)
	for range 100 {
		for b := range 256 {
			every = append(every, byte(b))
		}
	}
	if err := os.WriteFile(filepath.Join(p.project, "bytes"), every, 0o600); err != nil {
		t.Fatal(err)
	}
	c := p.start(false)
	if got := said(c.call("run_job", map[string]any{"argv": []string{"cat", "bytes"}})); !strings.Contains(got, "succeeded") {
		t.Errorf("the result is %q", got)
	}
	if got := said(c.call("list_jobs", nil)); !strings.Contains(got, "cat bytes") {
		t.Errorf("afterwards: %q", got)
	}
}

func TestWithoutAPlaceTheServerSaysWhy(t *testing.T) {
	p := newPlace(t)
	p.env = []string{"PATH=" + os.Getenv("PATH"), "JOBD_HOME=relative"}
	c := p.start(true)
	if got := c.request("server/discover", nil); got["capabilities"] == nil {
		t.Errorf("discover says %v", got)
	}
	got := c.call("run_job", map[string]any{"command": "true"})
	if got["isError"] != true || !strings.Contains(said(got), "JOBD_HOME") {
		t.Errorf("got %v", got)
	}
	if got := c.request("tools/list", nil); len(got["tools"].([]any)) < 5 {
		t.Errorf("listed %v", got)
	}
}
