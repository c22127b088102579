package jobs_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

func TestRecovery(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *rig, b *bundle) // what happened while no daemon lived
		reboot bool
		want   jobs.State
		reason string
		starts int
	}{
		{"still running", func(*rig, *bundle) {}, false, jobs.Running, "", 1},
		{"ended well", func(_ *rig, b *bundle) { b.finish(&jobs.Exit{}) }, false, jobs.Succeeded, "exit code 0", 1},
		{"ended by a signal", func(_ *rig, b *bundle) { b.finish(&jobs.Exit{Code: -1, Signal: 11, SignalName: "SIGSEGV"}) }, false, jobs.Failed, "killed by SIGSEGV", 1},
		{"shim killed", func(_ *rig, b *bundle) { b.finish(nil) }, false, jobs.Lost, "the outcome is not known: its shim was killed", 1},
		{"rebooted", func(_ *rig, b *bundle) { b.finish(nil) }, true, jobs.Lost, "the machine was restarted while it ran", 1},
		{"ended before the reboot", func(_ *rig, b *bundle) { b.finish(&jobs.Exit{Code: 4}) }, true, jobs.Failed, "exit code 4", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				j := r.submit()
				r.is(j.ID, jobs.Running)
				r.stop()
				r.runner.mu.Lock()
				c.change(r, r.runner.bundles[j.ID])
				r.runner.mu.Unlock()
				if c.reboot {
					r.clock.reboot()
				}
				r.start()
				j = r.is(j.ID, c.want)
				if !strings.Contains(j.Reason, c.reason) {
					t.Errorf("the reason is %q", j.Reason)
				}
				if n := r.runner.bundle(j.ID).starts; n != c.starts {
					t.Errorf("it was started %d times", n)
				}
				if swept := len(r.runner.swept) > 0; swept != (c.want == jobs.Lost) {
					t.Errorf("what was left of it was ended: %t", swept)
				}
			})
		})
	}
}

func TestRecoveryOfALaunch(t *testing.T) {
	for _, c := range []struct {
		name   string
		rem    jobs.Remains
		held   bool
		reboot bool
		want   jobs.State
	}{
		{"before the shim", jobs.Remains{EnvIntact: true}, false, false, jobs.Running},
		{"before the shim, then a reboot", jobs.Remains{EnvIntact: true}, false, true, jobs.Failed},
		{"before the shim, its environment torn", jobs.Remains{}, false, false, jobs.Failed},
		{"the command may have run", jobs.Remains{Launched: true}, false, false, jobs.Lost},
		{"the command could not be started", jobs.Remains{Exit: &jobs.Exit{Code: -1, NotStarted: "no"}}, false, false, jobs.Failed},
		{"the command ran and ended", jobs.Remains{Launched: true, Exit: &jobs.Exit{Code: 0}}, false, false, jobs.Succeeded},
		{"the command runs", jobs.Remains{Held: true, Launched: true, PID: 9}, true, false, jobs.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				// A daemon that dies in the middle of a launch: its row says starting.
				r.runner.hold = make(chan struct{})
				j := r.submit()
				r.is(j.ID, jobs.Starting)
				b := r.runner.bundle(j.ID)
				hold := r.runner.hold
				r.runner.mu.Lock()
				r.runner.hold = nil
				r.runner.fail["n"] = errors.New("the daemon was killed")
				r.runner.mu.Unlock()
				copyRow := r.freeze()
				close(hold)
				synctest.Wait()
				r.stop()
				copyRow()
				r.runner.mu.Lock()
				delete(r.runner.fail, "n")
				b.rem = c.rem
				if c.held {
					b.rem.Started = r.clock.Now()
				}
				r.runner.mu.Unlock()
				if c.reboot {
					r.clock.reboot()
				}
				r.start()
				j = r.is(j.ID, c.want)
				if c.want == jobs.Failed && c.rem.Exit == nil && !strings.Contains(j.Reason, "never started, nothing ran") {
					t.Errorf("the reason is %q", j.Reason)
				}
			})
		})
	}
}

