package jobs_test

import (
	"context"
	"testing"
	"time"

	"jobd/internal/jobs"
)

func TestAnAskerDoesNotGoOnPastItsQuestion(t *testing.T) {
	for name, end := range map[string]func(*rig, string){
		"the job is cancelled": func(r *rig, id string) {
			if _, err := r.sup.Cancel(context.Background(), id, jobs.Cancel{}); err != nil {
				r.t.Error(err)
			}
		},
		"there is nobody to ask": func(r *rig, id string) {
			if _, err := r.sup.Cancel(context.Background(), id, jobs.Cancel{Headless: true, Unanswered: true}); err != nil {
				r.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				j := r.submit()
				r.runner.bundle(j.ID).obeys = false
				o, _ := r.ask(j.ID, question("a"))
				end(r, j.ID)
				r.is(j.ID, jobs.Stopping)
				select {
				case got := <-o:
					t.Errorf("the asker got %+v while its job was being ended", got)
				default:
				}
			})
		})
	}
}

func fatal(j jobs.Job) *jobs.Question { return j.Fatal() }

func TestTheQuestionThatEndedAJobIsKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		ask := func(j jobs.Job, id string, timeout time.Duration, on jobs.OnTimeout) {
			a := question(id)
			a.Timeout, a.OnTimeout = timeout, on
			r.ask(j.ID, a)
		}
		late, headless, declined := r.submit(), r.submit(), r.submit()
		ask(late, "went on", time.Minute, jobs.OnTimeoutContinue)
		ask(late, "fatal", 2*time.Minute, jobs.OnTimeoutFail)
		ask(late, "longer", time.Hour, jobs.OnTimeoutFail)
		ask(late, "went on later", time.Minute, jobs.OnTimeoutContinue)
		r.pass(3 * time.Minute)
		if q := fatal(r.is(late.ID, jobs.Unanswered)); q == nil || q.ID != "fatal" {
			t.Errorf("the job ended by %+v", q)
		}
		ask(headless, "seen", time.Hour, jobs.OnTimeoutFail)
		if _, err := r.sup.Cancel(context.Background(), headless.ID, jobs.Cancel{Headless: true, Unanswered: true, Reason: "nobody is there"}); err != nil {
			t.Fatal(err)
		}
		if q := fatal(r.is(headless.ID, jobs.Unanswered)); q == nil || q.ID != "seen" {
			t.Errorf("the job that nobody could be asked about ended by %+v", q)
		}
		ask(declined, "open", time.Hour, jobs.OnTimeoutFail)
		if _, err := r.sup.Cancel(context.Background(), declined.ID, jobs.Cancel{}); err != nil {
			t.Fatal(err)
		}
		if q := fatal(r.is(declined.ID, jobs.Cancelled)); q != nil {
			t.Errorf("a cancelled job ended by %+v", q)
		}
	})
}
