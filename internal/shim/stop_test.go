package shim_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// stop asks for the end of a job.
func (r *rig) stop(p jobs.Process, cause jobs.Cause) {
	r.t.Helper()
	if err := p.Stop(context.Background(), cause); err != nil {
		r.t.Fatal(err)
	}
}

func short(d time.Duration) func(*jobs.Spec) { return func(s *jobs.Spec) { s.Grace = d } }

func TestAStopEndsTheJobByTERMFirst(t *testing.T) {
	r := newRig(t)
	id, p := r.start("trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
	eventually(t, "ready", func() bool { return r.output(id) == "ready\n" })
	for range 3 {
		r.stop(p, jobs.CauseTimeout)
	}
	r.stop(p, jobs.CauseCancel)
	exit := r.wait(p, 5*time.Second)
	if exit.Code != 9 || !exit.StopFirst || !strings.HasSuffix(r.output(id), "bye\n") {
		t.Errorf("%+v, %q", exit, r.output(id))
	}
	if rem, err := r.Inspect(context.Background(), id); err != nil || rem.StopAsked != jobs.CauseTimeout || rem.Held {
		t.Errorf("the first cause must stay: %+v, %v", rem, err)
	}
	r.stop(p, jobs.CauseCancel) // after the end it is no error
}

func TestAStopWithAnUnknownCauseIsRefused(t *testing.T) {
	r := newRig(t)
	_, p := r.start("sleep 20")
	if err := p.Stop(context.Background(), "whim"); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestAJobThatIgnoresTERMIsKilledAfterTheGrace(t *testing.T) {
	r := newRig(t)
	id, p := r.start("trap '' TERM; echo ready; while :; do sleep 1; done", short(300*time.Millisecond))
	eventually(t, "ready", func() bool { return r.output(id) == "ready\n" })
	begun := time.Now()
	r.stop(p, jobs.CauseCancel)
	exit := r.wait(p, 5*time.Second)
	if exit.Signal != int(unix.SIGKILL) || !exit.StopFirst {
		t.Errorf("%+v", exit)
	}
	if d := time.Since(begun); d < 300*time.Millisecond {
		t.Errorf("killed after %v, before its grace was over", d)
	}
}

func TestAStoppedJobIsContinuedToHandleTERM(t *testing.T) {
	r := newRig(t)
	id, p := r.start("trap 'exit 5' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done")
	eventually(t, "ready", func() bool { return r.output(id) == "ready\n" })
	r.stop(p, jobs.CauseCancel)
	if exit := r.wait(p, 5*time.Second); exit.Code != 5 || !exit.StopFirst {
		t.Errorf("%+v", exit)
	}
}

func TestAJobThatEndedFirstKeepsItsOwnEnd(t *testing.T) {
	r := newRig(t)
	// It leaves something behind that keeps the shim busy for two seconds.
	id, p := r.start("(trap '' TERM; while :; do sleep 1; done) & exit 4")
	eventually(t, "the record of the end", func() bool {
		rem, err := r.Inspect(context.Background(), id)
		return err == nil && rem.Exit != nil
	})
	r.stop(p, jobs.CauseCancel)
	if exit := r.wait(p, 8*time.Second); exit.Code != 4 || exit.StopFirst {
		t.Errorf("%+v", exit)
	}
}

// The ways in which processes try to leave the job that started them.
var escapes = map[string]string{
	"child":         `sh -c 'echo $$ >PID; exec sleep 600' &`,
	"grandchild":    `sh -c "sh -c 'echo \$\$ >PID; exec sleep 600' & sleep 600" &`,
	"nohup":         `nohup sh -c 'echo $$ >PID; exec sleep 600' >/dev/null 2>&1 &`,
	"setsid":        `setsid sh -c 'echo $$ >PID; exec sleep 600' &`,
	"setsid fork":   `setsid -f sh -c 'echo $$ >PID; exec sleep 600'`,
	"double fork":   `(setsid sh -c "sh -c 'echo \$\$ >PID; exec sleep 600' &" &)`,
	"no mark":       `env -i setsid -f /bin/sh -c 'echo $$ >PID; exec sleep 600'`,
	"no mark twice": `env -i setsid -f setsid -f /bin/sh -c 'echo $$ >PID; exec sleep 600'`,
	"ignores TERM":  `setsid -f sh -c 'trap "" TERM HUP; echo $$ >PID; while :; do sleep 1; done'`,
	"stopped":       `setsid -f sh -c 'echo $$ >PID; kill -STOP $$'`,
	"named jobd":    `cp /bin/sleep jobd; setsid -f sh -c 'echo $$ >PID; exec ./jobd 600'`,
	"no leader":     `sh -c 'echo $$ >PID; exec BIN/jobd sleep' &`,
}

// escape returns the script of one way, and the file it writes its pid to.
func (r *rig) escape(name string) (script, file string) {
	file = filepath.Join(r.tmp, strings.ReplaceAll(name, " ", "-")+".pid")
	return strings.NewReplacer("PID", file, "BIN", binDir).Replace(escapes[name]), file
}

func TestAStopLeavesNoProcessOfTheJob(t *testing.T) {
	for name := range escapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			script, file := r.escape(name)
			_, p := r.start(script+"\nsleep 600", short(500*time.Millisecond))
			pid := readPID(t, file)
			if !runs(pid) {
				t.Fatal("it does not even run")
			}
			r.stop(p, jobs.CauseCancel)
			exit := r.wait(p, 8*time.Second)
			if exit.Signal != int(unix.SIGTERM) || !exit.StopFirst {
				t.Errorf("%+v", exit)
			}
			if runs(pid) {
				t.Errorf("process %d lives on", pid)
			}
		})
	}
}

