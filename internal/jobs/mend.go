package jobs

import (
	"context"
	"errors"
	"fmt"
)

// A mender is the store as the supervisor uses it: where a call meets a job
// that cannot be read, the job is rebuilt and the call is made once more.
type mender struct {
	Store
	rebuild func(ctx context.Context, id string) error
}

// isDamaged reports whether err is about the record of one job.
func isDamaged(err error) bool {
	_, ok := errors.AsType[*DamagedError](err)
	return ok
}

func (m mender) twice(ctx context.Context, call func() error) error {
	err := call()
	damaged, ok := errors.AsType[*DamagedError](err)
	if !ok || m.rebuild(ctx, damaged.ID) != nil {
		return err
	}
	return call()
}

// CreateJob implements [Store].
func (m mender) CreateJob(ctx context.Context, j Job, decide func(Holders) (*Job, error)) (stored Job, created bool, err error) {
	err = m.twice(ctx, func() (err error) { stored, created, err = m.Store.CreateJob(ctx, j, decide); return err })
	return stored, created, err
}

// UpdateJob implements [Store].
func (m mender) UpdateJob(ctx context.Context, id string, change func(*Job) error) (j Job, err error) {
	err = m.twice(ctx, func() (err error) { j, err = m.Store.UpdateJob(ctx, id, change); return err })
	return j, err
}

// SetResult implements [Store].
func (m mender) SetResult(ctx context.Context, id string, body []byte, change func(*Job) error) (j Job, err error) {
	err = m.twice(ctx, func() (err error) { j, err = m.Store.SetResult(ctx, id, body, change); return err })
	return j, err
}

// Job implements [Store].
func (m mender) Job(ctx context.Context, id string) (j Job, err error) {
	err = m.twice(ctx, func() (err error) { j, err = m.Store.Job(ctx, id); return err })
	return j, err
}

// FindJob implements [Store].
func (m mender) FindJob(ctx context.Context, prefix string) (j Job, err error) {
	err = m.twice(ctx, func() (err error) { j, err = m.Store.FindJob(ctx, prefix); return err })
	return j, err
}

// Damaged tells the supervisor of a job that the store has left out of a list,
// because it cannot be read. It returns at once and may be called by the store.
func (s *Supervisor) Damaged(id string) {
	if s.life.Err() != nil {
		return
	}
	s.spawn(func() { _ = s.rebuild(s.life, id) }) // what goes wrong is logged
}

// rebuild makes the record of a job anew whose row cannot be read: from memory
// where the job is live, else from its bundle and what is left of the row. A
// job whose record can be read is left as it is.
func (s *Supervisor) rebuild(ctx context.Context, id string) error {
	j, from, err := s.remake(ctx, id)
	if err != nil {
		if s.life.Err() == nil {
			s.log.Error("rebuilding a job whose row is damaged", "job", id, "err", err)
		}
		return err
	}
	if from == "" {
		return nil
	}
	s.log.Error("a job's row was damaged: it was set aside and made anew", "job", id, "state", string(j.state), "from", from)
	if from == fromMemory || j.state.Final() {
		s.publish(j)
		return nil
	}
	s.adopt(j)
	s.recover(ctx, j)
	return nil
}

// Where a record was rebuilt from.
const (
	fromMemory = "memory"
	fromBundle = "the bundle"
)

// remake stores a damaged job anew and returns it, and where it came from; "" =
// it was not damaged.
func (s *Supervisor) remake(ctx context.Context, id string) (j Job, from string, err error) {
	s.mending.Lock() // of many that meet the damage one mends it
	defer s.mending.Unlock()
	found := s.examine(ctx, id)
	j, rebuilt, err := s.disk.RebuildJob(ctx, id, found.now, func(salvaged Job) (Job, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l := s.live[id]; l != nil {
			from = fromMemory
			return l.job, nil
		}
		from = fromBundle
		return found.job(id, salvaged)
	})
	if err != nil || !rebuilt {
		from = ""
	}
	return j, from, err
}

