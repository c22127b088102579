package jobs_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

// harm changes the row of a job as a failing disk would.
func (r *rig) harm(id, assignment string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA ignore_check_constraints = 1", "UPDATE jobs SET " + assignment + " WHERE id = '" + id + "'"} {
		if _, err := db.Exec(statement); err != nil {
			r.t.Fatal(err)
		}
	}
}

// setAside checks that the row of a job, and of no other, was set aside.
func (r *rig) setAside(id string) {
	r.t.Helper()
	found, err := filepath.Glob(r.path + ".damaged-*")
	if err != nil || len(found) != 1 || !strings.HasSuffix(found[0], id) {
		r.t.Fatalf("set aside: %v, %v", found, err)
	}
	if text, err := os.ReadFile(found[0]); err != nil || !strings.Contains(string(text), `"job": "`+id+`"`) {
		r.t.Errorf("%s: %s, %v", found[0], text, err)
	}
}

// The ways to damage a row that a test goes through.
var harms = map[string]string{
	"unknown state":       "state = 'odd'",
	"spec changed":        "spec = replace(spec, 'true', 'trve')",
	"no revision":         "revision = 0",
	"no instant":          "updated = 'yesterday'",
	"not even its origin": "created = 'x', launched = 'x', started = 'x', spec = '{', request_key = NULL",
}

func TestADamagedRowOfALiveJobIsMadeAnewAndTheJobGoesOn(t *testing.T) {
	for name, harm := range harms {
		for when, meet := range map[string]func(r *rig, id string){
			"and it ends":        func(*rig, string) {},
			"and it is read":     func(r *rig, id string) { r.is(id, jobs.Running) },
			"and it is found":    func(r *rig, id string) { _, _ = r.sup.FindJob(context.Background(), id[:12]) },
			"and it is listed":   func(r *rig, _ string) { _, _ = r.sup.Jobs(context.Background(), jobs.Filter{}) },
			"and reports":        func(r *rig, id string) { _ = r.sup.Progress(context.Background(), id, jobs.Progress{Done: 1}) },
			"and sets a result":  func(r *rig, id string) { _ = r.sup.SetResult(context.Background(), id, jobs.ResultText, []byte("x")) },
			"and jobd is killed": func(r *rig, _ string) { r.restart() },
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					other, j := r.submit(), r.submit()
					r.harm(j.ID, harm)
					meet(r, j.ID)
					r.runner.exit(j.ID, jobs.Exit{Code: 5})
					j = r.is(j.ID, jobs.Failed)
					if j.Exit.Code != 5 || j.Spec.Argv[0] != "true" {
						t.Errorf("it is %+v", j)
					}
					if n := r.runner.bundle(j.ID).starts; n != 1 {
						t.Errorf("it was started %d times", n)
					}
					r.setAside(j.ID)
					if h, err := r.db.History(context.Background(), j.ID); err != nil || h[0].Event != "rebuilt" || h[0].Revision <= 3 {
						t.Errorf("the history is %+v, %v", h, err)
					}
					r.is(other.ID, jobs.Running)
				})
			})
		}
	}
}

// A waiter is not left behind by a row that is made anew.
func TestAWaiterHearsTheEndOfAJobWhoseRowWasDamaged(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		ended := make(chan error, 1)
		go func() {
			_, err := r.sup.Wait(context.Background(), j.ID, func(j *jobs.Job) bool { return j.State().Final() })
			ended <- err
		}()
		synctest.Wait()
		r.harm(j.ID, "state = 'odd'")
		r.runner.exit(j.ID, jobs.Exit{})
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it still waits")
		}
	})
}

func TestADamagedRowIsMadeAnewByTheNextDaemon(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				j := r.submit()
				r.stop()
				r.harm(j.ID, harm)
				r.runner.exit(j.ID, jobs.Exit{Code: -1, Signal: 9, SignalName: "SIGKILL"})
				r.start()
				if j = r.is(j.ID, jobs.Failed); j.Exit.Signal != 9 {
					t.Errorf("the exit is %+v", j.Exit)
				}
				r.setAside(j.ID)
			})
		})
	}
}

func TestADamagedRowOfAnEndedJobKeepsWhatItWas(t *testing.T) {
	inBubble(t, func(r *rig) {
		key := func(s *jobs.Submission) { s.Key = "once" }
		j := r.submit(key)
		if err := r.sup.SetResult(context.Background(), j.ID, jobs.ResultText, []byte("the result")); err != nil {
			t.Fatal(err)
		}
		r.runner.exit(j.ID, jobs.Exit{Code: 5})
		r.is(j.ID, jobs.Failed)
		if err := r.sup.Deliver(context.Background(), j.ID, session("s")); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.harm(j.ID, "state = 'odd'")
		r.start()
		j = r.is(j.ID, jobs.Failed)
		if j.Delivered.IsZero() || j.ResultKind != jobs.ResultText || j.OutputBytes != 7 {
			t.Errorf("it is %+v", j)
		}
		if body, err := r.sup.Result(context.Background(), j.ID); err != nil || string(body) != "the result" {
			t.Errorf("the result is %q, %v", body, err)
		}
		again, joined, err := r.try(key)
		if err != nil || again.ID != j.ID || joined != jobs.JoinedKey {
			t.Errorf("the same key gave %s, %q, %v", again.ID, joined, err)
		}
	})
}

