package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

// ask opens a question and waits for its answer in the background, as jobd ask
// does. gone makes the asker leave.
func (r *rig) ask(id string, a jobs.Ask) (outcome chan jobs.Outcome, gone context.CancelFunc) {
	r.t.Helper()
	if _, err := r.sup.Ask(context.Background(), id, a); err != nil {
		r.t.Fatal(err)
	}
	ctx, gone := context.WithCancel(context.Background())
	outcome = make(chan jobs.Outcome, 1)
	go func() {
		if o, err := r.sup.Await(ctx, id, a.ID, 100*time.Hour); err == nil {
			outcome <- o
		}
		gone()
	}()
	synctest.Wait()
	return outcome, gone
}

// got returns what the asker got.
func (r *rig) got(outcome chan jobs.Outcome) jobs.Outcome {
	r.t.Helper()
	synctest.Wait()
	select {
	case o := <-outcome:
		return o
	default:
		r.t.Fatal("the asker got nothing")
		return jobs.Outcome{}
	}
}

func TestAnAnswerReachesItsAskerOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		o, _ := r.ask(j.ID, question("a"))
		if len(r.news) != 1 || r.news[0].Question.Key != "q1" {
			t.Errorf("the person was told %+v", r.news)
		}
		r.is(j.ID, jobs.Waiting)
		r.answer(j.ID, "q1", `{"ok":true}`)
		if got := r.got(o); got.State != jobs.QuestionAnswered || string(got.Content) != `{"ok":true}` {
			t.Errorf("the asker got %+v", got)
		}
		r.is(j.ID, jobs.Running)
		// Late and repeated answers change nothing.
		taken, fault, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "q1", Content: []byte(`{"ok":false}`)})
		if taken || fault == "" || err != nil {
			t.Errorf("a second answer: %t %q %v", taken, fault, err)
		}
		// The asker may ask again, also after a restart.
		r.restart()
		q, err := r.sup.Ask(context.Background(), j.ID, question("a"))
		if err != nil || string(q.Answer) != `{"ok":true}` {
			t.Errorf("asking again gave %+v, %v", q, err)
		}
	})
}

func TestAQuestionAskedBeforeTheStartIsRecordedIsTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runner.hold = make(chan struct{})
		j := r.submit()
		r.is(j.ID, jobs.Starting)
		asked := make(chan error, 1)
		go func() {
			_, err := r.sup.Ask(context.Background(), j.ID, question("a"))
			asked <- err
		}()
		synctest.Wait()
		close(r.runner.hold)
		if err := <-asked; err != nil {
			t.Errorf("the command ran already, and its question was refused: %v", err)
		}
		r.is(j.ID, jobs.Waiting)
	})
}

func TestAnAskerDoesNotGoOnWhileItsJobIsEnded(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.runner.disobey(j.ID)
		o, _ := r.ask(j.ID, question("a"))
		r.pass(time.Hour)
		r.is(j.ID, jobs.Stopping)
		select {
		case got := <-o:
			t.Errorf("the asker got %+v while its job was being ended", got)
		default:
		}
	})
}

func TestDeclining(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		o, _ := r.ask(j.ID, question("a"))
		if _, _, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Decline: true}); err != nil {
			t.Fatal(err)
		}
		if got := r.got(o); got.State != jobs.QuestionDeclined {
			t.Errorf("the asker got %+v", got)
		}
		r.is(j.ID, jobs.Running)
	})
}

func TestAnAnswerIsRepeatedByWhoDidNotHearThatItWasTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		for _, reply := range []jobs.Reply{
			{Question: "q1", Content: []byte(`{"ok":true}`), By: "shell"},
			{Question: "q2", Decline: true, By: "shell"},
		} {
			r.ask(j.ID, question("ask "+reply.Question))
			other, contrary := reply, reply
			other.By = "form"
			contrary.Decline, contrary.Content = !reply.Decline, []byte(`{"ok":true}`)
			for _, c := range []struct {
				who   string
				reply jobs.Reply
				taken bool
			}{{"the first", reply, true}, {"the same again", reply, true}, {"another place", other, false}, {"another answer", contrary, false}} {
				taken, fault, err := r.sup.Answer(context.Background(), j.ID, c.reply)
				if taken != c.taken || (fault == "") != c.taken || err != nil {
					t.Errorf("%s, %s: taken %t, fault %q, %v", reply.Question, c.who, taken, fault, err)
				}
			}
		}
	})
}

func TestAnAnswerThatBreaksTheSchemaReopensTheQuestion(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.ask(j.ID, question("a"))
		taken, fault, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "q1", Content: []byte(`{"ok":"yes"}`)})
		if taken || fault == "" || err != nil {
			t.Fatalf("%t %q %v", taken, fault, err)
		}
		open := r.is(j.ID, jobs.Waiting).Questions
		if open[0].Key != "q2" || open[0].Fault == "" {
			t.Errorf("the question is now %+v", open[0])
		}
		if _, _, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Question: "q1", Content: []byte(`{"ok":true}`)}); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("the closed key gave %v", err)
		}
		r.answer(j.ID, "q2", `{"ok":true}`)
		r.is(j.ID, jobs.Running)
	})
}

func TestSeveralQuestionsAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		a, _ := r.ask(j.ID, question("a"))
		b, _ := r.ask(j.ID, question("b"))
		if _, _, err := r.sup.Answer(context.Background(), j.ID, jobs.Reply{Content: []byte(`{"ok":true}`)}); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("an answer to none of two gave %v", err)
		}
		r.answer(j.ID, "q2", `{"ok":false}`)
		r.is(j.ID, jobs.Waiting)
		r.answer(j.ID, "a", `{"ok":true}`)
		r.is(j.ID, jobs.Running)
		if x, y := r.got(a), r.got(b); string(x.Content) != `{"ok":true}` || string(y.Content) != `{"ok":false}` {
			t.Errorf("the askers got %s and %s", x.Content, y.Content)
		}
	})
}

func TestDeadlines(t *testing.T) {
	for _, c := range []struct {
		on    jobs.OnTimeout
		job   jobs.State
		asker jobs.QuestionState
		body  string
	}{
		{"", jobs.Unanswered, jobs.QuestionUnanswered, ""},
		{jobs.OnTimeoutFail, jobs.Unanswered, jobs.QuestionUnanswered, ""},
		{jobs.OnTimeoutDefault, jobs.Running, jobs.QuestionAnswered, `{"ok":false}`},
		{jobs.OnTimeoutContinue, jobs.Running, jobs.QuestionUnanswered, ""},
	} {
		t.Run(string(c.on), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				j := r.submit()
				a := question("a")
				a.Timeout, a.OnTimeout = 30*time.Minute, c.on
				o, _ := r.ask(j.ID, a)
				r.clock.stepWall(-time.Hour)
				r.pass(29 * time.Minute)
				r.is(j.ID, jobs.Waiting)
				r.clock.stepWall(48 * time.Hour)
				r.pass(time.Minute)
				j = r.is(j.ID, c.job)
				if got := r.got(o); got.State != c.asker || string(got.Content) != c.body {
					t.Errorf("the asker got %+v", got)
				}
				if c.job == jobs.Unanswered && !strings.Contains(j.Reason, `"Go on?" within 30m0s`) {
					t.Errorf("the reason is %q", j.Reason)
				}
			})
		})
	}
}

func TestADeadlineGoesOnInSleepAndOverARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.ask(j.ID, question("a"))
		r.pass(10 * time.Minute)
		r.restart()
		_, err := r.sup.Ask(context.Background(), j.ID, question("a"))
		if err != nil {
			t.Fatal(err)
		}
		_, gone := r.ask(j.ID, question("a"))
		defer gone()
		r.clock.sleep(49 * time.Minute)
		r.pass(30 * time.Second)
		r.is(j.ID, jobs.Waiting)
		r.clock.sleep(time.Minute)
		r.pass(tick)
		r.is(j.ID, jobs.Unanswered)
	})
}

func TestAQuestionWhoseAskerIsGoneIsWithdrawn(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		_, gone := r.ask(j.ID, question("a"))
		gone()
		r.pass(14 * time.Second)
		r.is(j.ID, jobs.Waiting)
		r.pass(2 * time.Second)
		j = r.is(j.ID, jobs.Running)
		if j.Questions[0].State != jobs.QuestionWithdrawn {
			t.Errorf("the question is %s", j.Questions[0].State)
		}
	})
}

func TestAnAskerHas15SecondsOfTheDaemonsLife(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		_, gone := r.ask(j.ID, question("a"))
		gone()
		r.pass(time.Second)
		r.stop()
		r.pass(10 * time.Minute) // nobody could have asked again
		r.start()
		r.pass(10 * time.Second)
		r.is(j.ID, jobs.Waiting)
		r.pass(2 * tick)
		r.is(j.ID, jobs.Running)
	})
}

func TestAModelDoesNotAnswerForThePerson(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		anyone := r.submit(func(s *jobs.Submission) { s.Spec.AnswerBy = jobs.AnswerByAnyone })
		for _, j := range []jobs.Job{j, anyone} {
			r.ask(j.ID, secretQuestion("a"))
			secret := secretReply(`{"key":"made up"}`)
			secret.Model = true
			if taken, _, err := r.sup.AnswerSecret(context.Background(), j.ID, secret); taken != (j.ID == anyone.ID) || taken == errors.Is(err, jobs.ErrRefused) {
				t.Errorf("a secret of a model: taken %t, %v", taken, err)
			}
			r.ask(j.ID, question("b"))
		}
		reply := jobs.Reply{Question: "b", Content: []byte(`{"ok":true}`), By: "tool", Model: true}
		if _, _, err := r.sup.Answer(context.Background(), j.ID, reply); !errors.Is(err, jobs.ErrRefused) {
			t.Errorf("got %v", err)
		}
		if taken, _, err := r.sup.Answer(context.Background(), anyone.ID, reply); err != nil || !taken {
			t.Errorf("where anyone may answer: %t, %v", taken, err)
		}
	})
}

