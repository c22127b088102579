//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"jobd/internal/e2e/rig"
)

// A step is one line of "jobd doctor --json".
type doctorStep struct {
	Step    string `json:"step"`
	OK      bool   `json:"ok"`
	Warning bool   `json:"warning"`
	Error   string `json:"error"`
	Remedy  string `json:"remedy"`
}

// examine runs a prepared doctor, and returns what it found of one step. The
// plain text of the same must hold the error and the remedy too.
func examine(t *testing.T, prepare func(args ...string) *exec.Cmd, step string) doctorStep {
	t.Helper()
	out := rig.Run(t, prepare("doctor", "--json"))
	var report struct {
		Steps []doctorStep `json:"steps"`
	}
	decode(t, []byte(out.Stdout), &report)
	for _, s := range report.Steps {
		if s.Step != step {
			continue
		}
		if code := out.Code; (code == 0) != (s.OK || s.Warning) {
			t.Errorf("it ended with %d after %+v", code, s)
		}
		plain := rig.Run(t, prepare("doctor"))
		for line := range strings.SplitSeq(s.Remedy, "\n") {
			if !strings.Contains(plain.Stdout, line) {
				t.Errorf("the plain text lacks %q:\n%s", line, plain.Stdout)
			}
		}
		return s
	}
	t.Fatalf("there is no step %q in %s", step, out.Stdout)
	return doctorStep{}
}

