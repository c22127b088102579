//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// The daemon dies at each step of a job's life, from its submission to its end
// or its cancellation: the job is there once, runs once, and ends as it has to.
func TestDaemonDies_AtEachStepOfAJobsLife(t *testing.T) {
	t.Parallel()
	traced := rig.NewFaulty(t)
	traced.TraceSteps()
	end := func(r *rig.Rig, name string) rig.Job {
		id := asJob(r, name, "echo "+name+" >> runs; echo out; sleep 0.3; exit 7")
		return r.UntilState(30*time.Second, id, "failed")
	}
	cancel := func(r *rig.Rig, name string) rig.Job {
		id := asJob(r, name, "echo "+name+" >> runs; echo out; sleep 300")
		// To look brings back a daemon that died before there was a shim to do it.
		rig.Until(t, 20*time.Second, "the job runs", func() bool { return r.Job(id).State != "" && slices.Contains(r.Lines("runs"), name) })
		r.Jobd("cancel", id)
		return r.UntilState(30*time.Second, id, "cancelled")
	}
	end(traced, "ended")
	cancel(traced, "cancelled")
	steps := map[string]bool{}
	for _, step := range traced.Steps() {
		steps[step] = true
	}
	for _, step := range []string{"submit prepared", "submit committed", "launch recorded", "launch done", "exit seen", "exit recorded", "cancel recorded"} {
		if !steps[step] {
			t.Errorf("there is no step %q among %v", step, steps)
		}
	}

	r := rig.NewFaulty(t)
	n := 0
	for step := range steps {
		for _, live := range []func(*rig.Rig, string) rig.Job{end, cancel} {
			n++
			name := fmt.Sprint("job", n)
			r.DieAt(1, step)
			job := live(r, name)
			if job.State == "failed" && job.Code() != 7 {
				t.Errorf("%s: the job is %+v", step, job)
			}
			if out := r.Jobd("logs", "--raw", job.ID); out != "out\n" {
				t.Errorf("%s: it printed %q", step, out)
			}
			if step == "cancel recorded" && job.State != "cancelled" {
				continue // it ends by itself, so that step does not come
			}
			if left := r.Faults(); len(left) != 0 {
				t.Errorf("the daemon did not die at %v", left)
			}
		}
	}
	runs := r.Lines("runs")
	slices.Sort(runs)
	if jobs := r.Jobs(); len(jobs) != n || len(slices.Compact(runs)) != n || len(r.Lines("runs")) != n {
		t.Errorf("%d jobs were started, there are %d, and they ran %d times: %s", n, len(jobs), len(r.Lines("runs")), strings.Join(runs, " "))
	}
	rig.Until(t, 10*time.Second, "nothing of a job is left", func() bool {
		return len(r.Processes("sleep"))+len(r.Processes("bash"))+len(r.Processes("jobd-shim")) == 0
	})
}
