package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// A front is a front end that the doctor speaks to as Claude Code does: one
// JSON-RPC message a line, revision 2026-07-28 of MCP with the Tasks extension.
type front struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte
	said  *tail
	next  int
	ended chan struct{}
}

// startFront starts the program mcp-stdio.
func startFront(program, dir string, env []string) (*front, error) {
	cmd := exec.Command(program) //nolint:noctx // its life ends with its input, or by kill
	cmd.Dir, cmd.Env = dir, env
	f := &front{cmd: cmd, lines: make(chan []byte, 16), said: &tail{most: 2 << 10}, ended: make(chan struct{})}
	cmd.Stderr = f.said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the front end: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the front end: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the front end: %w", err)
	}
	f.in = in
	go f.read(out)
	return f, nil
}

// read hands on what the front end writes, until it has ended.
func (f *front) read(out io.Reader) {
	defer close(f.ended)
	defer close(f.lines)
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		select {
		case f.lines <- line:
		default: // nobody has asked for so much
		}
	}
	_ = f.cmd.Wait() // how it ends is for whoever ended it
}

// call sends a request and decodes its result into into, which may be nil.
func (f *front) call(ctx context.Context, method string, params map[string]any, into any) error {
	f.next++
	if params == nil {
		params = make(map[string]any)
	}
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "jobd-doctor", "version": buildVersion()},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}},
		},
		"claudecode/toolUseId": fmt.Sprintf("doctor-%d-%d", f.cmd.Process.Pid, f.next),
	}
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": f.next, "method": method, "params": params})
	if err != nil {
		return fmt.Errorf("writing the request %s: %w", method, err)
	}
	if _, err := f.in.Write(append(request, '\n')); err != nil {
		return f.gone(method)
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was not answered: %w", method, ctx.Err())
		case line, ok := <-f.lines:
			if !ok {
				return f.gone(method)
			}
			var reply struct {
				ID     json.RawMessage `json:"id"`
				Result json.RawMessage `json:"result"`
				Error  *struct {
					Code    int    `json:"code"`
					Message string `json:"message"`
				} `json:"error"`
			}
			if err := json.Unmarshal(line, &reply); err != nil {
				return fmt.Errorf("the front end wrote a line that is no message: %.200q", line)
			}
			if string(reply.ID) != fmt.Sprint(f.next) {
				continue // a notification
			}
			if reply.Error != nil {
				return fmt.Errorf("%s was answered with the error %d: %s", method, reply.Error.Code, reply.Error.Message)
			}
			if into == nil {
				return nil
			}
			if err := json.Unmarshal(reply.Result, into); err != nil {
				return fmt.Errorf("the answer to %s cannot be read: %w", method, err)
			}
			return nil
		}
	}
}

func (f *front) gone(method string) error {
	<-f.ended
	if said := strings.TrimSpace(f.said.String()); said != "" {
		return fmt.Errorf("the front end ended before it answered %s: %s", method, said)
	}
	return fmt.Errorf("the front end ended before it answered %s", method)
}

// kill ends the front end by SIGKILL.
func (f *front) kill() {
	_ = f.cmd.Process.Kill()
	<-f.ended
}

// close ends the front end's input, and kills it if it stays.
func (f *front) close() {
	_ = f.in.Close()
	select {
	case <-f.ended:
	case <-time.After(2 * time.Second):
		f.kill()
	}
}

// A tail keeps the last bytes that are written to it. It is read when the
// writer has ended.
type tail struct {
	b    []byte
	most int
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(len(t.b)-t.most, 0):]
	return len(p), nil
}

// String returns what was kept.
func (t *tail) String() string { return string(t.b) }