func TestANormalEndLeavesNoProcessOfTheJob(t *testing.T) {
	for name := range escapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			script, file := r.escape(name)
			_, p := r.start(script + "\nwhile ! test -s " + file + "; do sleep 0.01; done; exit 6")
			pid := readPID(t, file)
			exit := r.wait(p, 8*time.Second)
			if exit.Code != 6 || exit.StopFirst {
				t.Errorf("%+v", exit)
			}
			if runs(pid) {
				t.Errorf("process %d lives on", pid)
			}
		})
	}
}

func TestALeftOverThatHandlesTERMIsGivenTheTime(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.tmp, "saved")
	_, p := r.start("(trap 'sleep 0.5; echo saved >" + file + "; exit' TERM; echo up >" + file + ".up; while :; do sleep 0.01; done) & while ! test -s " + file + ".up; do sleep 0.01; done")
	if exit := r.wait(p, 8*time.Second); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "saved\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestAStopGivesItsGraceToTheWholeGroup(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.tmp, "saved")
	// The shell dies of TERM at once; what it ran needs longer than left-overs get.
	_, p := r.start("sh -c 'trap \"sleep 3; echo saved >"+file+"; exit\" TERM; echo up >"+file+".up; while :; do sleep 0.01; done' & wait", short(8*time.Second))
	eventually(t, "up", func() bool { _, err := os.Stat(file + ".up"); return err == nil })
	r.stop(p, jobs.CauseCancel)
	if exit := r.wait(p, 15*time.Second); exit.Signal != int(unix.SIGTERM) || !exit.StopFirst {
		t.Errorf("%+v", exit)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "saved\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

func TestAGrandchildThatHoldsThePipeDoesNotDelayTheEnd(t *testing.T) {
	r := newRig(t)
	begun := time.Now()
	id, p := r.start("sleep 600 & echo hi; exit 3")
	exit := r.wait(p, 5*time.Second)
	if d := time.Since(begun); exit.Code != 3 || d > time.Second {
		t.Errorf("%+v after %v", exit, d)
	}
	if got := r.output(id); got != "hi\n" {
		t.Errorf("output %q", got)
	}
}

func TestAFloodOfAGrandchildDoesNotDelayTheRecord(t *testing.T) {
	r := newRig(t)
	id, _ := r.start("(trap '' TERM; yes) & exit 3")
	begun := time.Now()
	eventually(t, "the record of the end", func() bool {
		rem, err := r.Inspect(context.Background(), id)
		return err == nil && rem.Exit != nil && rem.Exit.Code == 3
	})
	if d := time.Since(begun); d > time.Second {
		t.Errorf("known after %v", d)
	}
}

func TestAStopBeforeTheLaunchRunsNothing(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.tmp, "ran")
	id := r.prepare(jobs.Spec{Argv: []string{"touch", file}})
	record := `{"version":1,"cause":"cancel","at":{"wall":"2026-01-02T03:04:05Z","run_ns":1,"boot_ns":2,"boot_id":"b"}}`
	if err := os.WriteFile(filepath.Join(r.dir, id, "stop"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := r.Start(context.Background(), id)
	if !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), "stopped before it was started") {
		t.Errorf("Start gave %v", err)
	}
	eventually(t, "the shim is gone", func() bool {
		rem, err := r.Inspect(context.Background(), id)
		return err == nil && !rem.Held
	})
	rem, err := r.Inspect(context.Background(), id)
	if err != nil || rem.Exit == nil || rem.Exit.NotStarted == "" || !rem.Exit.StopFirst || rem.EnvIntact || rem.StopAsked != jobs.CauseCancel {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it ran: %v", err)
	}
}