// freeze copies the database; the function returned puts the copy back, as if
// the daemon had been killed when it was made.
func (r *rig) freeze() func() {
	r.t.Helper()
	saved := map[string][]byte{}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(r.path + suffix)
		if err != nil {
			r.t.Fatal(err)
		}
		saved[suffix] = b
	}
	return func() {
		if err := os.Remove(r.path + "-shm"); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Fatal(err)
		}
		for suffix, b := range saved {
			if err := os.WriteFile(r.path+suffix, b, 0o600); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func TestAStopOutlivesItsDaemon(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		b := r.runner.bundle(j.ID)
		r.runner.disobey(j.ID)
		if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
			t.Fatal(err)
		}
		r.stop()
		b.rem.StopAsked = "" // the shim was never told
		b.obeys = true
		r.start()
		r.is(j.ID, jobs.Cancelled)
	})
}

func TestADatabaseIsRebuiltFromTheBundles(t *testing.T) {
	inBubble(t, func(r *rig) {
		running, ended, stopping := r.submit(), r.submit(), r.submit()
		r.runner.exit(ended.ID, jobs.Exit{Code: 5})
		r.runner.disobey(stopping.ID)
		if _, err := r.sup.Cancel(context.Background(), stopping.ID, jobs.Cancel{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.max = 1
		orphan := "ffffffffffffffffffffffffffffffff" // a submission that was never answered
		if err := r.runner.Prepare(context.Background(), orphan, jobs.Spec{}, nil); err != nil {
			t.Fatal(err)
		}
		r.stop()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(r.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		r.start()
		r.is(running.ID, jobs.Running)
		if j := r.is(ended.ID, jobs.Failed); j.Exit.Code != 5 {
			t.Errorf("the exit is %+v", j.Exit)
		}
		r.is(stopping.ID, jobs.Stopping)
		if r.runner.bundle(orphan) != nil {
			t.Error("the orphan's bundle is still there")
		}
		r.runner.exit(running.ID, jobs.Exit{})
		r.is(running.ID, jobs.Succeeded)
	})
}

// fullStore is a store whose disk is full while full is set.
type fullStore struct {
	jobs.Store
	full atomic.Bool
}

func (s *fullStore) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	if s.full.Load() {
		return jobs.Job{}, &jobs.Error{Kind: jobs.ErrUnavailable, Message: "the disk is full"}
	}
	return s.Store.UpdateJob(ctx, id, change)
}

func TestAnEndIsRecordedOnceTheStoreCanWrite(t *testing.T) {
	inBubble(t, func(r *rig) {
		var full *fullStore
		r.wrap = func(s jobs.Store) jobs.Store {
			full = &fullStore{Store: s}
			return full
		}
		r.restart()
		j := r.submit()
		full.full.Store(true)
		r.runner.exit(j.ID, jobs.Exit{Code: 3})
		r.pass(time.Hour)
		r.is(j.ID, jobs.Running)
		if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("a cancel gave %v", err)
		}
		full.full.Store(false)
		r.pass(2 * time.Second)
		r.is(j.ID, jobs.Failed)
	})
}

func TestAStoreThatCannotWriteForOneJobHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		var broken *brokenStore
		r.wrap = func(s jobs.Store) jobs.Store {
			broken = &brokenStore{Store: s}
			return broken
		}
		r.restart()
		bad := r.submit(func(s *jobs.Submission) { s.Spec.Timeout = time.Minute })
		broken.id.Store(&bad.ID)
		r.pass(2 * time.Minute) // its stop cannot be recorded
		r.is(bad.ID, jobs.Running)
		good := r.submit(func(s *jobs.Submission) { s.Spec.Timeout = time.Minute })
		r.is(good.ID, jobs.Running)
		r.pass(time.Minute)
		r.is(good.ID, jobs.TimedOut)
		broken.id.Store(nil)
		r.pass(2 * time.Second)
		r.is(bad.ID, jobs.TimedOut)
	})
}

// brokenStore is a store that cannot write one job.
type brokenStore struct {
	jobs.Store
	id atomic.Pointer[string]
}

func (s *brokenStore) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	if bad := s.id.Load(); bad != nil && *bad == id {
		return jobs.Job{}, &jobs.Error{Kind: jobs.ErrUnavailable, Message: "it cannot be written"}
	}
	return s.Store.UpdateJob(ctx, id, change)
}
