package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

func TestAJobRunsToItsEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.is(j.ID, jobs.Running)
		r.pass(3 * time.Second)
		r.runner.exit(j.ID, jobs.Exit{Code: 7})
		j = r.is(j.ID, jobs.Failed)
		if j.Exit.Code != 7 || j.Reason != "exit code 7" || j.OutputBytes != 7 || j.RunTime(r.clock.Now()) != 3*time.Second {
			t.Errorf("got %+v, %q, %d bytes, ran %s", j.Exit, j.Reason, j.OutputBytes, j.RunTime(r.clock.Now()))
		}
		if len(r.news) != 1 || r.news[0].Question != nil {
			t.Errorf("the person was told %v", r.news)
		}
		h, err := r.db.History(context.Background(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, a := range h {
			events = append(events, string(a.Event))
		}
		if got := strings.Join(events, " "); got != "submit launch started failed" {
			t.Errorf("its history is %q", got)
		}
	})
}

func TestTheRunTimeCountsFromTheStartThatTheShimSaw(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runner.lag = 3 * time.Second
		j := r.submit()
		r.pass(2 * time.Second) // the command runs, and the daemon has not heard of it
		r.runner.exit(j.ID, jobs.Exit{})
		r.pass(2 * time.Second)
		j = r.is(j.ID, jobs.Succeeded)
		if ran := j.RunTime(r.clock.Now()); ran != 2*time.Second {
			t.Errorf("it ran for %s", ran)
		}
	})
}

func TestACommandThatCannotBeStartedFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runner.fail["n"] = &jobs.Error{Kind: jobs.ErrInvalid, Message: "command not found: foo"}
		j := r.submit()
		j = r.is(j.ID, jobs.Failed)
		if j.Reason != "could not be started: command not found: foo" {
			t.Errorf("the reason is %q", j.Reason)
		}
	})
}

func TestWaitersSeeEveryChange(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		got := make(chan jobs.Job, 1)
		go func() {
			j, err := r.sup.Wait(context.Background(), j.ID, func(j *jobs.Job) bool { return j.State().Final() })
			if err != nil {
				t.Error(err)
			}
			got <- j
		}()
		r.pass(time.Hour / 2)
		r.runner.exit(j.ID, jobs.Exit{})
		synctest.Wait()
		select {
		case j := <-got:
			if j.State() != jobs.Succeeded {
				t.Errorf("the waiter got %s", j.State())
			}
		default:
			t.Error("the waiter was not woken")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := r.sup.Wait(ctx, j.ID, func(*jobs.Job) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that ends gave %v", err)
		}
	})
}

func TestQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.max = 2
		r.restart()
		group := func(g string) func(*jobs.Submission) {
			return func(s *jobs.Submission) { s.Spec.Group = g }
		}
		a, b := r.submit(group("g")), r.submit(group("g"))
		r.is(a.ID, jobs.Running)
		r.is(b.ID, jobs.Queued) // its group is busy
		c := r.submit()         // passes it
		d := r.submit()
		r.is(c.ID, jobs.Running)
		r.is(d.ID, jobs.Queued)
		if r.sup.Place(b.ID) != 1 || r.sup.Place(d.ID) != 2 {
			t.Errorf("the places are %d and %d", r.sup.Place(b.ID), r.sup.Place(d.ID))
		}
		// The order is kept over a restart.
		r.restart()
		r.is(b.ID, jobs.Queued)
		r.is(d.ID, jobs.Queued)
		// A job that waits for an answer gives its place up, but not its group.
		if _, err := r.sup.Ask(context.Background(), a.ID, question("q")); err != nil {
			t.Fatal(err)
		}
		r.is(a.ID, jobs.Waiting)
		r.is(d.ID, jobs.Running)
		r.is(b.ID, jobs.Queued)
		r.runner.exit(a.ID, jobs.Exit{})
		r.runner.exit(c.ID, jobs.Exit{})
		r.is(b.ID, jobs.Running)
		for _, id := range []string{a.ID, b.ID, c.ID, d.ID} {
			if n := r.runner.bundle(id).starts; n != 1 {
				t.Errorf("job %s was started %d times", id, n)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			j := r.submit()
			r.runner.disobey(j.ID)
			if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{Reason: "asked"}); err != nil {
				t.Fatal(err)
			}
			r.is(j.ID, jobs.Stopping) // final only when the last process is gone
			r.runner.exit(j.ID, jobs.Exit{Code: -1, Signal: 9, StopFirst: true})
			if j = r.is(j.ID, jobs.Cancelled); j.Reason != "asked" {
				t.Errorf("the reason is %q", j.Reason)
			}
		})
	})
	t.Run("ended first", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			j := r.submit()
			r.runner.disobey(j.ID)
			if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
				t.Fatal(err)
			}
			r.runner.exit(j.ID, jobs.Exit{})
			r.is(j.ID, jobs.Succeeded)
		})
	})
	t.Run("queued", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.max = 1
			r.restart()
			r.submit()
			j := r.submit()
			if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
				t.Fatal(err)
			}
			r.is(j.ID, jobs.Cancelled)
			if r.runner.bundle(j.ID) != nil {
				t.Error("its bundle, which holds its environment, is still there")
			}
		})
	})
	t.Run("while it is launched", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.runner.hold = make(chan struct{})
			j := r.submit()
			r.is(j.ID, jobs.Starting)
			if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
				t.Fatal(err)
			}
			close(r.runner.hold)
			r.is(j.ID, jobs.Cancelled)
		})
	})
	t.Run("twice, and after the end", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			j := r.submit()
			for range 3 {
				if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
					t.Fatal(err)
				}
				r.is(j.ID, jobs.Cancelled)
			}
		})
	})
}

func TestTheRunTimeoutStopsAJob(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.pass(time.Hour - time.Second)
		r.is(j.ID, jobs.Running)
		r.pass(time.Second)
		if j = r.is(j.ID, jobs.TimedOut); j.Reason != "its run time of 1h0m0s was used up" {
			t.Errorf("the reason is %q", j.Reason)
		}
	})
}

func TestTheRunTimeoutDoesNotCountSleepOrQuestionsOrSteps(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.pass(30 * time.Minute)
		r.clock.sleep(5 * time.Hour)
		r.clock.stepWall(10 * 365 * 24 * time.Hour)
		r.pass(tick)
		r.is(j.ID, jobs.Running)
		if _, err := r.sup.Ask(context.Background(), j.ID, question("q")); err != nil {
			t.Fatal(err)
		}
		go func() {
			if _, err := r.sup.Await(context.Background(), j.ID, "q", time.Hour); err != nil {
				t.Error(err)
			}
		}()
		r.pass(50 * time.Minute)
		r.is(j.ID, jobs.Waiting)
		r.answer(j.ID, "q1", `{"ok":true}`)
		r.pass(29 * time.Minute)
		r.is(j.ID, jobs.Running)
		r.restart() // the time used is not forgotten
		r.pass(time.Minute)
		r.is(j.ID, jobs.TimedOut)
	})
}

// tick is the longest time until a deadline is looked at again.
const tick = 15 * time.Second

func TestNoTimeoutIsNone(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit(func(s *jobs.Submission) { s.Spec.Timeout = 0 })
		r.pass(1000 * time.Hour)
		r.is(j.ID, jobs.Running)
	})
}

func TestRetention(t *testing.T) {
	inBubble(t, func(r *rig) {
		live := r.submit(func(s *jobs.Submission) { s.Spec.Timeout = 0 })
		done := r.submit()
		r.runner.exit(done.ID, jobs.Exit{})
		r.is(done.ID, jobs.Succeeded)
		r.clock.stepWall(10 * 365 * 24 * time.Hour) // expires nothing
		r.pass(29 * 24 * time.Hour)
		r.is(done.ID, jobs.Succeeded)
		r.pass(25 * time.Hour)
		if _, err := r.sup.Job(context.Background(), done.ID); !errors.Is(err, jobs.ErrExpired) {
			t.Errorf("after its retention the job gives %v", err)
		}
		if r.runner.bundle(done.ID) != nil {
			t.Error("its output is still there")
		}
		r.is(live.ID, jobs.Running)
	})
}

