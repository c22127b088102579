package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"jobd/internal/jobs"
)

// rerunning makes jobs that are run again. again replaces what the supervisor
// asks for the submission.
func rerunning(r *rig) (submit func(*jobs.Submission)) {
	r.again = func(_ context.Context, lost jobs.Job) (jobs.Submission, error) {
		return jobs.Submission{Spec: lost.Spec, Environ: func(string) []string { return nil }, Identity: []byte("same"), Join: true}, nil
	}
	r.restart()
	return func(s *jobs.Submission) { s.Spec.RerunInterrupted, s.Join = true, true }
}

// reboot is a power failure while a job runs, and the daemon of the next boot.
func (r *rig) reboot(ids ...string) {
	r.stop()
	for _, id := range ids {
		r.runner.kill(id)
	}
	r.clock.reboot()
	r.start()
}

// all returns the jobs, oldest first.
func (r *rig) all() []jobs.Job {
	r.t.Helper()
	found, err := r.sup.Jobs(context.Background(), jobs.Filter{})
	if err != nil {
		r.t.Fatal(err)
	}
	for i, j := 0, len(found)-1; i < j; i, j = i+1, j-1 {
		found[i], found[j] = found[j], found[i]
	}
	return found
}

func TestAnInterruptedJobIsRunAgainOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		again := rerunning(r)
		lost := r.submit(again)
		r.is(lost.ID, jobs.Running)
		r.reboot(lost.ID)
		all := r.all()
		if len(all) != 2 {
			t.Fatalf("there are %d jobs", len(all))
		}
		old, fresh := all[0], r.is(all[1].ID, jobs.Running)
		if old.State() != jobs.Lost || !strings.HasSuffix(old.Reason, "the machine was restarted while it ran; it was run again as job "+fresh.ID) {
			t.Errorf("the lost job is %s: %s", old.State(), old.Reason)
		}
		// The same call of the session gets the job that runs now.
		joined, how, err := r.try(again)
		if err != nil || joined.ID != fresh.ID || how != jobs.JoinedSession {
			t.Errorf("the call joined %s by %q, %v", joined.ID, how, err)
		}
		// The next daemon of the same boot runs nothing again.
		r.restart()
		if n := len(r.all()); n != 2 {
			t.Errorf("there are %d jobs", n)
		}
		r.runner.exit(fresh.ID, jobs.Exit{})
		synctest.Wait()
		r.is(fresh.ID, jobs.Succeeded)
	})
}

// A daemon that dies between the new job's row and the old one's end leaves both
// to the next, which makes no third.
func TestARerunThatWasCutShortIsOneJob(t *testing.T) {
	inBubble(t, func(r *rig) {
		again := rerunning(r)
		lost := r.submit(again)
		r.is(lost.ID, jobs.Running)
		r.wrap = func(s jobs.Store) jobs.Store { return &loseless{Store: s} }
		r.reboot(lost.ID)
		r.is(lost.ID, jobs.Running) // its end could not be recorded
		if n := len(r.all()); n != 2 {
			t.Fatalf("there are %d jobs", n)
		}
		fresh := r.all()[1]
		r.wrap = nil
		r.restart()
		r.is(lost.ID, jobs.Lost)
		if all := r.all(); len(all) != 2 || all[1].ID != fresh.ID {
			t.Errorf("there are %d jobs", len(all))
		}
	})
}

// loseless is a store that cannot record the loss of a job.
type loseless struct{ jobs.Store }

func (s *loseless) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	return s.Store.UpdateJob(ctx, id, func(j *jobs.Job) error {
		err := change(j)
		if err == nil && j.State() == jobs.Lost {
			return &jobs.Error{Kind: jobs.ErrUnavailable, Message: "the disk is full"}
		}
		return err
	})
}

func TestAJobIsNotRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *rig) []func(*jobs.Submission)
		before  func(r *rig, id string) // the reboot
		want    string                  // in the reason
	}{
		"that does not ask for it": {func(*rig) []func(*jobs.Submission) {
			return []func(*jobs.Submission){func(s *jobs.Submission) { s.Spec.RerunInterrupted = false }}
		},
			func(*rig, string) {}, "the machine was restarted while it ran"},
		"that was to be stopped": {func(*rig) []func(*jobs.Submission) { return nil },
			func(r *rig, id string) {
				r.runner.disobey(id)
				if _, err := r.sup.Cancel(context.Background(), id, jobs.Cancel{}); err != nil {
					r.t.Fatal(err)
				}
				synctest.Wait()
			}, "the machine was restarted while it ran"},
		"whose file is gone": {func(r *rig) []func(*jobs.Submission) {
			r.again = func(context.Context, jobs.Job) (jobs.Submission, error) {
				return jobs.Submission{}, errors.New("its job file is gone")
			}
			r.restart()
			return nil
		}, func(*rig, string) {}, "it could not be run again: its job file is gone"},
		"again and again": {func(*rig) []func(*jobs.Submission) {
			return []func(*jobs.Submission){func(s *jobs.Submission) { s.Request = "rerun/3/0123" }}
		}, func(*rig, string) {}, "it was run again 3 times in a row and is not run once more"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				again := rerunning(r)
				lost := r.submit(append([]func(*jobs.Submission){again}, c.prepare(r)...)...)
				r.is(lost.ID, jobs.Running)
				c.before(r, lost.ID)
				r.reboot(lost.ID)
				all := r.all()
				if len(all) != 1 || !all[0].State().Final() || !strings.Contains(all[0].Reason, c.want) {
					t.Errorf("there are %d jobs, the first is %s: %s", len(all), all[0].State(), all[0].Reason)
				}
			})
		})
	}
}

// A job that was waiting in the queue is run again as well, and three boots in
// a row are followed.
func TestEveryBootRunsItAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.max = 1
		again := rerunning(r)
		first := r.submit(func(s *jobs.Submission) { s.Identity = []byte("other") })
		r.is(first.ID, jobs.Running)
		queued := r.submit(again)
		r.is(queued.ID, jobs.Queued)
		r.reboot(first.ID)
		for boot := range 4 {
			all := r.all()
			last := all[len(all)-1]
			want := fmt.Sprintf("rerun/%d/", boot+1)
			if boot == 3 {
				if last.State() != jobs.Lost {
					t.Errorf("the job of boot %d is %s", boot, last.State())
				}
				break
			}
			if last.State() != jobs.Running || !strings.HasPrefix(last.Keys.Request, want) {
				t.Fatalf("the job of boot %d is %s, by %q", boot, last.State(), last.Keys.Request)
			}
			r.reboot(last.ID)
		}
		if old := r.job(queued.ID); old.State() != jobs.Failed || !strings.Contains(old.Reason, "nothing ran: the machine was restarted before it was launched; it was run again as job ") {
			t.Errorf("the queued job is %s: %s", old.State(), old.Reason)
		}
	})
}

// A call that would be refused finds a job that is there, and makes none.
func TestACallCanBeForJoiningOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		refusal := errors.New("answers are needed")
		only := func(s *jobs.Submission) { s.Join, s.Refuse = true, refusal }
		if _, _, err := r.try(only); !errors.Is(err, refusal) || len(r.all()) > 0 || len(r.runner.bundles) > 0 {
			t.Fatalf("got %v, %d jobs, %d bundles", err, len(r.all()), len(r.runner.bundles))
		}
		prepared := ""
		j := r.submit(func(s *jobs.Submission) {
			s.Join = true
			s.Prepared = func(id string) error { prepared = id; return nil }
		})
		if prepared != j.ID {
			t.Errorf("prepared %q of %s", prepared, j.ID)
		}
		if got, how, err := r.try(only); err != nil || got.ID != j.ID || how != jobs.JoinedSession {
			t.Errorf("got %s by %q, %v", got.ID, how, err)
		}
		// A bundle that cannot be completed is removed, and there is no job.
		broken := errors.New("disk full")
		_, _, err := r.try(func(s *jobs.Submission) { s.Prepared = func(string) error { return broken } })
		if !errors.Is(err, broken) || len(r.all()) != 1 || len(r.runner.bundles) != 1 {
			t.Errorf("got %v, %d jobs, %d bundles", err, len(r.all()), len(r.runner.bundles))
		}
	})
}
