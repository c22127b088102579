package shim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jobd/internal/clock"
	"jobd/internal/jobs"
	"jobd/internal/shim"
)

// roleVariable makes the test binary another process of a test.
const roleVariable = "SHIM_TEST_ROLE"

var (
	binDir string // with jobd-shim, and a stand-in for jobd
	now    jobs.Clock
)

func TestMain(m *testing.M) {
	var err error
	if now, err = clock.New(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "shim")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = filepath.Join(dir, "bin")
	for name, pkg := range map[string]string{"jobd-shim": "jobd/cmd/jobd-shim", "jobd": "./testdata/jobd"} {
		args := []string{"build", "-o", filepath.Join(binDir, name)}
		if raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, pkg)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// play is the test binary as another process.
func play(role string) int {
	args := os.Args[1:]
	switch role {
	case "daemon":
		// Starts the prepared job ARGS[2] with shim ARGS[1] from bundles ARGS[0],
		// says so, and stays until it is killed.
		r, err := shim.NewRunner(shim.Options{BundleDir: args[0], ShimPath: args[1], Clock: now})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		p, err := r.Start(context.Background(), args[2])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("started", p.PID())
		time.Sleep(time.Hour)
	case "holder":
		// Holds alive.lock in ARGS[0] until it is killed.
		if _, err := shim.HoldAlive(args[0]); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("holding")
		time.Sleep(time.Hour)
	}
	return 0
}

// again returns the test binary in a role.
func again(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// A rig is a directory of bundles with a runner, for one test.
type rig struct {
	*shim.Runner
	t   testing.TB
	dir string // bundles
	tmp string // anything
}

var jobNumber atomic.Int64

// newRig returns a rig whose jobs are all ended with the test.
func newRig(t testing.TB, change ...func(*shim.Options)) *rig {
	t.Helper()
	top, err := os.MkdirTemp("/tmp", "shimt")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: filepath.Join(top, "bundles"), tmp: filepath.Join(top, "work")}
	if err := os.Mkdir(r.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	o := shim.Options{BundleDir: r.dir, ShimPath: filepath.Join(binDir, "jobd-shim"), Clock: now}
	if raceEnabled {
		// A race ends the shim without a record, so that its test fails; and it does
		// not wait a second at its end for one.
		o.Environ = []string{"GORACE=halt_on_error=1 atexit_sleep_ms=0"}
	}
	for _, f := range change {
		f(&o)
	}
	r.Runner, err = shim.NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ids, err := r.Bundles(context.Background())
		if err != nil {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() { r.end(id) })
		}
		wg.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	return r
}

// end ends whatever a test left of a job.
func (r *rig) end(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if p, err := r.Attach(ctx, id); err == nil {
		_ = p.Stop(ctx, jobs.CauseCancel)
		_, _ = p.Wait(ctx)
	}
	if _, err := r.Sweep(ctx, id); err != nil {
		r.t.Errorf("sweeping %s: %v", id, err)
	}
}

// newID returns an id that no other test process uses.
func newID() string { return fmt.Sprintf("test%d-%d", os.Getpid(), jobNumber.Add(1)) }

// prepare makes the bundle of a job. The environment is a usual one unless the
// spec is changed together with it.
func (r *rig) prepare(spec jobs.Spec, environ ...string) string {
	r.t.Helper()
	id := newID()
	if spec.Dir == "" {
		spec.Dir = r.tmp
	}
	if spec.Name == "" {
		spec.Name = "test"
	}
	if spec.Umask == 0 {
		spec.Umask = 0o022
	}
	if environ == nil {
		environ = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + r.tmp}
	}
	if err := r.Prepare(context.Background(), id, spec, append(environ, "JOBD_JOB_ID="+id)); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// start starts a command line of sh.
func (r *rig) start(script string, change ...func(*jobs.Spec)) (string, jobs.Process) {
	r.t.Helper()
	spec := jobs.Spec{Argv: []string{"sh", "-c", script}}
	for _, f := range change {
		f(&spec)
	}
	id := r.prepare(spec)
	p, err := r.Start(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return id, p
}

// wait returns the end of a job, which must come within the time.
func (r *rig) wait(p jobs.Process, within time.Duration) jobs.Exit {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return exit
}

// output returns all that is kept of a job's output, pieces joined.
func (r *rig) output(id string) string {
	r.t.Helper()
	var all bytes.Buffer
	for at := int64(0); ; {
		c, err := r.ReadOutput(context.Background(), id, at, 1<<20)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(c.Data) == 0 {
			return all.String()
		}
		all.Write(c.Data)
		at = c.Next
	}
}

// eventually calls f until it is true, for at most ten seconds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in ten seconds: %s", what)
		}
	}
}

