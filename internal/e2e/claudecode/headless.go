package claudecode

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// HeadlessTasks lets "claude -p" use MCP tasks: it sets the feature flag that
// Claude Code would fetch, as fetched just now. Call it before Claude Code runs.
func (c *Claude) HeadlessTasks() {
	c.t.Helper()
	path := filepath.Join(c.rig.Home, ".claude.json")
	data, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	var settings map[string]any
	if err := json.Unmarshal(data, &settings); err != nil {
		c.t.Fatal(err)
	}
	for _, name := range []string{"cachedGrowthBookFeatures", "cachedFeatureFlags"} {
		settings[name] = map[string]any{"tengu_glowing_lark": true}
		settings[name+"At"] = time.Now().UnixMilli()
	}
	c.write(path, settings)
	c.flags = true
	c.Env = append(c.Env, "CLAUDE_AUTO_BACKGROUND_TASKS=1")
}

// A Stream is a Claude Code without a screen whose input stays open.
type Stream struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   bytes.Buffer // read it after End
}

// Stream runs "claude -p" with stream-json both ways. It ends with the test.
func (c *Claude) Stream() *Stream {
	c.t.Helper()
	args := c.arguments([]string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"})
	s := &Stream{t: c.t, cmd: exec.Command(c.exe, args...)} //nolint:noctx // its life ends with its input
	s.cmd.Dir, s.cmd.Env = c.rig.Project, c.environ()
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			c.t.Logf("claude -p printed: %s", s.out.String())
		}
	})
	return s
}

// Say sends a prompt.
func (s *Stream) Say(prompt string) {
	s.t.Helper()
	line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": prompt}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.stdin.Write(append(line, '\n')); err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends Claude Code by KILL.
func (s *Stream) Kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatalf("kill -9 claude -p: %v", err)
	}
	_ = s.cmd.Wait() // by that signal
}

// End closes the input, and waits until Claude Code has ended. It returns what
// it printed.
func (s *Stream) End() string {
	s.t.Helper()
	_ = s.stdin.Close()
	timer := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("claude -p ended with %v: %s", err, s.out.String())
	}
	return s.out.String()
}
