package shim_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
	"jobd/internal/shim"
)

// A watched is a rig whose shims watch a state directory.
type watched struct {
	*rig
	state string
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{}
	w.rig = newRig(t, func(o *shim.Options) {
		w.state = filepath.Join(filepath.Dir(o.BundleDir), "state")
		if err := os.Mkdir(w.state, 0o700); err != nil {
			t.Fatal(err)
		}
		o.StateDir = w.state
		o.Environ = []string{"XDG_STATE_HOME=" + w.state, "HOME=/x"}
	})
	// What shims have started is ended after the jobs are.
	t.Cleanup(func() { w.write("stopped") })
	return w
}

// hold makes another process the daemon and returns it.
func (w *watched) hold() *exec.Cmd {
	w.t.Helper()
	cmd := again("holder", w.state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "holding\n" {
		w.t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd
}

func (w *watched) kill(cmd *exec.Cmd) {
	w.t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	_ = cmd.Wait()
}

func (w *watched) write(name string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.state, name), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// calls returns how often the sibling jobd was called to do this.
func (w *watched) calls(verb string) (n int, last string) {
	w.t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.state, "calls"))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, verb+" ") {
			n, last = n+1, strings.TrimSpace(line)
		}
	}
	return n, last
}

// daemon waits for the daemon that a shim started, which ends with the test.
func (w *watched) daemon() int {
	w.t.Helper()
	pid := readPID(w.t, filepath.Join(w.state, "daemon.pid"))
	w.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return pid
}

// blocked reports whether a job's shim has a thread blocked on a lock.
func (w *watched) blocked(id string) bool {
	raw, err := os.ReadFile("/proc/locks")
	if err != nil {
		w.t.Fatal(err)
	}
	pid := fmt.Sprint(w.shimPID(id))
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 5 && f[1] == "->" && f[5] == pid {
			return true
		}
	}
	return false
}

func TestAShimBringsBackADaemonThatDied(t *testing.T) {
	w := newWatched(t)
	holder := w.hold()
	id, p := w.start("sleep 600")
	eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	w.kill(holder)
	daemon := w.daemon()
	n, last := w.calls("start")
	if n != 1 {
		t.Errorf("jobd start was called %d times", n)
	}
	if got := strings.Fields(last); len(got) != 3 || !slices.Contains(got, "HOME=/x") || !slices.Contains(got, "XDG_STATE_HOME="+w.state) {
		t.Errorf("it was called with more than the shim's environment: %q", last)
	}
	// It is not taken for a part of the job, and the shim watches it now.
	eventually(t, "the shim watches again", func() bool { return w.blocked(id) })
	w.stop(p, jobs.CauseCancel)
	w.wait(p, 10*time.Second)
	if !runs(daemon) {
		t.Error("the daemon ended with the job")
	}
}

func TestAShimTriesThreeTimesInShortOrder(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.write("broken")
	_, p := w.start("sleep 600")
	eventually(t, "three tries", func() bool { n, _ := w.calls("start"); return n == 3 })
	time.Sleep(2500 * time.Millisecond) // longer than between the first three
	if n, _ := w.calls("start"); n != 3 {
		t.Errorf("%d tries", n)
	}
	w.write("stopped")
	w.stop(p, jobs.CauseCancel)
	w.wait(p, 10*time.Second)
}

func TestAShimStartsNoDaemonThatWasStopped(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	holder := w.hold()
	id, p := w.start("sleep 600")
	eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	w.write("stopped")
	w.kill(holder)
	time.Sleep(2500 * time.Millisecond) // longer than any shim waits before its first try
	w.stop(p, jobs.CauseCancel)
	w.wait(p, 10*time.Second)
	if n, last := w.calls("start"); n != 0 {
		t.Errorf("called %d times, last %q", n, last)
	}
}

func TestAShimThatEndsWithoutADaemonStartsOne(t *testing.T) {
	w := newWatched(t)
	_, p := w.start("true")
	if exit := w.wait(p, 10*time.Second); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	if daemon := w.daemon(); !runs(daemon) {
		t.Error("it does not run")
	}
}

func TestManyShimsLetADaemonTakeTheLock(t *testing.T) {
	w := newWatched(t)
	holder := w.hold()
	var ids []string
	for range 20 {
		id, _ := w.start("sleep 600")
		ids = append(ids, id)
	}
	for _, id := range ids {
		eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	}
	w.kill(holder)
	begun := time.Now()
	f, err := shim.HoldAlive(w.state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if d := time.Since(begun); d > time.Second {
		t.Errorf("taking the lock took %v", d)
	}
	for _, id := range ids {
		eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	}
	w.write("stopped") // before the lock falls free with this test
}

func TestALockThatWasRemovedIsMadeAgain(t *testing.T) {
	w := newWatched(t)
	holder := w.hold()
	id, p := w.start("sleep 600")
	eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	if err := os.Remove(filepath.Join(w.state, shim.AliveFile)); err != nil {
		t.Fatal(err)
	}
	// A daemon on the new file; with the end of the one on the old, the shim
	// must find it.
	w.hold()
	w.kill(holder)
	eventually(t, "the shim watches the new one", func() bool { return w.blocked(id) })
	w.stop(p, jobs.CauseCancel)
	w.wait(p, 10*time.Second)
	if n, last := w.calls("start"); n != 0 {
		t.Errorf("called %d times, last %q", n, last)
	}
}

func TestOnlyOneDaemonIsAlive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := shim.HoldAlive(dir)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := shim.HoldAlive(dir); !errors.Is(err, jobs.ErrState) {
		t.Errorf("a second one got %v, %v", g, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = shim.HoldAlive(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := shim.HoldAlive(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing directory was no error")
	}
}