// findings are what a bundle tells of its job.
type findings struct {
	now     Instant
	rem     Remains
	err     error // of reading rem
	spec    *Spec // nil = it cannot be read
	created Instant
	size    OutputSize
	raised  string
}

// examine reads all that a bundle tells.
func (s *Supervisor) examine(ctx context.Context, id string) findings {
	f := findings{now: s.clock()}
	f.rem, f.err = s.runner.Inspect(ctx, id)
	if spec, err := s.runner.Spec(ctx, id); err == nil {
		f.spec = &spec
	}
	f.created, _ = s.runner.Created(ctx, id) // zero = not known
	f.size, _ = s.runner.Output(ctx, id)     // what cannot be measured is told as nothing
	if body, err := s.disk.Result(ctx, id); err == nil {
		f.raised = raisedMessage(body)
	}
	return f
}

// job is the job that a bundle and the rest of a row tell of. What was final
// stays so; what is not is for recovery to decide.
func (f *findings) job(id string, salvaged Job) (Job, error) {
	spec := salvaged.Spec
	if f.spec != nil {
		spec = *f.spec
	}
	if len(spec.Argv) == 0 {
		spec = Spec{Tool: "unknown", Name: "unknown", Argv: []string{"unknown"}, Dir: "/", Project: "/", Session: salvaged.Spec.Session}
	}
	created := salvaged.Created
	if created.IsZero() {
		created = f.created
	}
	if created.IsZero() {
		created = Instant{Wall: f.now.Wall} // of no boot, so that nothing is run for it
	}
	j := New(id, spec, salvaged.Keys, created)
	j.ResultKind, j.Announced = salvaged.ResultKind, salvaged.Announced

	exit := f.rem.Exit
	if exit == nil && !f.rem.Held {
		exit = salvaged.Exit
	}
	stop := salvaged.Stop
	if stop == nil && f.rem.StopAsked != "" {
		stop = &Stop{Cause: f.rem.StopAsked, Reason: "it was asked to stop; by whom and why is not known, since its record was damaged", At: f.now}
	}
	ran := f.rem.Held || f.rem.Launched || f.rem.Exit != nil || !salvaged.Started.IsZero()
	switch {
	case !ran && exit != nil && exit.NotStarted != "":
		return j, j.settle(*exit, "", f.now)
	case !ran && stop != nil:
		return j, j.stop(*stop)
	case !ran && f.err == nil && salvaged.Ended.IsZero():
		return j, nil // it is in the queue still
	}
	launched := salvaged.Launched
	if launched.IsZero() {
		launched = created
	}
	if err := j.Apply(EventLaunch, launched, ""); err != nil {
		return j, err
	}
	if !f.rem.Started.IsZero() {
		j.PID = f.rem.PID
		if err := j.Apply(EventStarted, f.rem.Started, ""); err != nil {
			return j, err
		}
	}
	if stop != nil {
		if err := j.stop(*stop); err != nil {
			return j, err
		}
	}
	switch {
	case exit != nil:
		if j.ResultKind != ResultError {
			f.raised = ""
		}
		if err := j.settle(*exit, f.raised, f.now); err != nil {
			return j, err
		}
	case !ran || !f.rem.Held && !salvaged.Ended.IsZero():
		j.Reason = "the outcome is not known: the record that told of it was damaged"
		if f.err != nil {
			j.Reason = fmt.Sprintf("the outcome is not known: its record was damaged, and its bundle cannot be read: %v", f.err)
		}
		if err := j.Apply(EventLost, f.now, ""); err != nil {
			return j, err
		}
	default:
		return j, nil
	}
	j.OutputBytes, j.OutputDropped = f.size.Total, f.size.Dropped
	if j.Delivered = salvaged.Delivered; !j.Delivered.IsZero() {
		j.Keys.Join = ""
	}
	return j, nil
}
