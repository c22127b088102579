package shim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/shim"
)

// run runs a job to its end and returns its output.
func (r *rig) run(spec jobs.Spec, environ ...string) string {
	r.t.Helper()
	id := r.prepare(spec, environ...)
	p, err := r.Start(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if exit := r.wait(p, 20*time.Second); exit.Code != 0 {
		r.t.Fatalf("%+v: %s", exit, r.output(id))
	}
	return r.output(id)
}

func TestACommandGetsExactlyTheEnvironmentItWasGiven(t *testing.T) {
	t.Setenv("DAEMON_SECRET", "x")
	r := newRig(t, func(o *shim.Options) { o.Environ = []string{"HOME=/daemon", "SHIM_OWN=1"} })
	// Values of any bytes, an empty one, a duplicate, and many of them.
	want := []string{"PATH=/usr/bin:/bin", "EMPTY=", "LINES=a\nb", "BYTES=\x01\xff\xfe", "TWICE=1", "TWICE=2"}
	for i := range 2000 {
		want = append(want, fmt.Sprintf("VAR_%d=%s", i, strings.Repeat("v", 50)))
	}
	id := r.prepare(jobs.Spec{Argv: []string{"cat", "/proc/self/environ"}}, want...)
	p, err := r.Start(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(p, 10*time.Second)
	got := strings.Split(strings.TrimSuffix(r.output(id), "\x00"), "\x00")
	if diff := cmp.Diff(append(want, "JOBD_JOB_ID="+id), got); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyEnvironmentIsEmpty(t *testing.T) {
	r := newRig(t)
	id := newID()
	if err := r.Prepare(context.Background(), id, jobs.Spec{Argv: []string{"/usr/bin/env"}, Dir: "/"}, nil); err != nil {
		t.Fatal(err)
	}
	p, err := r.Start(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 10*time.Second); exit.Code != 0 || r.output(id) != "" {
		t.Errorf("%+v, %q", exit, r.output(id))
	}
}

func TestTheEnvironmentIsOnDiskOnlyUntilTheLaunch(t *testing.T) {
	r := newRig(t)
	id := r.prepare(jobs.Spec{Argv: []string{"sleep", "20"}}, "PATH=/bin:/usr/bin", "TOKEN=s3cret")
	if rem, err := r.Inspect(context.Background(), id); err != nil || !rem.EnvIntact {
		t.Fatalf("%+v, %v", rem, err)
	}
	p, err := r.Start(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop(p, jobs.CauseCancel)
	err = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), "s3cret") {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, file := range []string{"cmdline", "environ"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", r.shimPID(id), file))
		if err != nil || strings.Contains(string(raw), "s3cret") {
			t.Errorf("the shim's %s shows it: %q, %v", file, raw, err)
		}
	}
}

func TestATornEnvironmentStartsNothing(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-3] },
		"flipped": func(b []byte) []byte { b[len(b)-3] ^= 1; return b },
		"empty":   func([]byte) []byte { return nil },
		"newer":   func(b []byte) []byte { return append([]byte("jobd-env 2 "), b[11:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ran := filepath.Join(r.tmp, "ran")
			id := r.prepare(jobs.Spec{Argv: []string{"touch", ran}})
			env := filepath.Join(r.dir, id, "env")
			raw, err := os.ReadFile(env)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(env, damage(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			if rem, err := r.Inspect(context.Background(), id); err != nil || rem.EnvIntact {
				t.Errorf("Inspect gave %+v, %v", rem, err)
			}
			_, err = r.Start(context.Background(), id)
			if err == nil || !strings.Contains(err.Error(), env) {
				t.Errorf("Start gave %v, which does not name %s", err, env)
			}
			if _, err := os.Stat(ran); !os.IsNotExist(err) {
				t.Error("it ran")
			}
		})
	}
}

func TestACommandHasNoDescriptorButTheThree(t *testing.T) {
	// One that the daemon itself was given and cannot know of.
	f, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dup, err := syscall.Dup(int(f.Fd())) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(dup)
	r := newRig(t)
	id, p := r.start("ls -l /proc/self/fd; sleep 20")
	eventually(t, "the listing", func() bool { return strings.Count(r.output(id), "\n") >= 5 })
	var fds []string
	for line := range strings.Lines(r.output(id)) {
		if f := strings.Fields(line); len(f) > 3 {
			fds = append(fds, f[len(f)-3]+" "+strings.Split(f[len(f)-1], ":")[0])
		}
	}
	slices.Sort(fds)
	if want := []string{"0 /dev/null", "1 pipe", "2 pipe"}; len(fds) < 3 || !slices.Equal(fds[:3], want) || len(fds) > 4 {
		t.Errorf("descriptors %q, want %q and that of ls's own directory", fds, want)
	}
	// Nor does the shim keep what it was not given.
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.shimPID(id)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", r.shimPID(id), e.Name())); err == nil && to == "/etc/passwd" {
			t.Errorf("the shim has descriptor %s on %s", e.Name(), to)
		}
	}
	r.stop(p, jobs.CauseCancel)
}

func TestACommandsPipeIsBlockingAndItsInputIsEmpty(t *testing.T) {
	r := newRig(t)
	out := r.run(jobs.Spec{Argv: []string{"sh", "-c", "grep flags /proc/self/fdinfo/1; cat; read x; echo $?"}})
	flags, rest, _ := strings.Cut(strings.TrimPrefix(out, "flags:"), "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(flags), 8, 64)
	if err != nil || n&syscall.O_NONBLOCK != 0 {
		t.Errorf("flags of standard output %q", flags)
	}
	if rest != "1\n" {
		t.Errorf("reading its input gave %q", rest)
	}
}

func TestACommandHasNoTerminalAndAGroupOfItsOwn(t *testing.T) {
	r := newRig(t)
	id, p := r.start("ps -o pid=,pgid=,sid=,tty= -p $$; (: </dev/tty) 2>/dev/null && echo terminal; cat /proc/self/status | grep Sig[IB]; sleep 20")
	eventually(t, "output", func() bool { return strings.Count(r.output(id), "\n") >= 3 })
	lines := strings.Split(r.output(id), "\n")
	want := fmt.Sprintf("%d %d %d ?", p.PID(), p.PID(), r.shimPID(id))
	if got := strings.Join(strings.Fields(lines[0]), " "); got != want {
		t.Errorf("pid, group, session, terminal are %q, want %q", got, want)
	}
	for _, line := range lines[1:3] {
		// glibc keeps signals from 32 for itself; what it spawns ignores some.
		f := strings.Fields(line)
		if mask, err := strconv.ParseUint(f[len(f)-1], 16, 64); err != nil || mask&(1<<31-1) != 0 {
			t.Errorf("signals are blocked or ignored: %q", line)
		}
	}
	r.stop(p, jobs.CauseCancel)
}

func TestACommandHasItsCallersUmaskDirectoryAndLimits(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.tmp, "a dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		umask      uint32
		soft, hard uint64
		want       string
	}{
		{0o022, 100, 200, "0022 100 200"},
		{0o077, 64, 4096, "0077 64 4096"},
		{0o002, 5, 10, "0002 64 64"}, // less than a shim can live with
		{0o777, 300, 0, "0777 300 "},
	} {
		out := r.run(jobs.Spec{Argv: []string{"sh", "-c", "pwd; echo $(umask) $(ulimit -Sn) $(ulimit -Hn)"}, Dir: dir, Umask: c.umask, NoFile: c.soft, NoFileMax: c.hard})
		if !strings.HasPrefix(out, dir+"\n"+c.want) {
			t.Errorf("got %q, want %q", out, c.want)
		}
	}
}

func TestWithoutLimitsACommandHasTheDaemonsOwn(t *testing.T) {
	// Go raises the soft limit of its own process; the one before must be seen.
	out, err := exec.Command("sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := newRig(t).run(jobs.Spec{Argv: []string{"sh", "-c", "ulimit -Sn; ulimit -Hn"}}); got != string(out) {
		t.Errorf("soft and hard limit %q, want %q", got, out)
	}
}

func TestACommandIsLookedUpInItsOwnPath(t *testing.T) {
	r := newRig(t)
	for _, dir := range []string{"one", "two", "two/sub"} {
		if err := os.Mkdir(filepath.Join(r.tmp, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.tmp, name), []byte("#!/bin/sh\necho "+text+" $0\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("one/tool", "denied", 0o644)
	write("two/tool", "two", 0o755)
	write("two/sub/tool", "sub", 0o755)
	two := filepath.Join(r.tmp, "two")
	for name, c := range map[string]struct{ argv0, dir, path, want string }{
		"first that may be run": {"tool", "/", filepath.Join(r.tmp, "one") + ":" + two, "two " + two + "/tool\n"},
		"relative entry":        {"tool", two, "sub", "sub sub/tool\n"},
		"empty entry":           {"tool", two, "/nowhere:", "two ./tool\n"},
		"with a slash":          {"sub/tool", two, "", "sub sub/tool\n"},
	} {
		if got := r.run(jobs.Spec{Argv: []string{c.argv0}, Dir: c.dir}, "PATH="+c.path); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	id := r.prepare(jobs.Spec{Argv: []string{"tool"}}, "PATH="+filepath.Join(r.tmp, "one"))
	if _, err := r.Start(context.Background(), id); err == nil || !strings.HasPrefix(err.Error(), "permission denied: ") {
		t.Errorf("got %v", err)
	}
	// Never in the daemon's.
	t.Setenv("PATH", two+":"+os.Getenv("PATH"))
	id = r.prepare(jobs.Spec{Argv: []string{"tool"}}, "PATH=/usr/bin")
	if _, err := r.Start(context.Background(), id); err == nil || err.Error() != "command not found: tool" {
		t.Errorf("got %v", err)
	}
}

func TestAJobIsKilledForMemoryBeforeItsShim(t *testing.T) {
	r := newRig(t)
	id, p := r.start("cat /proc/self/oom_score_adj; sleep 20")
	eventually(t, "output", func() bool { return r.output(id) != "" })
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", r.shimPID(id)))
	if err != nil {
		t.Fatal(err)
	}
	job, err1 := strconv.Atoi(strings.TrimSpace(r.output(id)))
	sh, err2 := strconv.Atoi(strings.TrimSpace(string(own)))
	if err1 != nil || err2 != nil || job <= sh {
		t.Errorf("the job has %d, its shim %d (%v, %v)", job, sh, err1, err2)
	}
	r.stop(p, jobs.CauseCancel)
}
