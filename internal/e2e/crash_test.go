//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/e2e/rig"
)

// An expectation is a job whose end is known beforehand.
type expectation struct {
	id   string
	code int
}

// script counts a job's runs in the file "runs" and ends with a known code.
func script(name string, seconds float64, code int) string {
	return fmt.Sprintf("echo %s >> runs; sleep %g; exit %d", name, seconds, code)
}

// came checks that every job ended with its exit code and ran exactly once.
func came(t *testing.T, r *rig.Rig, jobs map[string]expectation) {
	t.Helper()
	for name, want := range jobs {
		rig.Until(t, time.Minute, "job "+name+" has ended", func() bool { return r.Job(want.id).Final() })
		job := r.Job(want.id)
		state := "succeeded"
		if want.code != 0 {
			state = "failed"
		}
		if job.State != state || job.Code() != want.code {
			t.Errorf("job %s is %s with exit code %d, not %s with %d: %s", name, job.State, job.Code(), state, want.code, job.StatusMessage)
		}
	}
	runs := map[string]int{}
	for _, name := range r.Lines("runs") {
		runs[name]++
	}
	for name := range jobs {
		if runs[name] != 1 {
			t.Errorf("job %s ran %d times", name, runs[name])
		}
	}
	if len(runs) != len(jobs) {
		t.Errorf("%d jobs ran, %d were accepted", len(runs), len(jobs))
	}
}

// The daemon dies with jobs running and queued, and nobody asks for it: the
// jobs go on, their shims bring the daemon back, and it hangs under none.
func TestDaemonIsKilled_JobsRunOnAndTheDaemonComesBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	front := r.Front("session")
	jobs := map[string]expectation{}
	// All at once: a job that waits in the queue is answered after a second.
	answers := make([]<-chan rig.Message, 9)
	for i := range answers {
		name := fmt.Sprintf("job%d", i)
		answers[i] = front.Start("tools/call", map[string]any{"name": "run_job",
			"arguments": map[string]any{"command": script(name, 3, i), "name": name}})
	}
	for i, answer := range answers {
		m, ok := <-answer
		if !ok {
			t.Fatal("mcp-stdio ended")
		}
		jobs[fmt.Sprintf("job%d", i)] = expectation{front.Result(m).TaskID, i}
	}
	running, queued := 0, 0
	for _, job := range r.Jobs() {
		switch job.State {
		case "starting", "running":
			running++
		case "queued":
			queued++
		}
	}
	if running != 3 || queued != 6 {
		t.Errorf("%d jobs run and %d are queued", running, queued)
	}

	killed := r.KillDaemon()
	// Nobody dials now, so only a shim can have started the next one.
	var daemon int
	rig.Until(t, 20*time.Second, "there is a daemon again", func() bool {
		status, err := r.Ask()
		daemon = status.PID
		return err == nil && daemon != killed
	})
	free(t, daemon)
	came(t, r, jobs)
	if now := r.Daemon(); now != daemon {
		t.Errorf("the daemon %d ended with the job whose shim started it", daemon)
	}
	for name, want := range jobs {
		task := front.Task(want.id)
		if task.Status != "completed" || task.Result == nil || task.Result.IsError != (want.code != 0) {
			t.Errorf("task %s is %+v", name, task)
		}
	}
	if left := r.Processes("jobd-shim"); len(left) != 0 {
		t.Errorf("shims are left: %v", left)
	}
}

// The daemon dies again and again while jobs are accepted and launched. What
// was accepted runs once and ends as it should.
func TestDaemonIsKilled_WhileJobsAreLaunched(t *testing.T) {
	t.Parallel()
	const submitters, each = 4, 15
	r := rig.New(t)
	r.Jobd("start")

	var mu sync.Mutex
	jobs := map[string]expectation{}
	var all sync.WaitGroup
	for s := range submitters {
		all.Go(func() {
			for i := range each {
				name, code := fmt.Sprintf("job%d-%d", s, i), (s+i)%5
				submit(t, r, name, script(name, 0.2, code))
				mu.Lock()
				jobs[name] = expectation{"", code}
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	kills := 0
	for loop := true; loop; {
		select {
		case <-done:
			loop = false
		case <-time.After(time.Duration(40+23*kills%80) * time.Millisecond):
			if status, err := r.Ask(); err == nil && syscall.Kill(status.PID, syscall.SIGKILL) == nil {
				kills++
			}
		}
	}
	t.Logf("the daemon was killed %d times during %d submissions", kills, len(jobs))
	if kills < 3 { // a fast machine is done soon
		t.Errorf("the daemon was killed only %d times", kills)
	}
	for _, job := range r.Jobs() {
		want, ok := jobs[job.Name]
		if !ok || want.id != "" {
			t.Errorf("job %s is there twice, or was never accepted: %s", job.Name, job.ID)
		}
		jobs[job.Name] = expectation{job.ID, want.code}
	}
	came(t, r, jobs)
}

// submit starts a job by the command line. A person whose jobd was killed under
// them says it again, with the same key.
func submit(t *testing.T, r *rig.Rig, name, command string) {
	t.Helper()
	var out rig.Outcome
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out = rig.Run(t, r.Command(ctx, "jobd", "run", "--name", name, "--key", name, "--", "bash", "-c", command))
		cancel()
		if out.Code == 0 {
			return
		}
		t.Logf("jobd run of %s ended with %d: %s", name, out.Code, out.Stderr)
	}
	t.Errorf("jobd run of %s ended with %d, five times: %s", name, out.Code, out.Stderr)
}

// A job that runs jobd itself, with the daemon dead, must not become the
// daemon's parent or leave its environment to it.
func TestDaemon_IsNotStartedByAJob(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	r.Jobd("start")
	r.Write("daemon.pid", fmt.Sprint(r.Daemon()), 0o600)
	id := front.Run(map[string]any{"command": "sleep 1; kill -9 $(cat daemon.pid); jobd status --json --all > seen.tmp; mv seen.tmp seen; sleep 300"})
	rig.Until(t, 30*time.Second, "the job has asked for the status", func() bool { return len(r.Lines("seen")) > 0 })
	if seen := strings.Join(r.Lines("seen"), "\n"); !strings.Contains(seen, id) {
		t.Errorf("the job saw %s", seen)
	}
	daemon := r.Daemon()
	free(t, daemon)
	// If the daemon hung under the job, the job's end would be its end too.
	r.Jobd("cancel", id)
	r.UntilState(30*time.Second, id, "cancelled")
	if now := r.Daemon(); now != daemon {
		t.Errorf("the daemon %d ended with the job", daemon)
	}
}

// free checks that a daemon has a session of its own and nothing of a job.
func free(t *testing.T, daemon int) {
	t.Helper()
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", daemon))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(environ), "JOBD_JOB_ID=") {
		t.Errorf("the daemon has the environment of a job: %q", environ)
	}
	if session, err := unix.Getsid(daemon); err != nil || session != daemon {
		t.Errorf("the daemon %d is in session %d (%v)", daemon, session, err)
	}
}