func TestOnlyARunningJobAsks(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.runner.exit(j.ID, jobs.Exit{})
		synctest.Wait()
		if _, err := r.sup.Ask(context.Background(), j.ID, question("a")); !errors.Is(err, jobs.ErrState) {
			t.Errorf("got %v", err)
		}
		a := question("b")
		a.Schema = []byte(`{"type":"object","properties":{"password":{"type":"string"}}}`)
		if _, err := r.sup.Ask(context.Background(), r.submit().ID, a); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("a form for a password gave %v", err)
		}
	})
}

func TestAHeadlessCancelOfAJobThatWaits(t *testing.T) {
	for _, c := range []struct {
		policy jobs.Unattended
		want   jobs.State
	}{{jobs.UnattendedCancel, jobs.Cancelled}, {"", jobs.Cancelled}, {jobs.UnattendedWait, jobs.Waiting}} {
		t.Run(string(c.policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				wait := func(s *jobs.Submission) { s.Spec.Unattended, s.Join = c.policy, true }
				j := r.submit(wait)
				o, _ := r.ask(j.ID, question("a"))
				if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{Headless: true}); err != nil {
					t.Fatal(err)
				}
				if j = r.is(j.ID, c.want); j.Unfollowed != (c.want == jobs.Waiting) {
					t.Errorf("unfollowed: %t", j.Unfollowed)
				}
				if c.want != jobs.Waiting {
					return
				}
				again, joined, err := r.try(wait)
				if err != nil || again.ID != j.ID || joined != jobs.JoinedSession || again.Unfollowed {
					t.Errorf("an identical call got %s, %q, unfollowed %t, %v", again.ID, joined, again.Unfollowed, err)
				}
				r.answer(j.ID, "q1", `{"ok":true}`)
				r.got(o)
				r.is(j.ID, jobs.Running)
			})
		})
	}
}

func secretQuestion(id string) jobs.Ask {
	return jobs.Ask{ID: id, Message: "The key?", Secret: true, Schema: []byte(`{"type":"object","properties":{"key":{"type":"string","minLength":3}},"required":["key"]}`)}
}

// secretReply gives the secret of the question "a".
func secretReply(content string) jobs.Reply {
	return jobs.Reply{Question: "a", Content: []byte(content)}
}

func TestASecretIsHandedOnAndNeverStored(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx := context.Background()
		j := r.submit()
		o, _ := r.ask(j.ID, secretQuestion("a"))
		// A form's accept is consent to open the page, not the value.
		taken, _, err := r.sup.Answer(ctx, j.ID, jobs.Reply{Question: "q1", Content: []byte(`{"key":"leaked"}`), By: "form"})
		if !taken || err != nil || !r.is(j.ID, jobs.Waiting).Questions[0].Consented {
			t.Fatalf("consent: %t, %v", taken, err)
		}
		if _, fault, _ := r.sup.AnswerSecret(ctx, j.ID, secretReply(`{"key":"x"}`)); fault == "" {
			t.Error("a value that breaks the schema was taken")
		}
		if taken, fault, err := r.sup.AnswerSecret(ctx, j.ID, secretReply(`{"key":"s3cret"}`)); !taken || err != nil {
			t.Fatalf("%s, %v", fault, err)
		}
		if got := r.got(o); string(got.Content) != `{"key":"s3cret"}` {
			t.Errorf("the asker got %+v", got)
		}
		// A daemon that dies here forgets the value, so it is asked for again.
		r.is(j.ID, jobs.Waiting)
		if taken, _, _ := r.sup.AnswerSecret(ctx, j.ID, secretReply(`{"key":"second"}`)); taken {
			t.Error("a second value was taken")
		}
		if err := r.sup.Received(ctx, j.ID, "a"); err != nil {
			t.Fatal(err)
		}
		j = r.is(j.ID, jobs.Running)
		if j.Questions[0].State != jobs.QuestionAnswered || j.Questions[0].Answer != nil {
			t.Errorf("the row holds %+v", j.Questions[0])
		}
	})
}

func TestASecretThatDiedWithItsDaemonIsAskedForAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		j := r.submit()
		r.ask(j.ID, secretQuestion("a"))
		if _, _, err := r.sup.AnswerSecret(context.Background(), j.ID, secretReply(`{"key":"s3cret"}`)); err != nil {
			t.Fatal(err)
		}
		r.restart()
		r.is(j.ID, jobs.Waiting)
		o, gone := r.ask(j.ID, secretQuestion("a"))
		defer gone()
		if _, _, err := r.sup.AnswerSecret(context.Background(), j.ID, secretReply(`{"key":"again"}`)); err != nil {
			t.Fatal(err)
		}
		if got := r.got(o); string(got.Content) != `{"key":"again"}` {
			t.Errorf("the asker got %+v", got)
		}
	})
}