// shimPID returns the process id of a job's shim.
func (r *rig) shimPID(id string) int {
	r.t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, id, "shim.lock"))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), `"pid":`)
	number, _, ok2 := strings.Cut(rest, ",")
	pid, err := strconv.Atoi(number)
	if !ok || !ok2 || err != nil {
		r.t.Fatalf("no pid in %q", raw)
	}
	return pid
}

// runs reports whether a process runs: a zombie does not.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw[bytes.LastIndexByte(raw, ')'):]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// readPID waits for a file with a process id.
func readPID(t testing.TB, file string) int {
	t.Helper()
	pid := 0
	eventually(t, "a process id in "+file, func() bool {
		raw, err := os.ReadFile(file)
		if err != nil || !bytes.HasSuffix(raw, []byte("\n")) {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	})
	return pid
}

func TestTheExitCodeIsExact(t *testing.T) {
	r := newRig(t)
	for _, code := range []int{0, 1, 7, 127, 128, 255} {
		_, p := r.start(fmt.Sprintf("exit %d", code))
		if exit := r.wait(p, 10*time.Second); exit.Code != code || exit.Signal != 0 || exit.NotStarted != "" || exit.StopFirst {
			t.Errorf("exit %d gave %+v", code, exit)
		}
	}
}

func TestTheSignalIsExact(t *testing.T) {
	r := newRig(t)
	// SIGSTOP and its kind end nothing; SIGCHLD and its kind are ignored by default.
	passing := map[unix.Signal]bool{unix.SIGCHLD: true, unix.SIGCONT: true, unix.SIGSTOP: true, unix.SIGTSTP: true,
		unix.SIGTTIN: true, unix.SIGTTOU: true, unix.SIGURG: true, unix.SIGWINCH: true}
	for sig := unix.Signal(1); sig <= 31; sig++ {
		if passing[sig] {
			continue
		}
		_, p := r.start(fmt.Sprintf("ulimit -c 0; kill -%d $$; sleep 20", sig))
		exit := r.wait(p, 10*time.Second)
		if exit.Signal != int(sig) || exit.SignalName != unix.SignalName(sig) || exit.Code != -1 || exit.StopFirst {
			t.Errorf("signal %d (%s) gave %+v", sig, unix.SignalName(sig), exit)
		}
	}
}

func TestEveryCatchableSignalReachesTheJobsOwnTrap(t *testing.T) {
	// A signal that is ignored when a shell starts can never be trapped by it.
	r := newRig(t)
	for _, name := range []string{"HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "PIPE", "TSTP", "TTIN", "TTOU", "CONT"} {
		_, p := r.start(fmt.Sprintf("trap 'exit 42' %s; kill -%s $$; exit 1", name, name))
		if exit := r.wait(p, 10*time.Second); exit.Code != 42 {
			t.Errorf("SIG%s: %+v", name, exit)
		}
	}
}

func TestWhatCannotBeStartedSaysWhy(t *testing.T) {
	r := newRig(t)
	file := func(name, content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.tmp, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	file("plain", "echo hi\n", 0o644)
	file("orphan", "#!/no/such/interpreter\n", 0o755)
	file("binary", "\x00\x01\x02\x03\x00", 0o755)
	for name, c := range map[string]struct {
		spec jobs.Spec
		want string
	}{
		"unknown":        {jobs.Spec{Argv: []string{"no-such-command-x"}}, "command not found: no-such-command-x"},
		"empty":          {jobs.Spec{Argv: []string{""}}, "command not found"},
		"no file":        {jobs.Spec{Argv: []string{"./missing"}}, "command not found: ./missing"},
		"not executable": {jobs.Spec{Argv: []string{"./plain"}}, "permission denied: ./plain"},
		"directory":      {jobs.Spec{Argv: []string{"/tmp"}}, "cannot run /tmp: it is a directory"},
		"no interpreter": {jobs.Spec{Argv: []string{"./orphan"}}, "interpreter or loader that it names does not exist"},
		"binary":         {jobs.Spec{Argv: []string{"./binary"}}, "not an executable file for this machine"},
		"no directory":   {jobs.Spec{Argv: []string{"true"}, Dir: "/no/such/dir"}, "no such directory: /no/such/dir"},
		"dir is a file":  {jobs.Spec{Argv: []string{"true"}, Dir: filepath.Join(r.tmp, "plain")}, "not a directory: " + filepath.Join(r.tmp, "plain")},
		"too long":       {jobs.Spec{Argv: []string{"true", strings.Repeat("x", 3<<20)}}, "more than the system takes"},
	} {
		t.Run(name, func(t *testing.T) {
			id := r.prepare(c.spec)
			p, err := r.Start(context.Background(), id)
			var je *jobs.Error
			if p != nil || !errors.Is(err, jobs.ErrInvalid) || !errors.As(err, &je) || !strings.Contains(je.Message, c.want) {
				t.Fatalf("Start gave %v, %v; want an ErrInvalid with %q", p, err, c.want)
			}
			eventually(t, "the shim is gone", func() bool {
				rem, err := r.Inspect(context.Background(), id)
				if err != nil {
					t.Fatal(err)
				}
				return !rem.Held
			})
			rem, err := r.Inspect(context.Background(), id)
			if err != nil || rem.Exit == nil || !strings.Contains(rem.Exit.NotStarted, c.want) || rem.Exit.StopFirst || rem.EnvIntact {
				t.Errorf("Inspect gave %+v, %v", rem, err)
			}
			if _, err := os.Stat(filepath.Join(r.dir, id, "env")); !os.IsNotExist(err) {
				t.Errorf("the environment is still there: %v", err)
			}
		})
	}
}

func TestAScriptWithoutAFirstLineRunsAsInAShell(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(filepath.Join(r.tmp, "script"), []byte("echo \"$0 $1\"; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := r.prepare(jobs.Spec{Argv: []string{"./script", "a b"}})
	p, err := r.Start(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 10*time.Second); exit.Code != 3 || r.output(id) != "./script a b\n" {
		t.Errorf("%+v, %q", exit, r.output(id))
	}
}

func TestAJobIsStartedOnlyOnce(t *testing.T) {
	r := newRig(t)
	id, p := r.start("echo once; sleep 0.2")
	if _, err := r.Start(context.Background(), id); !errors.Is(err, jobs.ErrState) {
		t.Errorf("a second start while it runs gave %v", err)
	}
	r.wait(p, 10*time.Second)
	if _, err := r.Start(context.Background(), id); !errors.Is(err, jobs.ErrState) {
		t.Errorf("a second start after it ran gave %v", err)
	}
	if got := r.output(id); got != "once\n" {
		t.Errorf("output %q", got)
	}
}

func TestAMissingShimIsToldAndNothingRan(t *testing.T) {
	r := newRig(t, func(o *shim.Options) { o.ShimPath = "/no/such/jobd-shim" })
	id := r.prepare(jobs.Spec{Argv: []string{"true"}})
	_, err := r.Start(context.Background(), id)
	var je *jobs.Error
	if err == nil || errors.As(err, &je) || !strings.Contains(err.Error(), "/no/such/jobd-shim") {
		t.Fatalf("got %v", err)
	}
	if rem, err := r.Inspect(context.Background(), id); err != nil || rem.Held || rem.Launched || !rem.EnvIntact {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
}

func TestAShimThatDiesBeforeTheLaunchLeavesTheJobAsItWas(t *testing.T) {
	r := newRig(t, func(o *shim.Options) { o.ShimPath = "/bin/false" })
	id := r.prepare(jobs.Spec{Argv: []string{"true"}})
	_, err := r.Start(context.Background(), id)
	if err == nil || errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), "ended before the launch") {
		t.Fatalf("got %v", err)
	}
	if rem, err := r.Inspect(context.Background(), id); err != nil || rem.Held || rem.Launched || !rem.EnvIntact {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
}

func TestPeopleCannotRunTheShim(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"relative"}, {t.TempDir()}, {"a", "b", "c"}} {
		out, err := exec.Command(filepath.Join(binDir, "jobd-shim"), args...).CombinedOutput()
		var ee *exec.ExitError
		if !errors.As(err, &ee) || ee.ExitCode() != 2 || !strings.HasPrefix(string(out), "jobd-shim: ") {
			t.Errorf("%q gave %v, %q", args, err, out)
		}
	}
}

func TestBadSpecsAndIDsAreRefusedAtTheDoor(t *testing.T) {
	r := newRig(t)
	good := jobs.Spec{Argv: []string{"true"}, Dir: "/"}
	for name, c := range map[string]struct {
		id      string
		spec    jobs.Spec
		environ []string
	}{
		"no command":    {newID(), jobs.Spec{Dir: "/"}, nil},
		"relative dir":  {newID(), jobs.Spec{Argv: []string{"true"}, Dir: "x"}, nil},
		"NUL in argv":   {newID(), jobs.Spec{Argv: []string{"a\x00b"}, Dir: "/"}, nil},
		"not UTF-8":     {newID(), jobs.Spec{Argv: []string{"a\xff"}, Dir: "/"}, nil},
		"NUL in env":    {newID(), good, []string{"A=b\x00C=d"}},
		"nameless env":  {newID(), good, []string{"=x"}},
		"env without =": {newID(), good, []string{"secret"}},
		"empty id":      {"", good, nil},
		"path as id":    {"../x", good, nil},
		"dot as id":     {"..", good, nil},
		"long id":       {strings.Repeat("a", 65), good, nil},
	} {
		err := r.Prepare(context.Background(), c.id, c.spec, c.environ)
		if !errors.Is(err, jobs.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s gave %v", name, err)
		}
	}
	if ids, err := r.Bundles(context.Background()); err != nil || len(ids) != 0 {
		t.Errorf("left behind: %v, %v", ids, err)
	}
	id := r.prepare(good)
	if err := r.Prepare(context.Background(), id, good, nil); !errors.Is(err, jobs.ErrState) {
		t.Errorf("an id that is taken gave %v", err)
	}
	if rem, err := r.Inspect(context.Background(), id); err != nil || !rem.EnvIntact {
		t.Errorf("and hurt the first: %+v, %v", rem, err)
	}
}

func TestABundleIsClosedToOthersWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o077, 0o777} {
		old := syscall.Umask(umask)
		r := newRig2(t)
		id := r.prepare(jobs.Spec{Argv: []string{"sh", "-c", "echo x; sleep 20"}, Umask: 0o777})
		p, err := r.Start(context.Background(), id)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(context.Background(), jobs.CauseCancel); err != nil {
			t.Fatal(err)
		}
		r.wait(p, 10*time.Second)
		err = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err == nil && (d.IsDir() && fi.Mode().Perm() != 0o700 || !d.IsDir() && fi.Mode().Perm() != 0o600) {
				t.Errorf("umask %#o: %s has mode %v", umask, path, fi.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// newRig2 is newRig under a umask that keeps others from making directories.
func newRig2(t testing.TB) *rig {
	old := syscall.Umask(0o022)
	r := newRig(t)
	syscall.Umask(old)
	return r
}

func TestDiscardRemovesABundleButNotALiveOne(t *testing.T) {
	r := newRig(t)
	id, p := r.start("sleep 20")
	if err := r.Discard(context.Background(), id); !errors.Is(err, jobs.ErrState) {
		t.Errorf("discarding a live job gave %v", err)
	}
	if err := p.Stop(context.Background(), jobs.CauseCancel); err != nil {
		t.Fatal(err)
	}
	r.wait(p, 10*time.Second)
	for range 2 {
		if err := r.Discard(context.Background(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Inspect(context.Background(), id); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Inspect gave %v", err)
	}
}

func TestADamagedRecordIsNamedAndHidesNoOther(t *testing.T) {
	r := newRig(t)
	id, p := r.start("echo hi; exit 3")
	r.wait(p, 10*time.Second)
	for _, name := range []string{"launch.json", "started.json", "stop", "exit.json"} {
		file := filepath.Join(r.dir, id, name)
		good, err := os.ReadFile(file)
		if err != nil && name != "stop" {
			t.Fatal(err)
		}
		for _, bad := range []string{"{", `{"version":99}`} {
			if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			rem, err := r.Inspect(context.Background(), id)
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v", name, err)
			}
			if rem.Held || !rem.Launched || (rem.Exit == nil) != (name == "exit.json") || (rem.PID == 0) != (name == "started.json") {
				t.Errorf("%s: %+v", name, rem)
			}
			if got := r.output(id); got != "hi\n" {
				t.Errorf("%s: output %q", name, got)
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnEndWhoseRecordIsDamagedIsNotTakenForLost(t *testing.T) {
	r := newRig(t)
	id, p := r.start("while ! test -e go; do sleep 0.01; done")
	// A directory in its place: the shim cannot write, and waits.
	exit := filepath.Join(r.dir, id, "exit.json")
	if err := os.MkdirAll(filepath.Join(exit, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command has ended", func() bool { return !runs(p.PID()) })
	if err := unix.Kill(r.shimPID(id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if e, err := p.Wait(ctx); err == nil || errors.Is(err, jobs.ErrNotFound) || !strings.Contains(err.Error(), exit) {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestWaitingEndsWithItsContextAndTheRunner(t *testing.T) {
	r := newRig(t)
	id, p := r.start("sleep 600")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	got := make(chan error)
	go func() {
		_, err := p.Wait(context.Background())
		got <- err
	}()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil || errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if !runs(p.PID()) {
		t.Error("the job ended with the runner")
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shim is gone", func() bool {
		rem, err := r.Inspect(context.Background(), id)
		return err == nil && !rem.Held
	})
}

func TestSpecIsReadBackAsItWasGiven(t *testing.T) {
	r := newRig(t)
	before := now()
	id := r.prepare(jobs.Spec{Argv: []string{"echo", "a & <b>", "ü\n"}, Group: "g", Timeout: time.Hour, NoFile: 99})
	spec, err := r.Spec(context.Background(), id)
	if err != nil || strings.Join(spec.Argv, "|") != "echo|a & <b>|ü\n" || spec.Group != "g" || spec.Timeout != time.Hour || spec.NoFile != 99 {
		t.Errorf("got %+v, %v", spec, err)
	}
	created, err := r.Created(context.Background(), id)
	if err != nil || created.BootID != before.BootID || created.Run < before.Run || created.Run > now().Run {
		t.Errorf("created %+v, %v", created, err)
	}
	if _, err := r.Spec(context.Background(), "nobody"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an unknown job gave %v", err)
	}
}

// shimIn makes a runner use the binaries in another directory.
func shimIn(bin string) func(*shim.Options) {
	return func(o *shim.Options) { o.ShimPath = filepath.Join(bin, "jobd-shim") }
}