func TestATERMWithoutAStopIsHandedOnToTheJob(t *testing.T) {
	r := newRig(t)
	id, p := r.start("trap 'echo got it' TERM; echo ready; while ! test -e go; do sleep 0.01; done; exit 8", short(time.Millisecond))
	eventually(t, "ready", func() bool { return r.output(id) == "ready\n" })
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1} {
		if err := unix.Kill(r.shimPID(id), sig); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the trap has run", func() bool { return strings.Contains(r.output(id), "got it\n") })
	if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 5*time.Second); exit.Code != 8 || exit.StopFirst {
		t.Errorf("the job's own end must decide: %+v", exit)
	}
}

// standIn starts the job in another process that is killed by the test.
func (r *rig) standIn(id string) *exec.Cmd {
	r.t.Helper()
	cmd := again("daemon", r.dir, filepath.Join(binDir, "jobd-shim"), id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "started ") {
		r.t.Fatalf("the stand-in said %q, %v", line, err)
	}
	return cmd
}

func TestAJobOutlivesItsDaemonAndIsFoundAgain(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		stop   bool
		check  func(jobs.Exit) bool
	}{
		"exit code": {"while ! test -e go; do sleep 0.01; done; exit 7", false, func(e jobs.Exit) bool { return e.Code == 7 && !e.StopFirst }},
		"signal":    {"while ! test -e go; do sleep 0.01; done; kill -9 $$", false, func(e jobs.Exit) bool { return e.Signal == 9 && !e.StopFirst }},
		"stop":      {"sleep 600", true, func(e jobs.Exit) bool { return e.Signal == 15 && e.StopFirst }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			id := r.prepare(jobs.Spec{Argv: []string{"sh", "-c", c.script}})
			daemon := r.standIn(id)
			if err := daemon.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = daemon.Wait()
			p, err := r.Attach(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			if !runs(p.PID()) {
				t.Errorf("the command's process %d does not run", p.PID())
			}
			rem, err := r.Inspect(context.Background(), id)
			if err != nil || !rem.Held || !rem.Launched || rem.PID != p.PID() || rem.Exit != nil || rem.EnvIntact || rem.Started.BootID != now().BootID {
				t.Errorf("Inspect gave %+v, %v", rem, err)
			}
			if c.stop {
				r.stop(p, jobs.CauseCancel)
			} else if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if exit := r.wait(p, 10*time.Second); !c.check(exit) {
				t.Errorf("%+v", exit)
			}
			if _, err := r.Attach(context.Background(), id); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("attaching afterwards gave %v", err)
			}
		})
	}
}

