package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An Ask is what an asker says of its question.
type Ask struct {
	ID        string // made by the asker, random
	Key       string // what the question is to be known by; "" = q1, q2, …
	Message   string
	Schema    json.RawMessage
	Secret    bool
	Timeout   time.Duration // 0 = the job's
	OnTimeout OnTimeout     // "" = the job's
}

// maxAskID bounds the length of an asker's id.
const maxAskID = 128

// maxGivenKey bounds the length of a key that an asker gives.
const maxGivenKey = 40

const (
	digits  = "0123456789"
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// isGivenKey reports whether an asker may give its question this key: a word
// that cannot be taken for one of jobd's own. There is no regular expression
// here since every shim is linked from this package.
func isGivenKey(key string) bool {
	return key != "" && len(key) <= maxGivenKey && strings.Contains(letters, key[:1]) && strings.Trim(key, letters+digits+"_") == "" && !isOwnKey(key)
}

// isOwnKey reports whether a key is one of jobd's own: q1, q2, ….
func isOwnKey(key string) bool {
	number, ok := strings.CutPrefix(key, "q")
	return ok && number != "" && strings.Trim(number, digits) == ""
}

// Ask opens a question of a running job, or finds the one that its asker
// opened with the same ID. A refused question leaves the job as it is.
func (s *Supervisor) Ask(ctx context.Context, id string, a Ask) (Question, error) {
	if a.ID == "" || len(a.ID) > maxAskID {
		return Question{}, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("a question needs an id of 1 to %d bytes, made by the asker at random", maxAskID)}
	}
	if a.Message == "" {
		return Question{}, &Error{Kind: ErrInvalid, Message: "a question needs a message"}
	}
	if a.Key != "" && !isGivenKey(a.Key) {
		return Question{}, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("a question cannot have the key %q; use a word of up to 40 letters, digits and _ that begins with a letter and is not like q1", a.Key)}
	}
	if err := s.forms.Check(a.Schema, a.Secret); err != nil {
		return Question{}, err
	}
	// The command runs a moment before its start is recorded, and may ask in it.
	if _, err := s.Wait(ctx, id, func(j *Job) bool { return j.state != Starting }); err != nil {
		return Question{}, err
	}
	s.step("ask checked")
	opened := false
	j, err := s.update(ctx, id, func(j *Job) error {
		opened = false
		if j.question(a.ID) != nil {
			return ErrUnchanged
		}
		if j.state != Running && j.state != Waiting {
			return &Error{Kind: ErrState, Message: fmt.Sprintf("job %s is %s; only a running job can ask", id, j.state)}
		}
		q := Question{ID: a.ID, Message: a.Message, Schema: a.Schema, Secret: a.Secret, Timeout: a.Timeout, OnTimeout: a.OnTimeout,
			State: QuestionOpen, Asked: s.clock()}
		if q.Timeout <= 0 {
			q.Timeout = j.Spec.QuestionTimeout
		}
		if q.OnTimeout == "" {
			q.OnTimeout = j.Spec.OnTimeout
		}
		if q.OnTimeout == "" {
			q.OnTimeout = OnTimeoutFail
		}
		if q.OnTimeout == OnTimeoutDefault {
			if _, err := s.forms.Defaults(q.Schema); err != nil || q.Secret {
				return &Error{Kind: ErrInvalid, Err: err, Message: "the question cannot be answered with its defaults when nobody answers: every required field needs a default, and a secret has none"}
			}
		}
		q.Number = j.lastNumber() + 1
		q.Key = j.newKey(a.Key, q.Number)
		j.Questions = append(j.Questions[:len(j.Questions):len(j.Questions)], q)
		opened = true
		return j.Apply(EventAsked, q.Asked, a.Message)
	})
	if err != nil {
		return Question{}, err
	}
	s.step("asked")
	q := *j.question(a.ID)
	if opened {
		s.notify(Notice{Job: j, Question: &q})
		s.step("ask told")
	}
	s.mu.Lock()
	if l := s.live[id]; l != nil && l.askers[a.ID] == nil {
		l.askers[a.ID] = &asker{left: s.clock().Run}
	}
	s.mu.Unlock()
	s.arm(id)
	return q, nil
}

// An Outcome is what an asker gets.
type Outcome struct {
	State   QuestionState
	Content json.RawMessage
	By      string
}

