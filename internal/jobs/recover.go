package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Recover takes over every job that is not final, whatever the daemon before
// died of: a crash, an upgrade or a reboot. It returns when each is in memory
// and its fate is decided; what must be ended or waited for goes on behind it.
func (s *Supervisor) Recover(ctx context.Context) error {
	if err := s.loadDigestKey(ctx); err != nil {
		return err
	}
	found, err := s.store.Jobs(ctx, Filter{Live: true})
	if err != nil {
		return fmt.Errorf("reading the live jobs: %w", err)
	}
	known := map[string]bool{}
	// Oldest first, so that the queue keeps its order.
	for i := len(found) - 1; i >= 0; i-- {
		known[found[i].ID] = true
		s.adopt(found[i])
	}
	for i := len(found) - 1; i >= 0; i-- {
		s.recover(ctx, found[i])
	}
	err = s.collect(ctx, known)
	close(s.recovered)
	return err
}

// recover decides the fate of one job: the lock first, then the records.
func (s *Supervisor) recover(ctx context.Context, j Job) {
	rem, err := s.runner.Inspect(ctx, j.ID)
	if err != nil {
		s.log.Error("reading a job's bundle", "job", j.ID, "err", err)
	}
	now := s.clock()
	sameBoot := j.Created.BootID == now.BootID
	ran := rem.Launched || !j.Started.IsZero()
	switch {
	case rem.Held:
		s.spawn(func() { s.reattach(j.ID) })
	case rem.Exit != nil:
		exit := *rem.Exit
		s.spawn(func() { s.settle(j.ID, exit) })
	case !ran && err == nil && sameBoot && rem.EnvIntact && j.Stop == nil && rem.StopAsked == "":
		s.requeue(j)
	case !ran && (err == nil || j.state == Queued): // intent comes before effect, so what is queued never ran
		why := "the daemon ended before it was launched, and its environment is gone"
		if err != nil {
			why = fmt.Sprintf("its bundle cannot be read: %v", err)
		} else if !sameBoot {
			why = "the machine was restarted before it was launched"
		}
		s.spawn(func() {
			if !sameBoot {
				why = s.rerun(j, why)
			}
			s.settle(j.ID, Exit{NotStarted: "never started, nothing ran: " + why, Code: -1, StopFirst: j.Stop != nil, At: now})
		})
	default:
		why := "its shim was killed and left no record of how the command ended"
		rebooted := !sameBoot || (!j.Launched.IsZero() && j.Launched.BootID != now.BootID)
		if rebooted {
			why = "the machine was restarted while it ran"
		} else if err != nil {
			why = fmt.Sprintf("its bundle cannot be read: %v", err)
		}
		s.spawn(func() {
			if rebooted {
				why = s.rerun(j, why)
			}
			s.lose(j.ID, why)
		})
	}
}

// requeue puts a job back that was never launched.
func (s *Supervisor) requeue(j Job) {
	if j.state == Starting {
		back, err := s.record(j.ID, func(j *Job) error {
			if j.state != Starting {
				return ErrUnchanged
			}
			return j.Apply(EventRequeue, s.clock(), "")
		})
		if err != nil {
			s.log.Error("putting a job back into the queue", "job", j.ID, "err", err)
			return
		}
		j = back
	}
	s.enqueue(j.ID)
}

// reattach follows a job whose shim is alive.
func (s *Supervisor) reattach(id string) {
	p, err := s.runner.Attach(s.life, id)
	if errors.Is(err, ErrNotFound) {
		// It ended since: its records decide now.
		if j, err := s.store.Job(s.life, id); err == nil && !j.state.Final() {
			s.recover(s.life, j)
		}
		return
	}
	if err != nil {
		// Unknown is not dead: the lock is held, so the shim lives.
		if s.life.Err() == nil {
			s.log.Error("attaching to a job; trying again every second", "job", id, "err", err)
			select {
			case <-time.After(retryEvery):
				s.reattach(id)
			case <-s.life.Done():
			}
		}
		return
	}
	s.attach(id, p)
	s.recordStart(id)
	s.tellStop(id)
	s.watch(id, p)
}

// recordStart records the start of a launch that a daemon did not live to
// record. The shim may be in the middle of it, which takes milliseconds.
func (s *Supervisor) recordStart(id string) {
	for wait := time.Millisecond; wait < recoverable; wait *= 2 {
		j, err := s.store.Job(s.life, id)
		if err != nil || (j.state != Starting && (j.state != Stopping || !j.Started.IsZero())) {
			return
		}
		rem, err := s.runner.Inspect(s.life, id)
		if err == nil && !rem.Started.IsZero() {
			_, err := s.record(id, func(j *Job) error {
				if j.state != Starting && (j.state != Stopping || !j.Started.IsZero()) {
					return ErrUnchanged
				}
				j.PID = rem.PID
				return j.Apply(EventStarted, rem.Started, "found by a later daemon")
			})
			if err != nil {
				s.log.Error("recording a start", "job", id, "err", err)
			}
			return
		}
		if rem.Exit != nil || !rem.Held {
			return
		}
		select {
		case <-time.After(wait):
		case <-s.life.Done():
			return
		}
	}
}

// collect looks after bundles that have no live row: what an unfinished
// submission left is removed, and a job that ran is put back into the store.
func (s *Supervisor) collect(ctx context.Context, known map[string]bool) error {
	ids, err := s.runner.Bundles(ctx)
	if err != nil {
		return fmt.Errorf("listing the bundles: %w", err)
	}
	var rowless []string
	for _, id := range ids {
		if known[id] {
			continue
		}
		_, err := s.store.Job(ctx, id)
		switch {
		case err == nil:
			continue
		case errors.Is(err, ErrExpired):
			err = s.runner.Discard(ctx, id)
		case errors.Is(err, ErrNotFound):
			rowless, err = append(rowless, id), nil
		case errors.Is(err, ErrUnavailable) && !isDamaged(err):
			return fmt.Errorf("looking for the job of a bundle: %w", err)
		}
		if err != nil {
			s.log.Error("looking after a bundle without a row", "job", id, "err", err)
		}
	}
	// In the order in which they were submitted.
	created := map[string]time.Time{}
	for _, id := range rowless {
		at, _ := s.runner.Created(ctx, id) // the first, where that cannot be read
		created[id] = at.Wall
	}
	slices.SortFunc(rowless, func(a, b string) int { return created[a].Compare(created[b]) })
	for _, id := range rowless {
		if err := s.restore(ctx, id); err != nil {
			s.log.Error("rebuilding a job from its bundle", "job", id, "err", err)
		}
	}
	return nil
}

// restore makes the row of a job whose bundle has none. A bundle that was never
// launched belongs to a submission that was not answered, and goes.
func (s *Supervisor) restore(ctx context.Context, id string) error {
	f := s.examine(ctx, id)
	if f.err == nil && !f.rem.Held && !f.rem.Launched && f.rem.Exit == nil {
		return s.runner.Discard(ctx, id)
	}
	// The keys are lost with the row; a request key must not be empty.
	j, err := f.job(id, Job{Keys: Keys{Request: "rebuilt/" + id}})
	if err != nil {
		return fmt.Errorf("rebuilding the job: %w", err)
	}
	j, _, err = s.store.CreateJob(ctx, j, func(Holders) (*Job, error) { return nil, nil })
	if err != nil {
		return fmt.Errorf("storing the rebuilt job: %w", err)
	}
	s.log.Warn("rebuilt a job from its bundle", "job", id, "state", string(j.state))
	if !j.state.Final() {
		s.adopt(j)
		s.recover(ctx, j)
	}
	return nil
}