func TestPrune(t *testing.T) {
	inBubble(t, func(r *rig) {
		read, unread := r.submit(), r.submit()
		for _, j := range []jobs.Job{read, unread} {
			r.runner.exit(j.ID, jobs.Exit{})
		}
		synctest.Wait()
		if err := r.sup.Deliver(context.Background(), read.ID, session("s")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			p    jobs.Prune
			want string
		}{
			{jobs.Prune{OlderThan: time.Hour, Undelivered: true}, "[]"},
			{jobs.Prune{DryRun: true}, fmt.Sprint([]string{read.ID})},
			{jobs.Prune{}, fmt.Sprint([]string{read.ID})},
			{jobs.Prune{}, "[]"},
			{jobs.Prune{Undelivered: true}, fmt.Sprint([]string{unread.ID})},
		} {
			got, err := r.sup.Prune(context.Background(), c.p)
			if err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("%+v removed %v, %v; want %s", c.p, got, err, c.want)
			}
		}
	})
}

func TestProgressIsStoredOnceASecond(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		before := j.Revision()
		for i := range 100 {
			if err := r.sup.Progress(context.Background(), j.ID, jobs.Progress{Done: float64(i), Total: 100}); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.job(j.ID).Progress.Done; got != 99 {
			t.Errorf("a reader sees %g", got)
		}
		r.pass(2 * time.Second)
		j = r.job(j.ID)
		if j.Revision() != before+2 || j.Progress.Done != 99 {
			t.Errorf("%d changes, progress %g; want 2 and 99", j.Revision()-before, j.Progress.Done)
		}
	})
}

func TestAJobThatRaisesAnErrorIsErrored(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		ctx := context.Background()
		for _, bad := range []string{`{}`, `{"code":1}`, `no`} {
			if err := r.sup.SetResult(ctx, j.ID, jobs.ResultError, []byte(bad)); !errors.Is(err, jobs.ErrInvalid) {
				t.Errorf("%s was taken: %v", bad, err)
			}
		}
		if err := r.sup.SetResult(ctx, j.ID, jobs.ResultError, []byte(`{"code":-32000,"message":"no quota"}`)); err != nil {
			t.Fatal(err)
		}
		r.runner.exit(j.ID, jobs.Exit{Code: 1})
		if j = r.is(j.ID, jobs.Errored); j.Reason != "it raised an error: no quota" {
			t.Errorf("the reason is %q", j.Reason)
		}
		if err := r.sup.SetResult(ctx, j.ID, jobs.ResultText, []byte("late")); !errors.Is(err, jobs.ErrState) {
			t.Errorf("a result after the end gave %v", err)
		}
	})
}

func TestKillingAllJobs(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, b := r.submit(), r.submit()
		if err := r.sup.CancelAll(context.Background(), "bye"); err != nil {
			t.Fatal(err)
		}
		r.is(a.ID, jobs.Cancelled)
		r.is(b.ID, jobs.Cancelled)
	})
}

func question(id string) jobs.Ask {
	return jobs.Ask{ID: id, Message: "Go on?", Schema: []byte(`{"type":"object","properties":{"ok":{"type":"boolean","default":false}},"required":["ok"]}`)}
}

// answer gives an answer that must be taken.
func (r *rig) answer(id, key, content string) {
	r.t.Helper()
	taken, fault, err := r.sup.Answer(context.Background(), id, jobs.Reply{Question: key, Content: []byte(content), By: "form"})
	if err != nil || !taken {
		r.t.Fatalf("the answer was not taken: %s, %v", fault, err)
	}
	synctest.Wait()
}

// The last report counts, even if the job ends before its second is over.
func TestTheLastProgressOutlivesTheJob(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		for n := range 4 {
			if err := r.sup.Progress(context.Background(), j.ID, jobs.Progress{Done: float64(n), Total: 3}); err != nil {
				t.Fatal(err)
			}
		}
		r.runner.exit(j.ID, jobs.Exit{})
		synctest.Wait()
		if p := r.is(j.ID, jobs.Succeeded).Progress; p == nil || p.Done != 3 {
			t.Errorf("the progress is %+v", p)
		}
	})
}
