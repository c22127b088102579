// Package claudecode drives a real Claude Code in a test, with no network and
// no account. A scripted [Model] behind an [API] on loopback is its model; a
// tmux pane is its screen; [Wire] is what passed between it and its MCP
// server, as the command tap wrote it down.
//
// The texts and times it waits for are those of Claude Code 2.1.332.
package claudecode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// Version is the version that the tests are written for.
const Version = "2.1.332"

// A Claude is Claude Code, set up in a home folder of its own: past its first
// questions, with a key, and with the project trusted.
type Claude struct {
	t   testing.TB
	rig *rig.Rig
	exe string
	// API is its model.
	API *API
	// Env is more of its environment, as NAME=VALUE.
	Env []string
	// Log is what tap writes.
	Log string
	// config is the file for --mcp-config, "" = none.
	config string
	panes  int
	// flags: it goes by its feature flags, which it otherwise does not.
	flags bool
}

// Executable finds Claude Code: by the variable CLAUDE, in .tools/ of the
// checkout, or on PATH. The test fails if there is none.
func Executable(t testing.TB) string {
	t.Helper()
	if exe := os.Getenv("CLAUDE"); exe != "" {
		return exe
	}
	exe := filepath.Join(rig.Root(t), ".tools/npm/node_modules/.bin/claude")
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	exe, err := exec.LookPath("claude")
	if err != nil {
		t.Fatalf("these tests need Claude Code %s: npm install @anthropic-ai/claude-code@%s, and its path in the variable CLAUDE", Version, Version)
	}
	return exe
}