// Await returns the state of a question once it is closed, or as it is after
// wait. While it waits the asker counts as present. Content of a secret is
// given out as often as it is asked for, until Received.
func (s *Supervisor) Await(ctx context.Context, id, ask string, wait time.Duration) (Outcome, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	s.present(id, ask, 1)
	defer s.present(id, ask, -1)
	for {
		changed, release := s.subscribe(id)
		j, err := s.store.Job(ctx, id)
		if err != nil {
			release()
			return Outcome{}, err
		}
		q := j.question(ask)
		if q == nil {
			release()
			return Outcome{}, &Error{Kind: ErrNotFound, Message: fmt.Sprintf("job %s has asked no question %q", id, ask)}
		}
		// An asker that hears at once of a deadline or a cancel goes on with its
		// script while the job is being ended: it hears when the job has ended.
		ending := (q.State == QuestionUnanswered || q.State == QuestionWithdrawn) && j.state == Stopping
		if q.State != QuestionOpen && !ending {
			release()
			s.step("answer seen")
			return Outcome{State: q.State, Content: q.Answer, By: q.By}, nil
		}
		if v := s.secret(id, ask); v != nil {
			release()
			s.step("secret seen")
			return Outcome{State: QuestionAnswered, Content: v, By: "page"}, nil
		}
		select {
		case <-changed:
		case <-over.C:
			release()
			return Outcome{State: QuestionOpen}, nil
		case <-ctx.Done():
			release()
			return Outcome{}, context.Cause(ctx)
		case <-s.life.Done():
			release()
			return Outcome{}, &Error{Kind: ErrUnavailable, Message: "jobd is stopping; ask again"}
		}
		release()
	}
}

// Received closes a secret question whose answer its asker has in hand. Only
// then is it recorded as answered, for the value is nowhere but in memory: if
// the daemon dies before, the person is asked again.
func (s *Supervisor) Received(ctx context.Context, id, ask string) error {
	if s.secret(id, ask) == nil {
		return nil
	}
	s.step("secret received")
	_, err := s.update(ctx, id, func(j *Job) error {
		q := j.question(ask)
		if q == nil || q.State != QuestionOpen {
			return ErrUnchanged
		}
		return j.close(ask, QuestionAnswered, nil, "page", s.clock())
	})
	s.step("secret recorded")
	return err
}

// Withdraw closes a question whose asker gives up.
func (s *Supervisor) Withdraw(ctx context.Context, id, ask string) error {
	_, err := s.update(ctx, id, func(j *Job) error {
		q := j.question(ask)
		if q == nil || q.State != QuestionOpen {
			return ErrUnchanged
		}
		return j.close(ask, QuestionWithdrawn, nil, "", s.clock())
	})
	return err
}

// A Reply is somebody's answer to a question.
type Reply struct {
	// Question is a key or an asker's id; "" means the only open question.
	Question string
	// Decline: the person says no. Otherwise Content is the answer.
	Decline bool
	Content json.RawMessage
	By      string // form, shell, tool
	// Model: a model answers on the person's behalf.
	Model bool
}

// Answer closes an open question. taken is false, with the reason in fault,
// where the question is closed already by another answer, or where the content
// breaks the schema and the question was reopened under a new key. The error is of kind
// [ErrRefused] where the caller may not answer, [ErrNotFound] where there is no
// such question.
func (s *Supervisor) Answer(ctx context.Context, id string, r Reply) (taken bool, fault string, err error) {
	s.step("answer received")
	_, err = s.update(ctx, id, func(j *Job) error {
		taken, fault = false, ""
		q, err := j.find(r.Question)
		if err != nil {
			return err
		}
		if err := j.refuse(r.Model, q); err != nil {
			return err
		}
		if q.State != QuestionOpen {
			if taken = q.repeats(r); !taken {
				fault = fmt.Sprintf("the question was %s already", q.State)
			}
			return ErrUnchanged
		}
		now := s.clock()
		if q.Left(now) <= 0 {
			// The deadlines are not looked at yet since the machine woke up.
			fault = "its deadline has passed"
			return ErrUnchanged
		}
		if r.Decline {
			taken = true
			return j.close(q.ID, QuestionDeclined, nil, r.By, now)
		}
		if q.Secret {
			if r.By != "form" {
				fault = "a secret is entered on its page or without echo in a terminal, never as an ordinary answer"
				return ErrUnchanged
			}
			taken = true
			return j.edit(q.ID, now, func(q *Question) { q.Consented = true })
		}
		if err := s.forms.Validate(q.Schema, r.Content); err != nil {
			fault = err.Error()
			return j.reopen(q.ID, fault, now)
		}
		taken = true
		return j.close(q.ID, QuestionAnswered, r.Content, r.By, now)
	})
	s.step("answer recorded")
	return taken, fault, err
}

