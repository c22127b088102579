package claudecode

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// A Pane is an interactive Claude Code in a tmux pane, where it is the leader
// of its session.
type Pane struct {
	t      testing.TB
	socket string
	pid    int
}

// Start runs "claude ARGS" in a new pane and waits until it takes input.
func (c *Claude) Start(args ...string) *Pane {
	c.t.Helper()
	c.panes++
	p := &Pane{t: c.t, socket: fmt.Sprintf("%s/tmux%d", c.rig.Dir, c.panes)}
	command := []string{"-f", "/dev/null", "new-session", "-d", "-s", "cc", "-x", "200", "-y", "50", "-c", c.rig.Project, "--", "env", "-i"}
	command = append(command, c.environ()...)
	command = append(append(command, c.exe), c.arguments(args)...)
	command = append(command, ";", "set-option", "-g", "remain-on-exit", "on")
	p.tmux(command...)
	c.t.Cleanup(p.close)
	pid, err := strconv.Atoi(strings.TrimSpace(p.tmux("display-message", "-p", "-t", "cc", "#{pane_pid}")))
	if err != nil {
		c.t.Fatalf("the pane has no process: %v", err)
	}
	p.pid = pid
	p.Until("manual mode on")
	return p
}

func (p *Pane) close() {
	if p.t.Failed() {
		p.t.Logf("the screen at the end:\n%s", p.Screen())
	}
	_ = exec.CommandContext(context.Background(), "tmux", "-S", p.socket, "kill-server").Run()
}

func (p *Pane) tmux(args ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %s: %v: %s", args[0], err, out)
	}
	return string(out)
}

// PID is the process id of Claude Code.
func (p *Pane) PID() int { return p.pid }

// Screen is what it shows, "" once the pane is gone.
func (p *Pane) Screen() string {
	out, err := exec.CommandContext(context.Background(), "tmux", "-S", p.socket, "capture-pane", "-p", "-t", "cc").Output()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(out), "\n")
}

// Shows reports whether the screen shows a text.
func (p *Pane) Shows(text string) bool { return strings.Contains(p.Screen(), text) }

// Until waits until the screen shows a text.
func (p *Pane) Until(text string) {
	p.t.Helper()
	rig.Until(p.t, time.Minute, fmt.Sprintf("the screen shows %q", text), func() bool { return p.Shows(text) })
}

// Key presses keys, by their tmux names. The pause is Claude Code's: it reads
// Escape and a key right after it as one, and text and Enter as a paste.
func (p *Pane) Key(keys ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys", "-t", "cc"}, keys...)...)
	time.Sleep(500 * time.Millisecond)
}

// Text types a text without sending it.
func (p *Pane) Text(text string) {
	p.t.Helper()
	p.Key("-l", "--", text)
}

// Type types a text and sends it. An Enter that comes while Claude Code is
// busy taking the text is a line break to it, so it is pressed until the text
// has left the input line.
func (p *Pane) Type(text string) {
	p.t.Helper()
	p.Text(text)
	rig.Until(p.t, time.Minute, fmt.Sprintf("%q is typed", text), func() bool { return p.inputHolds(text) })
	rig.Until(p.t, time.Minute, fmt.Sprintf("%q is sent", text), func() bool {
		p.Key("Enter")
		return !rig.Alive(p.pid) || !p.inputHolds(text)
	})
}

// inputHolds reports whether the input line, which is the last one with a
// prompt, holds the text.
func (p *Pane) inputHolds(text string) bool {
	lines := strings.Split(p.Screen(), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if input, ok := strings.CutPrefix(lines[i], "❯"); ok {
			return strings.Contains(input, text[:min(len(text), 30)])
		}
	}
	return false
}

// Exit leaves by /exit, choosing "Exit and stop tasks" where it asks, and
// waits until Claude Code has ended.
func (p *Pane) Exit() {
	p.t.Helper()
	p.Type("/exit")
	asked := false
	rig.Until(p.t, time.Minute, "Claude Code has ended after /exit", func() bool {
		if !asked && p.Shows("Background work is running") {
			asked = true
			p.Key("1")
		}
		return !rig.Alive(p.pid)
	})
}

// Kill ends Claude Code by KILL.
func (p *Pane) Kill() {
	p.t.Helper()
	rig.Kill(p.t, p.pid)
}
