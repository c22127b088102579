package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/ipc"
)

func TestStopEndsTheDaemonAndIsRemembered(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	if out, want := s.must("stop"), fmt.Sprintf("jobd stopped, process %d\n", pid); out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if !dead(pid) || exists(s.p.Socket) || !exists(s.p.Stopped) {
		t.Errorf("the daemon is dead: %t; socket there: %t; stopped there: %t", dead(pid), exists(s.p.Socket), exists(s.p.Stopped))
	}
	if out := s.must("start", "--unless-stopped"); !strings.Contains(out, "stays so") || len(s.daemons()) != 0 {
		t.Errorf("a shim's start: %q, daemons %v", out, s.daemons())
	}
	if out := s.must("stop"); out != "jobd is not running\n" {
		t.Errorf("again: %q", out)
	}
	if _, err := s.client().Status(context.Background()); err != nil {
		t.Fatal(err)
	}
	if exists(s.p.Stopped) {
		t.Error("a client started the daemon, and it still counts as stopped")
	}
}

func TestStopWithoutADaemonIsRememberedToo(t *testing.T) {
	s := newSite(t)
	s.must("stop")
	if exists(s.dir) {
		t.Error("a stop made the state directory")
	}
	s.must("start")
	s.kill(s.pid())
	s.must("stop", "--kill-jobs")
	if !exists(s.p.Stopped) {
		t.Error("the stop was not recorded")
	}
}

func TestASignalIsNoStopOnPurpose(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM} {
		if dead(pid) {
			t.Fatal("the daemon ended too early")
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		if _, err := s.status(); err != nil && sig != syscall.SIGTERM {
			t.Fatalf("after %v: %v", sig, err)
		}
	}
	eventually(t, "the daemon is gone", func() bool { return dead(pid) })
	if exists(s.p.Stopped) || exists(s.p.Socket) {
		t.Errorf("stopped there: %t; socket there: %t", exists(s.p.Stopped), exists(s.p.Socket))
	}
}

func TestRestartPutsADaemonInThePlaceOfTheOther(t *testing.T) {
	s := newSite(t)
	s.must("start")
	before := s.pid()
	out := s.must("restart")
	after := s.pid()
	if want := fmt.Sprintf("jobd devel, process %d, made place for devel, process %d\n", before, after); out != want || before == after {
		t.Errorf("printed %q, want %q", out, want)
	}
	if got := s.daemons(); !slices.Equal(got, []int{after}) || exists(s.p.Stopped) {
		t.Errorf("daemons %v, stopped there: %t", got, exists(s.p.Stopped))
	}
	s.must("stop")
	if out := s.must("restart"); !strings.Contains(out, "started, process") {
		t.Errorf("without a daemon: %q", out)
	}
}

func TestClientsOutliveRestarts(t *testing.T) {
	s := newSite(t)
	s.must("start")
	c := s.client()
	over, done := make(chan struct{}), make(chan struct{})
	calls := 0
	go func() {
		defer close(done)
		for last := false; !last; calls++ {
			select {
			case <-over:
				last = true
			default:
			}
			if _, err := c.List(context.Background(), ipc.ListRequest{}); err != nil {
				t.Errorf("call %d: %v", calls, err)
				return
			}
		}
	}()
	for range 3 {
		s.must("restart")
		if pid, err := s.status(); err == nil {
			s.kill(pid.PID)
		}
	}
	close(over)
	<-done
	if got := s.daemons(); len(got) != 1 || calls < 2 {
		t.Errorf("daemons %v, %d calls", got, calls)
	}
}

func TestANewerClientExchangesTheDaemonOnce(t *testing.T) {
	s := newSite(t)
	s.must("start")
	before := s.pid()
	newer := s.client(func(o *ipc.Options) { o.Protocol = ipc.Protocol + 1; o.Version = "from-the-future" })
	_, err := newer.List(context.Background(), ipc.ListRequest{})
	// Its sibling is this build again, so the exchange does not help it.
	if !codeIs(err, ipc.CodeVersion) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"devel", "from-the-future", "jobd restart"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if after := s.pid(); after == before || exists(s.p.Stopped) {
		t.Errorf("process %d before and %d after, stopped there: %t", before, after, exists(s.p.Stopped))
	}
}

