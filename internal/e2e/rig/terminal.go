package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Terminal is a tmux pane of a fixed size in which a person works: with a
// shell, or with one command.
type Terminal struct {
	t      testing.TB
	socket string
	log    string
	pid    int
}

// Terminal runs a command in a new terminal of that size, in the project, with
// the binaries first on PATH. Without a command it is a bash whose prompt is
// "$ ". More environment goes on top.
func (r *Rig) Terminal(columns, rows int, env []string, command ...string) *Terminal {
	r.t.Helper()
	if len(command) == 0 {
		command = []string{"bash", "--norc", "--noprofile"}
	}
	dir, err := os.MkdirTemp(r.Dir, "tty")
	if err != nil {
		r.t.Fatal(err)
	}
	term := &Terminal{t: r.t, socket: dir + "/tmux", log: dir + "/written"}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-s", "tty", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), "-c", r.Project, "--", "env", "-i"}
	args = append(args, r.Env("PATH="+r.Bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "TERM=xterm-256color", "PS1=$ ")...)
	args = append(append(args, env...), command...)
	args = append(args, ";", "set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "status", "off", ";",
		"pipe-pane", "-o", "-t", "tty", "cat >>"+term.log)
	term.tmux(args...)
	r.t.Cleanup(term.close)
	if term.pid, err = strconv.Atoi(strings.TrimSpace(term.tmux("display-message", "-p", "-t", "tty", "#{pane_pid}"))); err != nil {
		r.t.Fatalf("the terminal has no process: %v", err)
	}
	return term
}

func (t *Terminal) close() {
	if t.t.Failed() {
		t.t.Logf("the screen at the end:\n%s", t.Screen())
	}
	_ = exec.CommandContext(context.Background(), "tmux", "-S", t.socket, "kill-server").Run()
}

func (t *Terminal) tmux(args ...string) string {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", t.socket}, args...)...).CombinedOutput()
	if err != nil {
		t.t.Fatalf("tmux %s: %v: %s", args[0], err, out)
	}
	return string(out)
}

// PID is the process id of the command or shell.
func (t *Terminal) PID() int { return t.pid }

// Screen is what the terminal shows, less blank lines at the end.
func (t *Terminal) Screen() string { return t.capture() }

// Coloured is the screen with the sequences that set colours.
func (t *Terminal) Coloured() string { return t.capture("-e") }

func (t *Terminal) capture(flags ...string) string {
	out, err := exec.CommandContext(context.Background(), "tmux", append([]string{"-S", t.socket, "capture-pane", "-p", "-t", "tty"}, flags...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(out), "\n")
}

// Written is how many bytes were written to the terminal so far.
func (t *Terminal) Written() int64 {
	info, err := os.Stat(t.log)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Shows reports whether the screen shows a text.
func (t *Terminal) Shows(text string) bool { return strings.Contains(t.Screen(), text) }

// Until waits until the screen shows a text.
func (t *Terminal) Until(text string) {
	t.t.Helper()
	Until(t.t, 30*time.Second, fmt.Sprintf("the screen shows %q", text), func() bool { return t.Shows(text) })
}

// Gone waits until the screen shows a text no longer.
func (t *Terminal) Gone(text string) {
	t.t.Helper()
	Until(t.t, 30*time.Second, fmt.Sprintf("the screen no longer shows %q", text), func() bool { return !t.Shows(text) })
}

// Key presses keys, by their tmux names.
func (t *Terminal) Key(keys ...string) {
	t.t.Helper()
	t.tmux(append([]string{"send-keys", "-t", "tty"}, keys...)...)
}

// Type types a text and presses Enter.
func (t *Terminal) Type(text string) {
	t.t.Helper()
	t.tmux("send-keys", "-t", "tty", "-l", "--", text)
	t.Key("Enter")
}

// Resize gives it another size.
func (t *Terminal) Resize(columns, rows int) {
	t.t.Helper()
	t.tmux("resize-window", "-t", "tty", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows))
}
