package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// A site is a jobd of its own: a JOBD_HOME, and everything that runs in it is
// ended with the test.
type site struct {
	t   *testing.T
	dir string // JOBD_HOME
	p   config.Places
}

func newSite(t *testing.T) *site {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "jobd-t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	return newSiteAt(t, filepath.Join(base, "h"))
}

func newSiteAt(t *testing.T, dir string) *site {
	t.Helper()
	s := &site{t: t, dir: dir}
	p := func(name string) string { return filepath.Join(dir, name) }
	s.p = config.Places{Home: dir, StateDir: dir, DB: p("jobd.db"), Log: p("jobd.log"), PIDFile: p("jobd.pid"), AliveLock: p("alive.lock"),
		StartLock: p("start.lock"), Stopped: p("stopped"), Socket: p("jobd.sock")}
	t.Cleanup(s.end)
	return s
}

// end kills what runs in the site.
func (s *site) end() {
	if s.t.Failed() {
		if log, err := os.ReadFile(s.p.Log); err == nil {
			s.t.Logf("the end of the log:\n%s", log[max(0, len(log)-6000):])
		}
	}
	for range 3 { // what they start meanwhile, too
		for _, pid := range s.processes("") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// env is the environment of a command in the site. A program with the race
// detector would sleep for a second before it ends.
func (s *site) env(more ...string) []string {
	return append([]string{"GORACE=atexit_sleep_ms=0", "JOBD_HOME=" + s.dir, "HOME=" + filepath.Dir(s.dir), "PATH=/usr/bin:/bin", "SECRET_TOKEN=hunter2"}, more...)
}

func (s *site) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testBin, "jobd"), args...)
	cmd.Env = s.env()
	cmd.Dir = "/tmp"
	return cmd
}

// run runs a command and returns what it printed and its exit code.
func (s *site) run(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	return s.exec(s.cmd(args...))
}

func (s *site) exec(cmd *exec.Cmd) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%q: %v", cmd.Args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to succeed.
func (s *site) must(args ...string) string {
	s.t.Helper()
	out, errs, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("jobd %s: exit code %d, %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// start starts a daemon that was not there and returns its process id.
func (s *site) start(args ...string) int {
	s.t.Helper()
	out := s.must(append([]string{"start"}, args...)...)
	var pid int
	if _, err := fmt.Sscanf(out, "jobd started, process %d", &pid); err != nil {
		s.t.Fatalf("jobd start printed %q", out)
	}
	return pid
}

// status asks the daemon that runs.
func (s *site) status() (ipc.Status, error) { return askStatus(context.Background(), s.p) }

// pid returns the process id of the daemon, which must answer.
func (s *site) pid() int {
	s.t.Helper()
	st, err := s.status()
	if err != nil {
		s.t.Fatalf("asking the daemon: %v", err)
	}
	return st.PID
}

// processes returns the live processes of the site whose command line holds
// what, by the environment that they were started with.
func (s *site) processes(what string) []int {
	var found []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00JOBD_HOME="+s.dir+"\x00")) {
			continue
		}
		line, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !strings.Contains(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), what) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() && !dead(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// stateOf returns the letter of a process's state, "" for none (proc(5)).
func stateOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}

// dead reports whether a process is gone or a zombie: its state is Z, X or "".
func dead(pid int) bool { return strings.Contains("ZX", stateOf(pid)) }

// freeze stops a process and returns when it stands still.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process stands still", func() bool { return stateOf(pid) == "T" })
}

// daemons returns the process ids of the site's daemons.
func (s *site) daemons() []int { return s.processes("jobd daemon") }

// kill ends a process by SIGKILL and waits until it is gone.
func (s *site) kill(pid int) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the process is gone", func() bool { return dead(pid) })
}

// eventually polls until ok, for at most 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// client returns a client that starts the site's daemon.
func (s *site) client(change ...func(*ipc.Options)) *ipc.Client {
	o := ipc.Options{Socket: s.p.Socket, Executable: filepath.Join(testBin, "jobd"), Env: config.DaemonEnv(s.env()), Prepare: s.p.Ensure,
		StartLock: s.p.StartLock, Stopped: s.p.Stopped, Log: s.p.Log, Version: "test"}
	for _, c := range change {
		c(&o)
	}
	c := ipc.New(o)
	s.t.Cleanup(c.Close)
	return c
}

// rawCall speaks HTTP to a socket without the package ipc.
func rawCall(t *testing.T, socket, method, path, body string, header http.Header) (int, []byte) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequest(method, "http://jobd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, reply
}