// refuse returns an error of kind [ErrRefused] for a model that may not answer a
// question of the job.
func (j *Job) refuse(model bool, q *Question) error {
	if !model || j.Spec.AnswerBy == AnswerByAnyone {
		return nil
	}
	return &Error{Kind: ErrRefused, Message: fmt.Sprintf(
		"the question %q is for the person, not for a model: it is answered in Claude Code's form, or by the person with: jobd answer %s", clip(q.Message, 200), clip(j.ID, 12))}
}

// repeats reports whether a reply is the one that closed the question: its
// sender may not have heard that it was taken, and says it again.
func (q *Question) repeats(r Reply) bool {
	if q.By != r.By {
		return false
	}
	if r.Decline {
		return q.State == QuestionDeclined
	}
	return q.State == QuestionAnswered && !q.Secret && bytes.Equal(q.Answer, r.Content)
}

// OpenSecret returns an open question for a secret that has no value yet. Its
// error is of kind [ErrNotFound] otherwise.
func (s *Supervisor) OpenSecret(ctx context.Context, id, ask string) (Job, Question, error) {
	j, err := s.store.Job(ctx, id)
	if err != nil {
		return Job{}, Question{}, err
	}
	q := j.question(ask)
	if q == nil || !q.Secret || q.State != QuestionOpen || q.Left(s.clock()) <= 0 || s.secret(id, ask) != nil {
		return Job{}, Question{}, &Error{Kind: ErrNotFound, Message: "there is no such open question for a secret"}
	}
	return j, *q, nil
}

// handOver bounds how long an answer waits until the asker has the secret.
const handOver = 5 * time.Second

// AnswerSecret hands a secret to the waiting asker, and returns when it has it,
// or after 5 seconds, for who gives it is to hear when the daemon dies with it.
// The value stays in memory. taken is false if the question is not open; fault
// says what is wrong with a value that may be given again. Of the reply only
// Question, the asker's id, Content and Model count; the error is of kind
// [ErrRefused] for a model that may not answer.
func (s *Supervisor) AnswerSecret(ctx context.Context, id string, r Reply) (taken bool, fault string, err error) {
	s.step("secret given")
	ask, content := r.Question, r.Content
	j, q, err := s.OpenSecret(ctx, id, ask)
	if errors.Is(err, ErrNotFound) {
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	if err := j.refuse(r.Model, &q); err != nil {
		return false, "", err
	}
	if err := s.forms.Validate(q.Schema, content); err != nil {
		return false, err.Error(), nil
	}
	if !s.hold(id, ask, content) {
		return false, "", nil
	}
	s.step("secret held")
	wait, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	state := QuestionOpen
	_, err = s.Wait(wait, id, func(j *Job) bool {
		if q := j.question(ask); q != nil {
			state = q.State
		}
		return state != QuestionOpen
	})
	if errors.Is(err, ErrUnavailable) {
		return false, "", err
	}
	return state == QuestionAnswered || state == QuestionOpen, "", nil
}

// hold keeps a secret in memory for its asker, which it wakes. It returns false
// if there is one already.
func (s *Supervisor) hold(id, ask string, content json.RawMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[id] == nil || s.secrets[id+"/"+ask] != nil {
		return false
	}
	s.secrets[id+"/"+ask] = content
	if w := s.waiters[id]; w != nil {
		close(w.changed)
		delete(s.waiters, id)
	}
	return true
}

func (s *Supervisor) secret(id, ask string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[id+"/"+ask]
}

// dropSecrets forgets the secrets of questions that are closed. s.mu must be
// held.
func (s *Supervisor) dropSecrets(j *Job) {
	for _, q := range j.Questions {
		if q.Secret && q.State != QuestionOpen {
			delete(s.secrets, j.ID+"/"+q.ID)
		}
	}
}

// present counts the asker of a question in or out.
func (s *Supervisor) present(id, ask string, n int) {
	now := s.clock()
	s.mu.Lock()
	if l := s.live[id]; l != nil {
		a := l.askers[ask]
		if a == nil {
			a = &asker{}
			l.askers[ask] = a
		}
		a.here += n
		a.left = now.Run
	}
	s.mu.Unlock()
	if n < 0 {
		s.arm(id)
	}
}

// expire ends a question whose deadline has passed.
func (s *Supervisor) expire(id, ask string, now Instant) {
	j, err := s.record(id, func(j *Job) error {
		q := j.question(ask)
		if q == nil || q.State != QuestionOpen || q.Left(now) > 0 {
			return ErrUnchanged
		}
		switch q.OnTimeout {
		case OnTimeoutContinue:
			return j.close(ask, QuestionUnanswered, nil, "", now)
		case OnTimeoutDefault:
			content, err := s.forms.Defaults(q.Schema)
			if err == nil {
				return j.close(ask, QuestionAnswered, content, "default", now)
			}
			s.log.Error("answering a question with its defaults", "job", id, "err", err)
		case OnTimeoutFail:
		}
		reason := fmt.Sprintf("nobody answered the question %q within %s", clip(q.Message, 200), ago(q.Timeout))
		j.set(ask, func(q *Question) { q.State, q.Closed = QuestionUnanswered, now })
		return j.stop(Stop{Cause: CauseUnanswered, Reason: reason, At: now})
	})
	if err != nil {
		s.log.Error("recording that a question was not answered", "job", id, "err", err)
		return
	}
	s.step("deadline recorded")
	if j.state == Stopping {
		s.tellStop(id)
	}
}

// withdraw closes a question whose asker is gone.
func (s *Supervisor) withdraw(id, ask string, now Instant) {
	_, err := s.record(id, func(j *Job) error {
		q := j.question(ask)
		if q == nil || q.State != QuestionOpen {
			return ErrUnchanged
		}
		return j.close(ask, QuestionWithdrawn, nil, "", now)
	})
	if err != nil {
		s.log.Error("withdrawing a question", "job", id, "err", err)
	}
}

// question returns the question with an asker's id, nil if there is none.
func (j *Job) question(ask string) *Question {
	for i := range j.Questions {
		if j.Questions[i].ID == ask {
			return &j.Questions[i]
		}
	}
	return nil
}

// find returns the question that a reply names.
func (j *Job) find(name string) (*Question, error) {
	if name == "" {
		open := j.Open()
		switch len(open) {
		case 0:
			return nil, &Error{Kind: ErrState, Message: fmt.Sprintf("job %s has no open question", j.ID)}
		case 1:
			return j.question(open[0].ID), nil
		}
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("job %s has %d open questions; name one of them by its key", j.ID, len(open))}
	}
	for i := range j.Questions {
		if q := &j.Questions[i]; q.Key == name || q.ID == name {
			return q, nil
		}
	}
	// A key that was given up when its question reopened is closed, not unknown.
	return nil, &Error{Kind: ErrNotFound, Message: fmt.Sprintf("job %s has no open question %q", j.ID, name)}
}

