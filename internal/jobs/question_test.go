package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

func TestAQuestionIsKnownByTheKeyThatItsAskerGives(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		named := func(id, key string) jobs.Ask {
			a := question(id)
			a.Key = key
			return a
		}
		r.ask(j.ID, named("a", "confirm"))
		r.ask(j.ID, question("b"))
		// No key is used twice, whether its question is open, reopened or closed.
		r.ask(j.ID, named("c", "confirm"))
		if taken, fault, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "confirm", Content: []byte(`{"ok":"yes"}`)}); taken || fault == "" || err != nil {
			t.Fatalf("%t %q %v", taken, fault, err)
		}
		r.answer(j.ID, "confirm-3", `{"ok":true}`)
		r.ask(j.ID, named("d", "confirm"))
		asking := r.is(j.ID, jobs.Waiting)
		var keys []string
		for _, q := range asking.Open() {
			keys = append(keys, q.Key)
		}
		if want := []string{"confirm-4", "q2", "confirm-5"}; !slices.Equal(keys, want) {
			t.Errorf("the open questions are %q, want %q", keys, want)
		}
		r.answer(j.ID, "confirm-4", `{"ok":true}`)

		for _, key := range []string{"q7", "1st", "a-b", "a b", strings.Repeat("k", 41)} {
			if _, err := r.sup.Ask(context.Background(), j.ID, named("e", key)); !errors.Is(err, jobs.ErrInvalid) {
				t.Errorf("the key %q gave %v", key, err)
			}
		}
	})
}
