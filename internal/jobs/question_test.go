package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

func TestAKeyIsNeverUsedTwice(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		seen := map[string]bool{}
		look := func() {
			t.Helper()
			now := r.job(j.ID)
			for _, q := range now.Open() {
				seen[q.Key] = true
			}
		}
		for i := range 6 {
			id := fmt.Sprint("ask ", i)
			r.ask(j.ID, question(id))
			look()
			if taken, fault, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: id, Content: []byte(`{"ok":7}`), By: "form"}); taken || fault == "" || err != nil {
				t.Fatalf("an answer that breaks the schema: %t, %q, %v", taken, fault, err)
			}
			look()
			if i%2 == 0 {
				r.answer(j.ID, id, `{"ok":true}`)
			}
			if i == 3 {
				r.restart()
			}
		}
		if len(seen) != 12 {
			t.Errorf("6 questions, each opened twice, had the keys %v", seen)
		}
	})
}

func TestOfManyAnswersAtOnceOneIsTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		a := question("a")
		a.Schema = []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
		o, _ := r.ask(j.ID, a)
		var mu sync.Mutex
		var all sync.WaitGroup
		var won []string
		for i := range 8 {
			all.Go(func() {
				content := fmt.Sprintf(`{"n":%d}`, i)
				taken, _, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "q1", Content: []byte(content), By: "form"})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if taken {
					won = append(won, content)
				}
			})
		}
		all.Wait()
		if got := r.got(o); len(won) != 1 || string(got.Content) != won[0] {
			t.Errorf("the answers %v were taken, and the asker got %s", won, got.Content)
		}
	})
}

func TestPastItsDeadlineAQuestionTakesNoAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		j, secret := r.submit(), r.submit()
		o, _ := r.ask(j.ID, question("a"))
		r.ask(secret.ID, secretQuestion("a"))
		// The machine wakes up, and a person is faster than the next look at the
		// deadlines.
		r.clock.sleep(8 * time.Hour)
		taken, fault, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "q1", Content: []byte(`{"ok":true}`), By: "form"})
		if taken || fault == "" || err != nil {
			t.Errorf("an answer after 8 hours: taken %t, %q, %v", taken, fault, err)
		}
		if taken, _, err := r.sup.AnswerSecret(context.Background(), secret.ID, secretReply(`{"key":"s3cret"}`)); taken || err != nil {
			t.Errorf("a secret after 8 hours: taken %t, %v", taken, err)
		}
		r.is(j.ID, jobs.Unanswered)
		if got := r.got(o); got.State != jobs.QuestionUnanswered {
			t.Errorf("the asker got %+v", got)
		}
		r.pass(tick)
		r.is(secret.ID, jobs.Unanswered)
	})
}

func TestQuestionsPastThe16thAreAnsweredInAShell(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		shell := "jobd answer " + j.ID[:12]
		for i := range 18 {
			r.ask(j.ID, question(fmt.Sprint("ask ", i)))
			got := r.job(j.ID)
			want := ""
			if i >= 16 {
				want = fmt.Sprintf("; %d of them only in a shell: %s", i-15, shell)
			}
			if m := got.Message("", 0); !strings.HasSuffix(m, want) || strings.Contains(m, shell) != (want != "") || len(m) > 200 {
				t.Errorf("with %d questions open the message is %q", i+1, m)
			}
			if hidden := got.Open()[i].Hidden(); hidden != (i >= 16) {
				t.Errorf("question %d is hidden: %t", i+1, hidden)
			}
		}
		if len(r.news) != 18 {
			t.Errorf("the person was told of %d questions", len(r.news))
		}
		for i := range 16 {
			r.answer(j.ID, fmt.Sprint("q", i+1), `{"ok":true}`)
		}
		got := r.job(j.ID)
		if m := got.Message("", 0); m != "waits for an answer: Go on? (and 1 more); answer it in a shell: "+shell {
			t.Errorf("with the last two open the message is %q", m)
		}
	})
}