// lastNumber returns the greatest key number the job has used.
func (j *Job) lastNumber() int {
	n := 0
	for _, q := range j.Questions {
		n = max(n, q.Number)
	}
	return n
}

// set changes a question in a new slice, for copies of the job share the old.
func (j *Job) set(ask string, change func(*Question)) {
	questions := make([]Question, len(j.Questions))
	copy(questions, j.Questions)
	j.Questions = questions
	change(j.question(ask))
}

// edit changes an open question and counts it as news for clients.
func (j *Job) edit(ask string, now Instant, change func(*Question)) error {
	j.set(ask, change)
	j.touch(now)
	return nil
}

// reopen gives a question a new key, with the fault of the last answer.
func (j *Job) reopen(ask, fault string, now Instant) error {
	n := j.lastNumber() + 1
	return j.edit(ask, now, func(q *Question) {
		given := ""
		if !isOwnKey(q.Key) {
			given, _, _ = strings.Cut(q.Key, "-")
		}
		q.Number, q.Key, q.Fault = n, j.newKey(given, n), fault
	})
}

// newKey makes the n-th key of the job, which none of its questions has had: of
// the given one if that is not "", with the number behind it from its second
// use on.
func (j *Job) newKey(given string, n int) string {
	if given == "" {
		return "q" + strconv.Itoa(n)
	}
	for _, q := range j.Questions {
		if used, _, _ := strings.Cut(q.Key, "-"); used == given {
			return given + "-" + strconv.Itoa(n)
		}
	}
	return given
}

// close ends an open question; the job goes on when it was the last.
func (j *Job) close(ask string, to QuestionState, answer json.RawMessage, by string, now Instant) error {
	j.set(ask, func(q *Question) {
		q.State, q.Closed, q.Answer, q.By = to, now, answer, by
	})
	event := EventResumed
	if len(j.Open()) > 0 {
		event = EventClosed
	}
	return j.Apply(event, now, string(to))
}
