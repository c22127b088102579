package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// Each story in testdata/script has a jobd of its own: a daemon that the
// commands start, and that is stopped with its jobs at the end. $JOBD_HOME is
// in /tmp, since the path of a socket is short.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			home, err := os.MkdirTemp("/tmp", "jobd-s-")
			if err != nil {
				return err
			}
			e.Setenv("JOBD_HOME", home)
			e.Setenv("PATH", testBin+string(os.PathListSeparator)+"/usr/local/bin:/usr/bin:/bin")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TERM", "xterm")
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Defer(func() { endStory(t, home) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   storyExits,
			"until":   storyUntil,
			"capture": storyCapture,
			"signal":  storySignal,
			"tty":     storyTTY,
		},
	})
}

// endStory stops what a story has started, and sees that nothing is left.
func endStory(t *testing.T, home string) {
	defer os.RemoveAll(home)
	stop := exec.Command(filepath.Join(testBin, "jobd"), "stop", "--kill-jobs")
	stop.Env = []string{"JOBD_HOME=" + home, "HOME=" + home, "PATH=/usr/bin:/bin"}
	if out, err := stop.CombinedOutput(); err != nil {
		t.Logf("jobd stop: %v: %s", err, out)
	}
	mark := "JOBD_HOME=" + home
	deadline := time.Now().Add(20 * time.Second)
	for left := processesWith(mark); len(left) > 0; left = processesWith(mark) {
		if time.Now().After(deadline) {
			t.Errorf("the processes %v outlived the story", left)
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processesWith returns the processes that have an entry in their environment.
func processesWith(entry string) []int {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	var pids []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+entry+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// storyExits runs a command that must end with a code: exits CODE COMMAND…
func storyExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s ended with code %d, not %d", strings.Join(args[1:], " "), got, want)
	}
}

// storyUntil repeats a command until its output matches: until PATTERN COMMAND…
func storyUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND…")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout")
		if err == nil && pattern.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s did not print %q within 20 s; last it printed %q and ended with %v", strings.Join(args[1:], " "), args[0], out, err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// storyCapture puts what the last command printed into a variable: capture NAME
func storyCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// storySignal signals the process whose id a file holds: signal KILL FILE
func storySignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal KILL|INT|TERM FILE")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}