// The calls that every future program can make on every past daemon.
func TestStatusAndStopAreFrozen(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	do := func(method, path, body string) (int, map[string]any) {
		t.Helper()
		code, reply := rawCall(t, s.p.Socket, method, path, body, http.Header{"Jobd-Protocol": {"999"}})
		var m map[string]any
		if err := json.Unmarshal(reply, &m); err != nil {
			t.Fatalf("%s: %q", path, reply)
		}
		return code, m
	}
	code, st := do("GET", "/status", "")
	if code != 200 || st["pid"] != float64(pid) || st["protocol"] != float64(ipc.Protocol) || st["version"] != "devel" ||
		st["state_dir"] != s.dir || st["executable"] != filepath.Join(testBin, "jobd") {
		t.Errorf("status %d: %v", code, st)
	}
	if code, reply := do("POST", "/stop", `{"hand_over":true,"unheard_of":1}`); code != 200 || len(reply) != 0 {
		t.Errorf("stop %d: %v", code, reply)
	}
	eventually(t, "the daemon is gone", func() bool { return dead(pid) })
	if exists(s.p.Stopped) {
		t.Error("a hand-over counts as a stop")
	}
}

func TestADaemonTakesBackWhatWasRemoved(t *testing.T) {
	for _, name := range []string{"jobd.sock", "jobd.pid", "alive.lock"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.must("start")
			pid := s.pid()
			path := filepath.Join(s.dir, name)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is there again", func() bool { return exists(path) })
			if _, _, code := s.run("daemon"); code != exitRunning {
				t.Errorf("a second daemon: exit code %d", code)
			}
			s.must("start")
			if got := s.daemons(); !slices.Equal(got, []int{pid}) {
				t.Errorf("daemons %v, want %d", got, pid)
			}
			if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", fi, err)
			}
			s.must("stop")
			if exists(s.p.Socket) || !dead(pid) {
				t.Error("it did not stop properly")
			}
		})
	}
}

func TestAnOldDaemonLeavesTheSocketOfTheNewOneAlone(t *testing.T) {
	s := newSite(t)
	s.must("start")
	old := s.pid()
	freeze(t, old)
	// All that tells of it is removed, so that another can take its place.
	for _, path := range []string{s.p.Socket, s.p.PIDFile, s.p.AliveLock} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s.must("start")
	young := s.pid()
	before, err := os.Lstat(s.p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := syscall.Kill(old, sig); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the old daemon is gone", func() bool { return dead(old) })
	after, err := os.Lstat(s.p.Socket)
	if err != nil || !os.SameFile(before, after) || s.pid() != young {
		t.Errorf("the socket has changed: %v", err)
	}
}

func TestADaemonThatLostItsPlaceLeavesByItself(t *testing.T) {
	s := newSite(t)
	s.must("start")
	old := s.pid()
	freeze(t, old)
	for _, path := range []string{s.p.Socket, s.p.PIDFile, s.p.AliveLock} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s.must("start")
	young := s.pid()
	if err := syscall.Kill(old, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old daemon is gone", func() bool { return dead(old) })
	if s.pid() != young || exists(s.p.Stopped) {
		t.Error("the new daemon was disturbed")
	}
}

func TestADaemonWithNothingToDoLeaves(t *testing.T) {
	s := newSite(t)
	began := time.Now()
	pid := s.start("--idle-exit", "300ms")
	eventually(t, "the daemon is gone", func() bool { return dead(pid) })
	if time.Since(began) < 300*time.Millisecond || exists(s.p.Stopped) || exists(s.p.Socket) {
		t.Errorf("after %v; stopped there: %t; socket there: %t", time.Since(began), exists(s.p.Stopped), exists(s.p.Socket))
	}
}

func TestADaemonThatIsAskedStays(t *testing.T) {
	s := newSite(t)
	pid := s.start("--idle-exit", "2s")
	c := s.client()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := c.Status(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if s.pid() != pid {
		t.Error("the daemon has changed")
	}
}

func TestAnIdleExitNeedsAnInstanceOfItsOwn(t *testing.T) {
	// Elsewhere the flag is passed over: it could only do harm there.
	s := newSite(t)
	home := filepath.Dir(s.dir)
	s.p.Home = ""
	cmd := s.cmd("daemon", "--idle-exit", "50ms")
	s.p.StateDir = filepath.Join(home, ".local/state/jobd")
	s.p.Socket = filepath.Join(s.p.StateDir, "jobd.sock")
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	eventually(t, "it answers", func() bool { _, err := s.status(); return err == nil })
	time.Sleep(400 * time.Millisecond)
	if s.pid() != cmd.Process.Pid {
		t.Error("it left")
	}
}

func TestStopNamesADaemonThatIsSilent(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	freeze(t, pid)
	_, errs, code := s.run("stop")
	if code != exitError || !strings.Contains(errs, fmt.Sprintf("process %d is jobd's daemon", pid)) {
		t.Errorf("exit code %d, %q", code, errs)
	}
}