func TestTheEndIsRightWhenTheDaemonDiesAtTheSameMoment(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		id := r.prepare(jobs.Spec{Argv: []string{"sh", "-c", "sleep 0.03; exit 7"}})
		daemon := r.standIn(id)
		time.Sleep(time.Duration(25+i/2) * time.Millisecond) // around the job's end
		if err := daemon.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = daemon.Wait()
		var exit jobs.Exit
		if p, err := r.Attach(context.Background(), id); err == nil {
			exit = r.wait(p, 10*time.Second)
		} else if rem, ierr := r.Inspect(context.Background(), id); errors.Is(err, jobs.ErrNotFound) && ierr == nil && rem.Exit != nil {
			exit = *rem.Exit
		} else {
			t.Fatalf("%v, %v", err, ierr)
		}
		if exit.Code != 7 {
			t.Errorf("round %d: %+v", i, exit)
		}
	}
}

func TestAKilledShimLeavesNoRecordAndItsJobIsSwept(t *testing.T) {
	r := newRig(t)
	var script strings.Builder
	files := map[string]string{}
	for name := range escapes {
		if strings.HasPrefix(name, "no mark") {
			continue // with parent, session and environment gone nothing is left to know them by
		}
		s, file := r.escape(name)
		fmt.Fprintln(&script, s)
		files[name] = file
	}
	id, p := r.start(script.String() + "\nsleep 600")
	pids := map[string]int{"main": p.PID()}
	for name, file := range files {
		pids[name] = readPID(t, file)
	}
	if _, err := r.Sweep(context.Background(), id); !errors.Is(err, jobs.ErrState) {
		t.Errorf("sweeping under a live shim gave %v", err)
	}
	if err := unix.Kill(r.shimPID(id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if exit, err := p.Wait(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Wait gave %+v, %v", exit, err)
	}
	if _, err := r.Attach(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Attach gave %v", err)
	}
	rem, err := r.Inspect(ctx, id)
	if err != nil || rem.Held || !rem.Launched || rem.Exit != nil {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
	n, err := r.Sweep(ctx, id)
	if err != nil || n < len(pids) {
		t.Errorf("swept %d processes of at least %d, %v", n, len(pids), err)
	}
	for name, pid := range pids {
		if runs(pid) {
			t.Errorf("%s (%d) lives on", name, pid)
		}
	}
	if n, err := r.Sweep(ctx, id); n != 0 || err != nil {
		t.Errorf("a second sweep found %d, %v", n, err)
	}
}

func TestASweepOfAnotherBootTouchesNothing(t *testing.T) {
	r := newRig(t)
	id, p := r.start("sleep 600")
	if err := unix.Kill(r.shimPID(id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	lock := filepath.Join(r.dir, id, "shim.lock")
	raw, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(raw, []byte(now().BootID), []byte("another-boot"), 1)
	if err := os.WriteFile(lock, other, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Sweep(ctx, id); n != 0 || err != nil || !runs(p.PID()) {
		t.Errorf("swept %d, %v; the process runs: %t", n, err, runs(p.PID()))
	}
	if err := os.WriteFile(lock, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Sweep(ctx, id); n == 0 || err != nil || runs(p.PID()) {
		t.Errorf("swept %d, %v; the process runs: %t", n, err, runs(p.PID()))
	}
}

func TestAPidThatWasUsedAgainIsNoShim(t *testing.T) {
	r := newRig(t)
	id, p := r.start("sleep 600")
	lock := filepath.Join(r.dir, id, "shim.lock")
	raw, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	// The record names this process: it lives, and is not the shim.
	forged := strings.Replace(string(raw), fmt.Sprintf(`"pid":%d`, r.shimPID(id)), fmt.Sprintf(`"pid":%d`, os.Getpid()), 1)
	if err := os.WriteFile(lock, []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	if q, err := r.Attach(context.Background(), id); err == nil || errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Attach gave %v, %v", q, err)
	}
	if err := os.WriteFile(lock, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	r.stop(p, jobs.CauseCancel)
	r.wait(p, 10*time.Second)
}

func TestDaemonsBelowAJobAreSpared(t *testing.T) {
	r := newRig(t)
	state := filepath.Join(r.tmp, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	// A daemon below the job, with a child of its own, and beside it the same
	// program as no session leader.
	id, p := r.start(fmt.Sprintf(`XDG_STATE_HOME=%s setsid -f %s/jobd daemon
		%s/jobd sleep & echo $! >%s/plain.pid
		setsid -f sh -c 'echo $$ >%s/shell.pid; exec sleep 600'
		while ! test -s %s/daemon.pid; do sleep 0.01; done; exit 0`, state, binDir, binDir, r.tmp, r.tmp, state), short(100*time.Millisecond))
	daemon := readPID(t, filepath.Join(state, "daemon.pid"))
	t.Cleanup(func() { _ = unix.Kill(daemon, unix.SIGKILL) })
	if exit := r.wait(p, 10*time.Second); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	if !runs(daemon) {
		t.Error("the daemon was killed with the job")
	}
	for _, name := range []string{"plain", "shell"} {
		if pid := readPID(t, filepath.Join(r.tmp, name+".pid")); runs(pid) {
			t.Errorf("%s (%d) lives on", name, pid)
		}
	}
	if n, err := r.Sweep(context.Background(), id); n != 0 || err != nil || !runs(daemon) {
		t.Errorf("a sweep killed %d, %v; the daemon runs: %t", n, err, runs(daemon))
	}
}

func TestADaemonIsSparedAfterItsBinaryWasReplaced(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "bin")
	if out, err := exec.Command("cp", "-r", binDir, bin).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	r := newRig(t, shimIn(bin))
	state := filepath.Join(r.tmp, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	_, p := r.start(fmt.Sprintf("XDG_STATE_HOME=%s setsid -f %s/jobd daemon; sleep 600", state, bin))
	daemon := readPID(t, filepath.Join(state, "daemon.pid"))
	t.Cleanup(func() { _ = unix.Kill(daemon, unix.SIGKILL) })
	for _, name := range []string{"jobd", "jobd-shim"} {
		if err := os.Remove(filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte("newer"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.stop(p, jobs.CauseCancel)
	if exit := r.wait(p, 10*time.Second); exit.Signal != int(unix.SIGTERM) || !exit.StopFirst {
		t.Errorf("%+v", exit)
	}
	if !runs(daemon) {
		t.Error("the daemon was killed with the job")
	}
}

func TestNoZombieIsLeft(t *testing.T) {
	r := newRig(t)
	var pids []int
	for range 20 {
		id := r.prepare(jobs.Spec{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5; do setsid -f true; (true &) ; done; exit 0"}})
		p, err := r.Start(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, r.shimPID(id))
		r.wait(p, 10*time.Second)
	}
	for _, pid := range pids {
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("the shim %d was not reaped: %d, %v", pid, got, err)
		}
	}
}

func TestTheShimReapsTheOrphansOfALongJob(t *testing.T) {
	r := newRig(t)
	id, _ := r.start("for i in 1 2 3 4 5 6 7 8; do setsid -f true; done; echo done; sleep 600")
	eventually(t, "done", func() bool { return r.output(id) == "done\n" })
	shimPID := r.shimPID(id)
	eventually(t, "no zombie below the shim", func() bool {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil || len(stats) == 0 {
			t.Fatalf("there is no process table: %v", err)
		}
		zombie := fmt.Sprintf(") Z %d ", shimPID)
		return !slices.ContainsFunc(stats, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(stat), zombie)
		})
	})
}
