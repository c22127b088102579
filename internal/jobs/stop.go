package jobs

import (
	"context"
	"fmt"
	"time"
)

// A Cancel is a client's wish to end a job.
type Cancel struct {
	// Reason is a sentence that says who and why.
	Reason string
	// Headless: the client shows no forms and gives up because of a question.
	Headless bool
	// Unanswered: the person cannot be asked; the job ends as unanswered.
	Unanswered bool
	// By is who asks. An owner who cancels a job knows how it ended, so its
	// result counts as delivered.
	By Reader
}

// Cancel asks for the end of a job. It returns the job as it is then: a final
// or stopping job is left as it is. The end comes when its last process is gone.
func (s *Supervisor) Cancel(ctx context.Context, id string, c Cancel) (Job, error) {
	if c.Reason == "" {
		c.Reason = "cancelled by a client"
	}
	j, err := s.update(ctx, id, func(j *Job) error {
		if j.state.Final() || j.state == Stopping {
			return ErrUnchanged
		}
		if c.Headless && j.state == Waiting && j.Spec.Unattended == UnattendedWait {
			j.Unfollowed = true
			j.touch(s.clock())
			return nil
		}
		cause := CauseCancel
		now := s.clock()
		if c.Unanswered && j.state == Waiting {
			cause = CauseUnanswered
			j.set(j.Open()[0].ID, func(q *Question) { q.State, q.Closed = QuestionUnanswered, now })
		}
		return j.stop(Stop{Cause: cause, Reason: c.Reason, At: now, ByOwner: c.By.owns(j)})
	})
	if err != nil {
		return j, err
	}
	s.step("cancel recorded")
	switch {
	case j.state == Stopping:
		s.tellStop(id)
	case j.state == Cancelled && j.Launched.IsZero():
		if err := s.runner.Discard(context.WithoutCancel(ctx), id); err != nil {
			s.log.Error("removing the bundle of a job that never ran", "job", id, "err", err)
		}
	}
	return j, nil
}

// CancelAll cancels every live job and returns when they are final or ctx ends.
func (s *Supervisor) CancelAll(ctx context.Context, reason string) error {
	for _, id := range s.liveIDs() {
		if _, err := s.Cancel(ctx, id, Cancel{Reason: reason}); err != nil {
			return err
		}
	}
	for _, id := range s.liveIDs() {
		if _, err := s.Wait(ctx, id, func(j *Job) bool { return j.state.Final() }); err != nil {
			return err
		}
	}
	return nil
}

// stop applies the wish to end a job. A queued job ends at once.
func (j *Job) stop(st Stop) error {
	j.Stop = &st
	if j.state == Queued {
		j.Reason = st.Reason
		return j.Apply(EventCancelled, st.At, st.Reason)
	}
	return j.Apply(EventStop, st.At, st.Reason)
}

// tellStop makes a job's shim know of the stop in its row. It is tried until it
// works: the wish is in the store and must not be forgotten.
func (s *Supervisor) tellStop(id string) {
	s.mu.Lock()
	l := s.live[id]
	if l == nil || l.proc == nil || l.job.Stop == nil || l.stopping {
		// A launch under way tells the shim itself when it is done.
		s.mu.Unlock()
		return
	}
	l.stopping = true
	p, cause := l.proc, l.job.Stop.Cause
	s.mu.Unlock()
	s.spawn(func() {
		for failed := false; ; failed = true {
			err := p.Stop(s.life, cause)
			if err == nil || s.life.Err() != nil {
				break
			}
			if !failed {
				s.log.Error("stopping a job; trying again every second", "job", id, "err", err)
			}
			select {
			case <-time.After(retryEvery):
			case <-s.life.Done():
			}
			s.mu.Lock()
			gone := s.live[id] == nil
			s.mu.Unlock()
			if gone {
				return
			}
		}
		s.mu.Lock()
		if l := s.live[id]; l != nil {
			l.stopping = false
		}
		s.mu.Unlock()
	})
}

// arm sets the timer for a job's next deadline.
func (s *Supervisor) arm(id string) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.live[id]
	if l == nil || s.life.Err() != nil {
		return
	}
	l.stopTimer()
	d, ok := l.next(now)
	if !ok {
		return
	}
	l.timer = time.AfterFunc(d, func() {
		select {
		case s.due <- id:
		case <-s.life.Done():
		}
	})
}

// next returns how long it is until something of the job is due.
func (l *live) next(now Instant) (time.Duration, bool) {
	var d time.Duration
	found := false
	least := func(x time.Duration) {
		if !found || x < d {
			d, found = max(x, 0), true
		}
	}
	if l.job.state == Running && l.job.Spec.Timeout > 0 {
		least(l.job.Spec.Timeout - l.job.RunTime(now))
	}
	for _, q := range l.job.Open() {
		least(q.Left(now))
		if a := l.askers[q.ID]; a != nil && a.here == 0 {
			least(askerGrace - (now.Run - a.left))
		}
	}
	if l.progress != nil {
		least(progressEvery)
	}
	return d, found
}

// check looks at a job's deadlines and acts on those that have passed. A store
// that cannot write holds it up, so each job is checked in a goroutine of its
// own, one at a time.
func (s *Supervisor) check(id string) {
	now := s.clock()
	s.mu.Lock()
	l := s.live[id]
	if l == nil || l.checking {
		s.mu.Unlock()
		return
	}
	l.checking = true
	j := l.job
	progress := l.progress
	l.progress = nil
	var gone []string
	for _, q := range j.Open() {
		a := l.askers[q.ID]
		if a == nil {
			// A daemon that has just started gives the asker time to come back.
			l.askers[q.ID] = &asker{left: now.Run}
		} else if a.here == 0 && now.Run-a.left >= askerGrace {
			gone = append(gone, q.ID)
		}
	}
	s.mu.Unlock()

	if progress != nil {
		if _, err := s.update(s.life, id, func(j *Job) error { return j.setProgress(*progress) }); err != nil && s.life.Err() == nil {
			s.log.Error("storing progress", "job", id, "err", err)
		}
	}
	if j.state == Running && j.Spec.Timeout > 0 && j.RunTime(now) >= j.Spec.Timeout {
		s.stopFor(id, func(j *Job) (Stop, bool) {
			if j.state != Running || j.RunTime(now) < j.Spec.Timeout {
				return Stop{}, false
			}
			return Stop{Cause: CauseTimeout, At: now, Reason: fmt.Sprintf("its run time of %s was used up", ago(j.Spec.Timeout))}, true
		})
	}
	for _, q := range j.Open() {
		if q.Left(now) <= 0 {
			s.expire(id, q.ID, now)
		}
	}
	for _, qid := range gone {
		s.withdraw(id, qid, now)
	}
	s.mu.Lock()
	l.checking = false
	s.mu.Unlock()
	// What became due meanwhile found the check under way: the timer brings it.
	s.arm(id)
}

// stopFor stops a running job for a cause of the supervisor's own.
func (s *Supervisor) stopFor(id string, decide func(*Job) (Stop, bool)) {
	j, err := s.record(id, func(j *Job) error {
		st, ok := decide(j)
		if !ok {
			return ErrUnchanged
		}
		return j.stop(st)
	})
	if err != nil {
		s.log.Error("recording a stop", "job", id, "err", err)
		return
	}
	if j.state == Stopping {
		s.tellStop(id)
	}
}