// Every fault that keeps jobd from working is named, with what to do.
func TestDoctor_NamesTheFaultAndTheRemedy(t *testing.T) {
	type fault struct {
		name string
		// provoke brings the fault about, and may change how the doctor is run.
		provoke func(t *testing.T, r *rig.Rig) (env []string)
		step    string
		says    string
		remedy  string
		warning bool
	}
	for _, f := range []fault{
		{name: "a lock that a process without a socket holds", step: "socket and locks",
			provoke: func(t *testing.T, r *rig.Rig) []string {
				r.Jobd("start")
				r.Jobd("stop")
				lock, err := os.OpenFile(r.State+"/alive.lock", os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { lock.Close() })
				if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
					t.Fatal(err)
				}
				return nil
			},
			says: "alive.lock is locked", remedy: "end process"},
		{name: "a daemon that hangs", step: "socket and locks",
			provoke: func(t *testing.T, r *rig.Rig) []string {
				r.Jobd("start")
				if err := syscall.Kill(r.Daemon(), syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				return nil
			},
			says: "the daemon does not answer", remedy: "jobd restart"},
		{name: "a state directory that is open to others", step: "state directory",
			provoke: func(t *testing.T, r *rig.Rig) []string {
				if err := os.Mkdir(r.State, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(r.State, 0o777); err != nil {
					t.Fatal(err)
				}
				return nil
			},
			says: "chmod 700"},
		{name: "a state directory that cannot be made", step: "state directory",
			provoke: func(t *testing.T, r *rig.Rig) []string {
				return []string{"JOBD_HOME=" + r.Write("plain", "", 0o600) + "/jobd"}
			},
			says: "/plain"},
		{name: "a mistake in config.yaml", step: "settings",
			provoke: func(t *testing.T, r *rig.Rig) []string {
				if err := os.Mkdir(r.State, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(r.State+"/config.yaml", []byte("max-running: 3\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return nil
			},
			says: "config.yaml:1:1: ", remedy: "correct the file"},
		{name: "a PATH without jobd", step: "PATH", warning: true,
			provoke: func(t *testing.T, r *rig.Rig) []string { return []string{"PATH=/usr/bin:/bin"} },
			says:    "the shell does not find jobd", remedy: "export PATH"},
		{name: "another jobd first on PATH", step: "PATH", warning: true,
			provoke: func(t *testing.T, r *rig.Rig) []string {
				dir := r.Dir + "/other"
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(dir+"/jobd", []byte("#!/bin/sh\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				return []string{"PATH=" + dir + ":" + r.Bin + ":/usr/bin:/bin"}
			},
			says: "the shell finds another jobd", remedy: "put the other directory first"},
		{name: "a daemon of another version", step: "version of the daemon", warning: true,
			provoke: func(t *testing.T, r *rig.Rig) []string {
				other := build(t, r, "jobd", "-ldflags", "-X main.version=v0.0.1-other")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := exec.CommandContext(ctx, other+"/jobd", "start")
				start.Env = r.Env()
				if out := rig.Run(t, start); out.Code != 0 {
					t.Fatalf("starting the other version: %+v", out)
				}
				return nil
			},
			says: "v0.0.1-other", remedy: "jobd restart"},
		{name: "Claude Code does not know jobd", step: "Claude Code", warning: true,
			provoke: func(t *testing.T, r *rig.Rig) []string { return nil },
			says:    "does not know jobd yet", remedy: "claude mcp add -s user jobd -- "},
	} {
		t.Run(f.name, func(t *testing.T) {
			r := rig.New(t)
			env := f.provoke(t, r)
			got := examine(t, func(args ...string) *exec.Cmd {
				cmd := r.Command(t.Context(), "jobd", args...)
				cmd.Env = r.Env(env...)
				return cmd
			}, f.step)
			if got.OK != f.warning || got.Warning != f.warning || !strings.Contains(got.Error, f.says) || !strings.Contains(got.Remedy, f.remedy) {
				t.Errorf("it found %+v", got)
			}
		})
	}
}

// A file system with next to no room.
func TestDoctor_NamesAFullDisk(t *testing.T) {
	r := rig.New(t)
	if err := os.Mkdir(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	// In a mount namespace of its own, as its root.
	if out, err := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount", "true").CombinedOutput(); err != nil {
		t.Logf("this machine lets nobody mount a file system (%v: %s): that a full disk is named is not shown here", err, out)
		return
	}
	script := `mount -t tmpfs -o size=8m,mode=0700 jobd-full "$JOBD_HOME" && exec "$0" "$@"`
	got := examine(t, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--map-root-user", "--mount", "sh", "-c", script, r.Bin + "/jobd"}, args...)...)
		cmd.Env, cmd.Dir = r.Env(), r.Project
		return cmd
	}, "state directory")
	if got.OK || !strings.Contains(got.Error, "only 8.0 MiB are free for "+r.State) || !strings.Contains(got.Remedy, "make room") {
		t.Errorf("it found %+v", got)
	}
}

// A sandbox like Claude Code's for Bash, which forbids Unix sockets.
func TestDoctor_NamesASandbox(t *testing.T) {
	r := rig.New(t)
	r.Jobd("start")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	got := examine(t, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestHelper_RunsInASandbox$")
		cmd.Env = r.Env("E2E_IN_SANDBOX=" + strings.Join(append([]string{r.Bin + "/jobd"}, args...), "\n"))
		cmd.Dir = r.Project
		return cmd
	}, "socket and locks")
	if got.OK || !strings.Contains(got.Error, "sandbox") || !strings.Contains(got.Error, "allowUnixSockets") || !strings.Contains(got.Error, r.State+"/jobd.sock") {
		t.Errorf("it found %+v", got)
	}
}

// TestHelper_RunsInASandbox becomes a program to which the kernel refuses every
// Unix socket (seccomp(2)). It is the other process of the test above.
func TestHelper_RunsInASandbox(t *testing.T) {
	program := os.Getenv("E2E_IN_SANDBOX")
	if program == "" {
		return
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // the low half of args[0]
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_UNIX},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		t.Fatal(errno)
	}
	args := strings.Split(program, "\n")
	t.Fatal(syscall.Exec(args[0], args, os.Environ()))
}

// A program of another source than its siblings.
func TestDoctor_NamesAProgramOfAnotherVersion(t *testing.T) {
	r := rig.New(t)
	dir := build(t, r, "mcp-stdio", "-buildvcs=false", "-ldflags", "-X main.version=v0.0.1-other")
	for _, name := range []string{"jobd", "jobd-shim"} {
		built := build(t, r, name, "-buildvcs=false")
		if err := os.Rename(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := examine(t, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), dir+"/jobd", args...)
		cmd.Env, cmd.Dir = r.Env(), r.Project
		return cmd
	}, "start a front end")
	if got.OK || !strings.Contains(got.Error, "mcp-stdio is of version v0.0.1-other") || !strings.Contains(got.Remedy, "make install") {
		t.Errorf("it found %+v", got)
	}
}

// build builds one program in another way, into a directory of the rig.
func build(t *testing.T, r *rig.Rig, name string, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp(r.Dir, "built-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath"}, flags...), "-o", dir+"/", "./cmd/"+name)...)
	cmd.Dir = rig.Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	return dir
}
