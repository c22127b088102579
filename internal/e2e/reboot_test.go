//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// killAll ends everything in the rig by KILL at once, as the end of a machine
// or of a login does.
func killAll(t *testing.T, r *rig.Rig) {
	t.Helper()
	rig.Until(t, 10*time.Second, "no process is left", func() bool {
		left := r.Processes("")
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}

// asJob starts a job by the command line and returns its id.
func asJob(r *rig.Rig, name, command string) string {
	return strings.TrimSpace(r.Jobd("run", "--name", name, "--", "bash", "-c", command))
}

// The machine is started anew in the middle of everything. Nothing runs until
// somebody comes; then each job has the state that is true, and none runs again.
func TestReboot_EveryJobHasItsTrueState(t *testing.T) {
	t.Parallel()
	r := rig.NewFaulty(t)
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.SetClock("boot first")
	r.Jobd("start")
	ran := func(name string) int {
		n := 0
		for _, line := range r.Lines("runs") {
			if line == name {
				n++
			}
		}
		return n
	}
	start := func(name, command string) string { return asJob(r, name, "echo "+name+" >> runs; "+command) }

	done := start("done", "exit 3")
	r.UntilState(20*time.Second, done, "failed")
	cancelled := start("cancelled", "sleep 300")
	r.UntilState(20*time.Second, cancelled, "running")
	r.Jobd("cancel", cancelled)
	r.UntilState(20*time.Second, cancelled, "cancelled")
	// Its end is recorded by its shim, and no daemon has seen it.
	unseen := start("unseen", "while [ ! -e go ]; do sleep 0.02; done; echo last words; exit 42")
	running := start("running", "sleep 300")
	waiting := start("waiting", "jobd ask 'Go on?' --field yes:boolean --timeout 30m; sleep 300")
	stubborn := start("stubborn", "trap '' TERM; while :; do sleep 1; done")
	for _, id := range []string{unseen, running, stubborn} {
		r.UntilState(20*time.Second, id, "running")
	}
	r.UntilState(20*time.Second, waiting, "waiting")
	// Places are taken by running, unseen, stubborn and one more.
	more := start("more", "sleep 300")
	r.UntilState(20*time.Second, more, "running")
	queued := start("queued", "exit 0")
	if state := r.Job(queued).State; state != "queued" {
		t.Fatalf("the last job is %s", state)
	}
	rig.Until(t, 10*time.Second, "the jobs run", func() bool { return ran("stubborn") == 1 && ran("more") == 1 })
	r.Jobd("cancel", stubborn)
	if state := r.Job(stubborn).State; state != "stopping" {
		t.Errorf("the job that does not stop is %s", state)
	}
	finals := map[string]rig.Job{done: r.Job(done), cancelled: r.Job(cancelled)}

	// The daemon goes first, and cannot be brought back, so that the end of one
	// job is its shim's alone to tell.
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.KillDaemon()
	r.Write("go", "", 0o600)
	record := r.State + "/bundles/" + unseen + "/exit.json"
	rig.Until(t, 20*time.Second, "the shim has recorded the end", func() bool { _, err := os.Stat(record); return err == nil })
	killAll(t, r)
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.SetClock("boot second")
	if left := r.Processes(""); len(left) != 0 {
		t.Errorf("something runs before anybody came: %v", left)
	}

	r.Jobd("start")
	for _, want := range []struct {
		id, name, state, says string
		code, runs            int
	}{
		{done, "done", "failed", "exit code 3", 3, 1},
		{cancelled, "cancelled", "cancelled", "", -1, 1},
		{unseen, "unseen", "failed", "exit code 42", 42, 1},
		{running, "running", "lost", "the machine was restarted while it ran", -1, 1},
		{waiting, "waiting", "lost", "the machine was restarted while it ran", -1, 1},
		{stubborn, "stubborn", "lost", "the machine was restarted while it ran", -1, 1},
		{more, "more", "lost", "the machine was restarted while it ran", -1, 1},
		{queued, "queued", "failed", "never started, nothing ran: the machine was restarted before it was launched", -1, 0},
	} {
		job := r.UntilState(20*time.Second, want.id, want.state)
		if job.Code() != want.code || !strings.Contains(job.StatusMessage, want.says) || job.EndedAt == nil {
			t.Errorf("%s is %+v", want.name, job)
		}
		if n := ran(want.name); n != want.runs {
			t.Errorf("%s ran %d times", want.name, n)
		}
		if before, ok := finals[want.id]; ok && fmt.Sprint(*before.EndedAt, before.State) != fmt.Sprint(*job.EndedAt, job.State) {
			t.Errorf("%s has changed after its end: %+v, %+v", want.name, before, job)
		}
	}
	if out := r.Jobd("logs", "--raw", unseen); out != "last words\n" {
		t.Errorf("the output is %q", out)
	}
	// It works as before.
	r.Jobd("run", "--wait", "--", "true")
	if n := len(r.Lines("runs")); n != 7 {
		t.Errorf("jobs ran %d times, not 7", n)
	}
}

// A logout that ends everything of the user ends the jobs too. Nobody takes
// them for running afterwards, though the machine is the same.
func TestLogout_EndedJobsAreNotTakenForRunning(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	running := asJob(r, "running", "echo running >> runs; sleep 300")
	r.UntilState(20*time.Second, running, "running")
	queued := asJob(r, "queued", "echo queued >> runs")
	killAll(t, r)

	if job := r.UntilState(20*time.Second, running, "lost"); !strings.Contains(job.StatusMessage, "its shim was killed") {
		t.Errorf("the job that ran says %q", job.StatusMessage)
	}
	// What had not begun runs now, once: nothing is unknown about it.
	r.UntilState(20*time.Second, queued, "succeeded")
	if runs := strings.Join(r.Lines("runs"), " "); runs != "running queued" {
		t.Errorf("what ran: %s", runs)
	}
}

// The wall clock is set wrong, and right again, while jobs run and a question is
// open: neither run time nor deadline takes notice. They do of sleep.
func TestClock_IsSteppedAndTheMachineSleeps(t *testing.T) {
	t.Parallel()
	r := rig.NewFaulty(t)
	r.Jobd("start")
	timed := strings.TrimSpace(r.Jobd("run", "--timeout", "30m", "--", "sleep", "300"))
	asks := asJob(r, "asks", "jobd ask 'Go on?' --field yes:boolean --timeout 40m --on-timeout continue; echo $? > code; sleep 300")
	r.UntilState(20*time.Second, timed, "running")
	r.UntilState(20*time.Second, asks, "waiting")
	steady := func(what string) {
		t.Helper()
		// Deadlines are looked at when a daemon starts, and every 15 seconds.
		r.Jobd("restart")
		if job := r.Job(timed); job.State != "running" {
			t.Errorf("%s: the job is %s (%s)", what, job.State, job.StatusMessage)
		}
		if job := r.Job(asks); job.State != "waiting" {
			t.Errorf("%s: the job that asks is %s (%s)", what, job.State, job.StatusMessage)
		}
	}
	r.SetClock("wall 48h")
	steady("two days ahead")
	r.SetClock("wall -48h")
	steady("two days behind")
	r.SetClock("sleep 35m")
	steady("35 minutes asleep")
	r.SetClock("sleep 45m")
	// The question's deadline passed in sleep; run time did not.
	rig.Until(t, 30*time.Second, "the asker was told that nobody answered", func() bool { return strings.Join(r.Lines("code"), "") == "12" })
	if job := r.UntilState(20*time.Second, asks, "running"); job.Final() {
		t.Errorf("the job that asks is %+v", job)
	}
	if job := r.Job(timed); job.State != "running" {
		t.Errorf("the job is %s (%s)", job.State, job.StatusMessage)
	}
}
