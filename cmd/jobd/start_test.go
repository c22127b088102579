package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"jobd/internal/ipc"
)

func TestStartReturnsWhenTheDaemonAnswers(t *testing.T) {
	s := newSite(t)
	out := s.must("start")
	pid := s.pid()
	if want := fmt.Sprintf("jobd started, process %d\n", pid); out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	out = s.must("start")
	if want := fmt.Sprintf("jobd is already running, process %d\n", pid); out != want {
		t.Errorf("again: printed %q, want %q", out, want)
	}
	if got := s.daemons(); !slices.Equal(got, []int{pid}) {
		t.Errorf("daemons %v, the one that answers is %d", got, pid)
	}
}

func TestADaemonKeepsNothingOfItsStarter(t *testing.T) {
	s := newSite(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// A starter with a loose umask, a pipe that it does not know of, and the
	// mark of another daemon's birth.
	cmd := exec.Command("sh", "-c", `umask 000; exec "$0" start`, filepath.Join(testBin, "jobd"))
	cmd.Env = s.env("_GO_DAEMON=1", "XDG_RUNTIME_DIR=/run/x", "LANG=C.UTF-8", "CLAUDECODE=1")
	cmd.Dir = filepath.Dir(s.dir)
	cmd.ExtraFiles = []*os.File{w}
	if _, errs, code := s.exec(cmd); code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	w.Close()
	if _, err := io.ReadAll(r); err != nil { // would hang while somebody holds the other end
		t.Fatal(err)
	}
	pid := s.pid()
	proc := fmt.Sprintf("/proc/%d/", pid)

	if cwd, err := os.Readlink(proc + "cwd"); err != nil || cwd != "/" {
		t.Errorf("working directory %q, %v", cwd, err)
	}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(proc + "fd/" + fd.Name())
		if err != nil {
			continue
		}
		ours := strings.HasPrefix(to, s.dir+"/") || strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "anon_inode:") || to == "/dev/null" ||
			strings.HasPrefix(to, "/sys/fs/cgroup/") // the Go runtime looks at its limits
		if !ours {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
		info, err := os.ReadFile(proc + "fdinfo/" + fd.Name())
		if err != nil {
			continue
		}
		var flags int64
		for line := range strings.Lines(string(info)) {
			if _, err := fmt.Sscanf(line, "flags: %o", &flags); err == nil {
				break
			}
		}
		if fd.Name() > "2" && flags&unix.O_CLOEXEC == 0 {
			t.Errorf("descriptor %s, %s, would go to every job", fd.Name(), to)
		}
	}
	env, err := os.ReadFile(proc + "environ")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for kv := range strings.SplitSeq(strings.TrimRight(string(env), "\x00"), "\x00") {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if d := cmp.Diff([]string{"HOME", "JOBD_HOME", "LANG", "PATH", "XDG_RUNTIME_DIR", "_GO_DAEMON"}, names); d != "" {
		t.Errorf("the environment at birth (-want +got):\n%s", d)
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil || !strings.Contains(string(status), "Umask:\t0077") {
		t.Errorf("the umask is not 077: %v", err)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, %v", sid, err)
	}
	for _, name := range []string{"", "jobd.sock", "jobd.pid", "jobd.log", "alive.lock"} {
		fi, err := os.Lstat(filepath.Join(s.dir, name))
		if err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q: %v, %v", name, fi, err)
		}
	}
}

func TestManyClientsAtOnceGetOneDaemon(t *testing.T) {
	s := newSite(t)
	for round := range 3 {
		var mu sync.Mutex
		seen := map[int]int{}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if i%5 == 0 { // some are other programs
					if _, errs, code := s.run("start"); code != 0 {
						t.Errorf("round %d: jobd start: exit code %d, %s", round, code, errs)
					}
				}
				st, err := s.client().Status(context.Background())
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				mu.Lock()
				seen[st.PID]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(seen) != 1 || len(s.daemons()) != 1 {
			t.Fatalf("round %d: answers by process %v, daemons %v", round, seen, s.daemons())
		}
		s.kill(s.pid()) // leaves its socket and pid file behind
	}
}

func TestAStartPassesOverWhatADeadDaemonLeft(t *testing.T) {
	s := newSite(t)
	s.must("start")
	s.kill(s.pid())
	if !exists(s.p.Socket) || !exists(s.p.PIDFile) {
		t.Fatal("nothing was left behind")
	}
	// The number in the pid file now belongs to a process that lives.
	if err := os.WriteFile(s.p.PIDFile, fmt.Appendf(nil, "%d", os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("start")
	if got := s.daemons(); !slices.Equal(got, []int{s.pid()}) {
		t.Errorf("daemons %v", got)
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	for range 5 {
		_, errs, code := s.run("daemon")
		if want := fmt.Sprintf("jobd: jobd is already running, process %d\n", pid); code != exitRunning || errs != want {
			t.Errorf("exit code %d, %q; want %d, %q", code, errs, exitRunning, want)
		}
	}
	if s.pid() != pid {
		t.Error("the daemon has changed")
	}
}

func TestTheClaimLastsAsLongAsTheDaemon(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	c := s.client()
	for range 3000 { // enough garbage for some collections
		if _, err := c.Status(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/4", pid)); err != nil || to != s.p.PIDFile {
		t.Errorf("descriptor 4 is %q, %v", to, err)
	}
	if _, _, code := s.run("daemon"); code != exitRunning {
		t.Errorf("a second daemon: exit code %d", code)
	}
}

func TestAShellWaitsForNoDaemon(t *testing.T) {
	s := newSite(t)
	cmd := exec.Command("sh", "-c", `x=$("$0" start 2>&1); echo "got $x"`, filepath.Join(testBin, "jobd"))
	cmd.Env = s.env()
	out, errs, code := s.exec(cmd)
	if code != 0 || !strings.HasPrefix(out, "got jobd started") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

func TestTheMarkOfRebirthMakesNoDaemon(t *testing.T) {
	s := newSite(t)
	cmd := s.cmd("daemon", "--reborn")
	cmd.Env = s.env("_GO_DAEMON=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if _, errs, code := s.exec(cmd); code != exitUsage || len(s.daemons()) != 0 {
		t.Errorf("exit code %d, %q, daemons %v", code, errs, s.daemons())
	}
}

func TestInsideAJobNothingStartsADaemon(t *testing.T) {
	s := newSite(t)
	for _, args := range [][]string{{"start"}, {"daemon"}, {"restart"}} {
		cmd := s.cmd(args...)
		cmd.Env = s.env("JOBD_JOB_ID=0123")
		if _, errs, code := s.exec(cmd); code != exitError || !strings.Contains(errs, "inside a job") {
			t.Errorf("%q: exit code %d, %q", args, code, errs)
		}
	}
	inJob := func(o *ipc.Options) { o.InJob = true }
	began := time.Now()
	_, err := s.client(inJob).Status(context.Background())
	if !codeIs(err, ipc.CodeUnavailable) || time.Since(began) < 4*time.Second || time.Since(began) > 7*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if exists(s.dir) {
		t.Error("something was started")
	}
	// One that appears in time is found.
	found := make(chan error, 1)
	go func() {
		_, err := s.client(inJob).Status(context.Background())
		found <- err
	}()
	s.must("start")
	if err := <-found; err != nil {
		t.Errorf("with a daemon that appears: %v", err)
	}
}

func TestAStartThatCannotBeSaysWhy(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "jobd-t-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	in := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(in("real"), 0o700))
	must(os.Symlink(in("real"), in("link")))
	must(os.Mkdir(in("open"), 0o700))
	must(os.Chmod(in("open"), 0o755))
	must(os.WriteFile(in("file"), nil, 0o600))
	must(os.MkdirAll(in("taken/jobd.sock"), 0o700))
	for home, want := range map[string]string{
		in("link"):         "is a symbolic link",
		in("open"):         "chmod 700 " + in("open"),
		in("file"):         "is no directory",
		in("taken"):        "is in the way of jobd's socket",
		"relative":         `JOBD_HOME is "relative"`,
		"/":                `JOBD_HOME is "/"`,
		"/jobd-none/there": "makes none in /",
		"/proc/jobd":       "/proc/jobd",
	} {
		s := newSiteAt(t, home)
		began := time.Now()
		_, errs, code := s.run("start")
		if code != exitError || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || time.Since(began) > 5*time.Second {
			t.Errorf("%s: exit code %d after %v, %q; want one line with %q", home, code, time.Since(began), errs, want)
		}
	}
	if exists("/tmp/relative") {
		t.Error("a directory was made in the working directory")
	}
}

func TestADirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "jobd-t-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	// Root may write anywhere, so it plays nobody.
	uid := os.Getuid()
	var as *syscall.SysProcAttr
	if uid == 0 {
		uid = 65534
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: 65534}}
	}
	readOnly := filepath.Join(base, "ro")
	sealed := filepath.Join(base, "sealed")
	for _, dir := range []string{readOnly, sealed} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, -1), os.Chmod(dir, 0o500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for home, want := range map[string]string{
		filepath.Join(readOnly, "h"): readOnly + " is not writable",
		sealed:                       "chmod 700 " + sealed,
		"/usr":                       "/usr belongs to user 0",
	} {
		s := newSiteAt(t, home)
		for _, args := range [][]string{{"start"}, {"run", "--", "true"}} {
			cmd := s.cmd(args...)
			cmd.Dir = "/"
			cmd.SysProcAttr = as
			began := time.Now()
			_, errs, code := s.exec(cmd)
			if code != exitError || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || time.Since(began) > 4*time.Second {
				t.Errorf("%q in %s: exit code %d after %v, %q; want one line with %q", args, home, code, time.Since(began), errs, want)
			}
		}
	}
}

func TestAClientIsToldWhyAStartFailed(t *testing.T) {
	s := newSite(t)
	if err := os.MkdirAll(s.p.Socket, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.client().Status(context.Background())
	if !codeIs(err, ipc.CodeUnavailable) || !strings.Contains(err.Error(), "is in the way of jobd's socket") {
		t.Errorf("got %v", err)
	}
}

func TestALongPathGetsAShortSocket(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "jobd-t-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	s := newSiteAt(t, filepath.Join(base, strings.Repeat("long/", 50), "h"))
	s.must("start")
	out := s.must("version", "--json")
	if !strings.Contains(out, `"pid"`) {
		t.Errorf("the daemon was not found: %s", out)
	}
	s.must("stop")
}

func TestABlockedStartFailsInTimeAndPilesUpNothing(t *testing.T) {
	s := newSite(t)
	if err := s.p.Ensure(); err != nil {
		t.Fatal(err)
	}
	// A process that holds the start lock and was stopped.
	lock, err := os.OpenFile(s.p.StartLock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	blocker := exec.Command("sleep", "60")
	blocker.ExtraFiles = []*os.File{lock}
	if err := blocker.Start(); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	defer func() { blocker.Process.Kill(); blocker.Wait() }()
	freeze(t, blocker.Process.Pid)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			began := time.Now()
			_, err := s.client().Status(context.Background())
			if !codeIs(err, ipc.CodeUnavailable) || !strings.Contains(err.Error(), s.p.StartLock+" is locked") || time.Since(began) > 5*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
	wg.Wait()
	if got := s.processes("jobd"); len(got) != 0 {
		t.Errorf("processes %v", got)
	}
}

func TestADaemonThatIsSilentIsNamed(t *testing.T) {
	s := newSite(t)
	s.must("start")
	pid := s.pid()
	freeze(t, pid)
	if err := os.Remove(s.p.Socket); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := s.client().Status(context.Background())
	if !codeIs(err, ipc.CodeUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("process %d is jobd's daemon", pid)) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if got := s.daemons(); !slices.Equal(got, []int{pid}) {
		t.Errorf("daemons %v", got)
	}
}