// New sets Claude Code up in the rig's home folder. It asks no permission for
// the tools of the server "jobd".
func New(t testing.TB, r *rig.Rig) *Claude {
	t.Helper()
	c := &Claude{t: t, rig: r, exe: Executable(t), API: NewAPI(t, Obedient), Log: r.Dir + "/wire.jsonl"}
	c.write(r.Home+"/.claude.json", map[string]any{
		"hasCompletedOnboarding": true, "theme": "dark", "numStartups": 5,
		"customApiKeyResponses": map[string]any{"approved": []string{"dummy-key"}, "rejected": []string{}},
		"projects":              map[string]any{r.Project: map[string]any{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
	})
	c.settings(map[string]any{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the model was sent:\n%s", c.API)
			t.Logf("the wire:\n%s", c.Wire())
		}
	})
	return c
}

// settings writes the person's settings.json.
func (c *Claude) settings(hooks map[string]any) {
	c.t.Helper()
	c.write(c.rig.Home+"/.claude/settings.json", map[string]any{
		"permissions": map[string]any{"defaultMode": "default", "disableAutoMode": "disable", "allow": []string{"mcp__jobd"}},
		"hooks":       hooks,
	})
}

// Hook has every session that starts run a shell command.
func (c *Claude) Hook(command string) {
	c.t.Helper()
	c.settings(map[string]any{"SessionStart": []any{map[string]any{
		"hooks": []any{map[string]any{"type": "command", "command": command, "timeout": 5}},
	}}})
}

func (c *Claude) write(path string, v any) {
	c.t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Serve configures the rig's mcp-stdio, behind tap, as the server "jobd", and
// no other server.
func (c *Claude) Serve() {
	c.t.Helper()
	c.ServeCommand(c.rig.Bin+"/tap", c.Log, c.rig.Bin+"/mcp-stdio")
}

// ServeCommand configures a command as the server "jobd", and no other server.
func (c *Claude) ServeCommand(command string, args ...string) {
	c.t.Helper()
	c.config = c.rig.Dir + "/mcp.json"
	c.write(c.config, map[string]any{"mcpServers": map[string]any{"jobd": map[string]any{
		"type": "stdio", "command": command, "args": args,
	}}})
}

func (c *Claude) environ() []string {
	env := []string{
		"TERM=xterm-256color",
		"ANTHROPIC_BASE_URL=" + c.API.URL(),
		"ANTHROPIC_API_KEY=dummy-key",
		"DISABLE_AUTOUPDATER=1",
		// Nothing listens there: no host but loopback can be reached.
		"HTTPS_PROXY=http://127.0.0.1:9",
		"HTTP_PROXY=http://127.0.0.1:9",
		"NO_PROXY=127.0.0.1,localhost",
	}
	if !c.flags {
		env = append(env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	}
	return c.rig.Env(append(env, c.Env...)...)
}

func (c *Claude) arguments(args []string) []string {
	if c.config == "" {
		return args
	}
	return append([]string{"--mcp-config", c.config, "--strict-mcp-config"}, args...)
}

// Run runs a claude command that needs no screen, such as "mcp list".
func (c *Claude) Run(args ...string) rig.Outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.exe, args...)
	cmd.Dir, cmd.Env = c.rig.Project, c.environ()
	return rig.Run(c.t, cmd)
}

// Print runs "claude -p" with a prompt and returns what it printed.
func (c *Claude) Print(prompt string, args ...string) rig.Outcome {
	c.t.Helper()
	return c.Run(c.arguments(append([]string{"-p", prompt}, args...))...)
}

// Session is the id of the newest session in the project.
func (c *Claude) Session() string {
	c.t.Helper()
	files, err := filepath.Glob(c.rig.Home + "/.claude/projects/*/*.jsonl")
	if err != nil || len(files) == 0 {
		c.t.Fatalf("there is no session (%v)", err)
	}
	modified := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	sort.Slice(files, func(i, j int) bool { return modified(files[i]).After(modified(files[j])) })
	return strings.TrimSuffix(filepath.Base(files[0]), ".jsonl")
}

// A Wire is what tap wrote down.
type Wire []Passed

// Passed is one event on the wire.
type Passed struct {
	Time  time.Time `json:"time"`
	PID   int       `json:"pid"`   // of mcp-stdio
	Event string    `json:"event"` // start, in, out, eof, signal, exit
	Text  string    `json:"text"`
}

// Wire reads what passed so far.
func (c *Claude) Wire() Wire {
	c.t.Helper()
	data, err := os.ReadFile(c.Log)
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	var w Wire
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var p Passed
		if err := json.Unmarshal(line, &p); err != nil {
			c.t.Fatalf("reading %s: %v", c.Log, err)
		}
		w = append(w, p)
	}
	return w
}

// Requests are the messages of this method that Claude Code sent.
func (w Wire) Requests(method string) []json.RawMessage {
	var found []json.RawMessage
	for _, p := range w {
		var m struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if p.Event == "in" && json.Unmarshal([]byte(p.Text), &m) == nil && m.Method == method {
			found = append(found, m.Params)
		}
	}
	return found
}

// Server is the process id of the mcp-stdio that was started last, 0 if none
// was.
func (w Wire) Server() int {
	pid := 0
	for _, p := range w {
		if p.Event == "start" {
			pid = p.PID
		}
	}
	return pid
}

// String lists the events, shortened, without the polling and what every
// request repeats.
func (w Wire) String() string {
	var b strings.Builder
	for _, p := range w {
		if strings.Contains(p.Text, `"tasks/get"`) || strings.Contains(p.Text, `"status":"working"`) && !strings.Contains(p.Text, `"resultType":"task"`) {
			continue
		}
		fmt.Fprintf(&b, "%s %d %-6s %.1000s\n", p.Time.Format("15:04:05.000"), p.PID, p.Event, withoutMeta(p.Text))
	}
	return b.String()
}

// withoutMeta drops the _meta of a request's params.
func withoutMeta(line string) string {
	var m map[string]any
	if json.Unmarshal([]byte(line), &m) != nil {
		return line
	}
	params, ok := m["params"].(map[string]any)
	if !ok {
		return line
	}
	delete(params, "_meta")
	short, err := json.Marshal(m)
	if err != nil {
		return line
	}
	return string(short)
}