func TestADamagedRowOfAQueuedJobStillRunsOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.max = 1
		r.restart()
		first := r.submit()
		j := r.submit()
		r.is(j.ID, jobs.Queued)
		r.stop()
		r.harm(j.ID, "state = 'odd', revision = 0")
		r.start()
		r.is(j.ID, jobs.Queued)
		r.runner.exit(first.ID, jobs.Exit{})
		r.is(j.ID, jobs.Running)
		if n := r.runner.bundle(j.ID).starts; n != 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}

// Nothing is run on the strength of half a record.
func TestADamagedRowRunsNothingInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		harm   string
		reboot bool
		want   jobs.State
	}{
		"it had failed to start": {"state = 'odd', exit = '{'", false, jobs.Lost},
		"its end can be read":    {"state = 'odd'", false, jobs.Failed},
		"it waited over a boot":  {"state = 'odd', exit = '{', ended = NULL, created = 'x'", true, jobs.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.runner.fail["n"] = &jobs.Error{Kind: jobs.ErrInvalid, Message: "no such command"}
				j := r.submit()
				r.is(j.ID, jobs.Failed)
				delete(r.runner.fail, "n")
				r.stop()
				r.harm(j.ID, c.harm)
				if c.reboot {
					r.clock.reboot()
				}
				r.start()
				r.is(j.ID, c.want)
				if n := r.runner.bundle(j.ID).starts; n != 0 {
					t.Errorf("it was started %d times", n)
				}
			})
		})
	}
}

func TestARowAndABundleThatAreDamagedMakeOneJobLost(t *testing.T) {
	for name, harm := range map[string]func(r *rig, id string){
		"records cannot be read": func(r *rig, id string) { r.runner.bundle(id).torn = true },
		"the bundle is gone":     func(r *rig, id string) { _ = r.runner.Discard(context.Background(), id) },
	} {
		for _, row := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					j, other := r.submit(), r.submit()
					r.runner.kill(j.ID)
					r.is(j.ID, jobs.Lost)
					j = r.submit()
					r.stop()
					r.runner.kill(j.ID)
					harm(r, j.ID)
					if row {
						r.harm(j.ID, "state = 'odd', spec = '{'")
					}
					r.start()
					_, _ = r.sup.Jobs(context.Background(), jobs.Filter{}) // without a bundle, only a look finds it
					j = r.is(j.ID, jobs.Lost)
					if !strings.Contains(j.Reason, "the outcome is not known: ") {
						t.Errorf("the reason is %q", j.Reason)
					}
					r.is(other.ID, jobs.Running)
				})
			})
		}
	}
}

func TestAQueuedJobWhoseBundleIsGoneNeverRan(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.max = 1
		r.restart()
		r.submit()
		j := r.submit()
		r.stop()
		_ = r.runner.Discard(context.Background(), j.ID)
		r.start()
		if j = r.is(j.ID, jobs.Failed); !strings.Contains(j.Reason, "never started, nothing ran") {
			t.Errorf("the reason is %q", j.Reason)
		}
	})
}

// A store that cannot mend a row is no reason to forget the job.
func TestARowThatCannotBeMendedIsTriedAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		var stuck *stuckStore
		r.wrap = func(s jobs.Store) jobs.Store {
			stuck = &stuckStore{Store: s}
			stuck.stuck.Store(true)
			return stuck
		}
		r.restart()
		j := r.submit()
		r.harm(j.ID, "state = 'odd'")
		r.runner.exit(j.ID, jobs.Exit{Code: 3})
		r.pass(time.Minute)
		if _, err := r.sup.Job(context.Background(), j.ID); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("reading gave %v", err)
		}
		stuck.stuck.Store(false)
		r.pass(2 * time.Second)
		r.is(j.ID, jobs.Failed)
	})
}

// stuckStore rebuilds nothing while it is stuck.
type stuckStore struct {
	jobs.Store
	stuck atomic.Bool
}

func (s *stuckStore) RebuildJob(ctx context.Context, id string, now jobs.Instant, rebuild func(jobs.Job) (jobs.Job, error)) (jobs.Job, bool, error) {
	if s.stuck.Load() {
		return jobs.Job{}, false, &jobs.Error{Kind: jobs.ErrUnavailable, Message: "the disk is full"}
	}
	return s.Store.RebuildJob(ctx, id, now, rebuild)
}
