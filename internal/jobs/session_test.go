package jobs_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

// session is a reader in one conversation.
func session(name string) jobs.Reader { return jobs.Reader{Sessions: []string{name}} }

func TestAResultIsDeliveredToItsOwnerAlone(t *testing.T) {
	for name, c := range map[string]struct {
		shell  bool // the job is one of a shell
		reader jobs.Reader
		want   bool
	}{
		"the session":                    {false, session("s"), true},
		"a process that left it":         {false, jobs.Reader{Sessions: []string{"s", "next"}}, true},
		"another session":                {false, session("other"), false},
		"nobody":                         {false, jobs.Reader{}, false},
		"a shell, of a session's job":    {false, jobs.Reader{Shell: true}, false},
		"a shell, of a shell's job":      {true, jobs.Reader{Shell: true}, true},
		"the session, of a shell's job":  {true, session("s"), false},
		"a nameless one, of a job of it": {false, session(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				ctx := context.Background()
				j := r.submit(func(s *jobs.Submission) { s.Spec.Shell = c.shell })
				if err := r.sup.Deliver(ctx, j.ID, c.reader); err != nil {
					t.Fatal(err)
				}
				if !r.job(j.ID).Delivered.IsZero() {
					t.Fatal("delivered while it runs")
				}
				r.runner.exit(j.ID, jobs.Exit{})
				synctest.Wait()
				for range 2 {
					if err := r.sup.Deliver(ctx, j.ID, c.reader); err != nil {
						t.Fatal(err)
					}
				}
				r.restart() // the mark is the database's
				got := r.job(j.ID)
				if !got.Delivered.IsZero() != c.want {
					t.Errorf("delivered: %t, want %t", !got.Delivered.IsZero(), c.want)
				}
				pending, err := r.sup.Jobs(ctx, jobs.Filter{Pending: true})
				if err != nil || (len(pending) == 0) != c.want {
					t.Errorf("%d jobs are pending, %v", len(pending), err)
				}
			})
		})
	}
}

// Whoever cancels a job of their own knows how it ended.
func TestACancelledJobIsDeliveredToWhoCancelledIt(t *testing.T) {
	for name, c := range map[string]struct {
		by   jobs.Reader
		exit jobs.Exit
		want jobs.State
		told bool
	}{
		"by its session":                    {session("s"), jobs.Exit{Signal: 15, StopFirst: true}, jobs.Cancelled, true},
		"by another":                        {session("other"), jobs.Exit{Signal: 15, StopFirst: true}, jobs.Cancelled, false},
		"by a shell":                        {jobs.Reader{Shell: true}, jobs.Exit{Signal: 15, StopFirst: true}, jobs.Cancelled, false},
		"by its session, too late":          {session("s"), jobs.Exit{}, jobs.Succeeded, false},
		"by its session, across a restart":  {session("s"), jobs.Exit{Signal: 15, StopFirst: true}, jobs.Cancelled, true},
		"by its session, before it started": {session("s"), jobs.Exit{}, jobs.Cancelled, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				queued := name == "by its session, before it started"
				if queued {
					r.max = 1
					r.restart()
					r.submit(func(s *jobs.Submission) { s.Identity = []byte("in the way") })
				}
				j := r.submit()
				if !queued {
					r.runner.bundle(j.ID).obeys = false
				}
				if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{By: c.by}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if name == "by its session, across a restart" {
					r.restart()
				}
				if !queued {
					r.runner.exit(j.ID, c.exit)
				}
				if got := r.is(j.ID, c.want); !got.Delivered.IsZero() != c.told {
					t.Errorf("delivered: %t, want %t", !got.Delivered.IsZero(), c.told)
				}
			})
		})
	}
}

// ids are those of jobs.
func ids(list []jobs.Job) map[string]bool {
	set := map[string]bool{}
	for _, j := range list {
		set[j.ID] = true
	}
	return set
}

func TestEachEndedJobIsAnnouncedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx := context.Background()
		make := func(name string, change ...func(*jobs.Submission)) string {
			return r.submit(append(change, func(s *jobs.Submission) { s.Identity, s.Spec.Name = []byte(name), name })...).ID
		}
		ended, read, alive := make("ended"), make("read"), make("alive")
		elsewhere := make("elsewhere", func(s *jobs.Submission) { s.Spec.Project = "/other" })
		for _, id := range []string{ended, read, elsewhere} {
			r.runner.exit(id, jobs.Exit{})
		}
		synctest.Wait()
		if err := r.sup.Deliver(ctx, read, session("s")); err != nil {
			t.Fatal(err)
		}

		// Sessions that start at once: one of them is told.
		var mu sync.Mutex
		told := map[string]int{}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				list, err := r.sup.Announce(ctx, "/p")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, j := range list {
					told[j.ID]++
				}
			})
		}
		all.Wait()
		if len(told) != 2 || told[ended] != 1 || told[alive] != 10 {
			t.Errorf("told %v; %s ended, %s runs", told, ended, alive)
		}

		r.runner.exit(alive, jobs.Exit{Code: 1})
		synctest.Wait()
		r.restart()
		for _, want := range []int{1, 0} {
			list, err := r.sup.Announce(ctx, "/p")
			if err != nil || len(list) != want || want == 1 && !ids(list)[alive] {
				t.Errorf("told %v, %v; want %d", ids(list), err, want)
			}
		}
		// It is not delivered by that.
		if !r.job(ended).Delivered.IsZero() {
			t.Error("an announced job counts as delivered")
		}
	})
}

// givenUp ends a context while the announced jobs are being marked.
type givenUp struct {
	jobs.Store
	after  atomic.Int64
	cancel atomic.Pointer[context.CancelFunc]
}

func (s *givenUp) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	j, err := s.Store.UpdateJob(ctx, id, change)
	if cancel := s.cancel.Load(); cancel != nil && s.after.Add(-1) == 0 {
		(*cancel)()
	}
	return j, err
}

func TestASessionThatGaveUpWaitingWasToldNothing(t *testing.T) {
	for _, after := range []int{1, 2, 3} {
		inBubble(t, func(r *rig) {
			store := &givenUp{}
			r.wrap = func(s jobs.Store) jobs.Store { store.Store = s; return store }
			r.restart()
			for _, name := range []string{"a", "b", "c"} {
				r.runner.exit(r.submit(func(s *jobs.Submission) { s.Identity = []byte(name) }).ID, jobs.Exit{})
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			store.after.Store(int64(after))
			store.cancel.Store(&cancel)
			if list, err := r.sup.Announce(ctx, "/p"); err == nil || !errors.Is(err, context.Canceled) {
				t.Errorf("told %d jobs, %v", len(list), err)
			}
			if list, err := r.sup.Announce(context.Background(), "/p"); err != nil || len(list) != 3 {
				t.Errorf("told %d jobs, %v; want all", len(list), err)
			}
		})
	}
}
