package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// enqueue adds a queued job to the queue, behind the others.
func (s *Supervisor) enqueue(id string) {
	s.mu.Lock()
	if l := s.live[id]; l != nil && l.job.state == Queued && l.queued == 0 {
		// Submissions commit in the order of their rows but may get here in
		// another: keep the order of the rows.
		at, _ := s.inQueue(l.job.Seq)
		l.queued = l.job.Seq
		s.queue = slices.Insert(s.queue, at, l)
	}
	room := s.running() < s.max
	s.mu.Unlock()
	if room {
		s.look() // else who gives up a place does it
	}
}

// running is how many jobs hold a place. s.mu must be held.
func (s *Supervisor) running() int {
	n := 0
	for _, l := range s.placed {
		if l.job.state != Waiting {
			n++
		}
	}
	return n
}

// inQueue returns where the job with this number is in the queue, or belongs.
// s.mu must be held.
func (s *Supervisor) inQueue(number int64) (at int, found bool) {
	return slices.BinarySearchFunc(s.queue, number, func(l *live, n int64) int { return cmp.Compare(l.queued, n) })
}

// dequeue takes a job from the queue, if it is there. s.mu must be held.
func (s *Supervisor) dequeue(l *live) {
	if at, found := s.inQueue(l.queued); found {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	l.queued = 0
}

// place sorts a live job into placed or out of it, after a change of its state.
// s.mu must be held.
func (s *Supervisor) place(l *live) {
	if l.job.state == Queued && !l.taken {
		delete(s.placed, l.job.ID)
		return
	}
	s.placed[l.job.ID] = l
	s.dequeue(l)
}

// launchNext starts as many queued jobs as there are places, first in first
// out. A job whose concurrency group is busy lets later ones pass.
func (s *Supervisor) launchNext() {
	for {
		id := s.takeNext()
		if id == "" {
			return
		}
		s.spawn(func() { s.launch(id) })
	}
}

// takeNext takes the first job from the queue that may run, "" if none.
func (s *Supervisor) takeNext() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() >= s.max {
		return ""
	}
	busy := map[string]bool{}
	for _, l := range s.placed {
		if g := l.job.Spec.Group; g != "" {
			busy[l.job.Spec.Project+"\x00"+g] = true
		}
	}
	for _, l := range s.queue {
		if l.job.Spec.Group != "" && busy[l.job.Spec.Project+"\x00"+l.job.Spec.Group] {
			continue
		}
		// The place is taken before the intent is durable.
		l.taken = true
		s.place(l)
		return l.job.ID
	}
	return ""
}

// launch starts one job: intent, effect, record.
func (s *Supervisor) launch(id string) {
	j, err := s.record(id, func(j *Job) error {
		if j.state != Queued {
			return ErrUnchanged
		}
		return j.Apply(EventLaunch, s.clock(), "")
	})
	s.mu.Lock()
	if l := s.live[id]; l != nil {
		l.taken = false
		s.place(l)
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Error("recording a launch", "job", id, "err", err)
		s.look()
		return
	}
	if j.state != Starting {
		s.look()
		return
	}
	s.step("launch recorded")
	// Not s.life: a launch that has begun is brought to its end.
	p, err := s.runner.Start(context.WithoutCancel(s.life), id)
	if err != nil {
		s.launchFailed(id, err)
		return
	}
	s.step("launch done")
	s.attach(id, p)
	// The command started when its shim says so: a quick one has ended since.
	at := s.clock()
	if rem, err := s.runner.Inspect(s.life, id); err == nil && !rem.Started.IsZero() {
		at = rem.Started
	}
	j, err = s.record(id, func(j *Job) error {
		if j.state != Starting && (j.state != Stopping || !j.Started.IsZero()) {
			return ErrUnchanged
		}
		j.PID = p.PID()
		return j.Apply(EventStarted, at, "")
	})
	if err != nil {
		s.log.Error("recording a start", "job", id, "err", err)
	}
	if j.state == Stopping {
		s.tellStop(id)
	}
	s.watch(id, p)
}

// launchFailed settles a job whose command never ran.
func (s *Supervisor) launchFailed(id string, err error) {
	reason := err.Error()
	if e := (*Error)(nil); !errors.As(err, &e) {
		s.log.Error("starting a shim", "job", id, "err", err)
		reason = "jobd could not start it: " + reason
	}
	s.settle(id, Exit{NotStarted: reason, Code: -1, At: s.clock()})
}

// attach keeps a job's process in memory.
func (s *Supervisor) attach(id string, p Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[id]; l != nil {
		l.proc = p
	}
}

// watch waits for the end of a job's process and settles the job.
func (s *Supervisor) watch(id string, p Process) {
	exit, err := p.Wait(s.life)
	switch {
	case err == nil:
		s.settle(id, exit)
	case s.life.Err() != nil:
	case errors.Is(err, ErrNotFound):
		s.lose(id, "its shim was killed and left no record of how the command ended")
	default:
		s.log.Error("waiting for a job's end", "job", id, "err", err)
		s.lose(id, fmt.Sprintf("the record of how it ended cannot be read: %v", err))
	}
}

// settle records how a job's command ended.
func (s *Supervisor) settle(id string, exit Exit) {
	s.step("exit seen")
	size, err := s.runner.Output(s.life, id)
	if err != nil {
		s.log.Error("measuring a job's output", "job", id, "err", err)
	}
	var raised string
	if j, err := s.store.Job(s.life, id); err == nil && j.ResultKind == ResultError {
		if body, err := s.store.Result(s.life, id); err == nil {
			raised = raisedMessage(body)
		}
	}
	j, err := s.record(id, func(j *Job) error {
		if j.state.Final() {
			return ErrUnchanged
		}
		j.OutputBytes, j.OutputDropped = size.Total, size.Dropped
		s.lastProgress(j)
		return j.settle(exit, raised, s.clock())
	})
	s.step("exit recorded")
	s.ended(j, err)
}

// lose records that a job's outcome cannot be known, once what is left of it
// has been ended.
func (s *Supervisor) lose(id, why string) {
	if n, err := s.runner.Sweep(s.life, id); err != nil {
		s.log.Error("ending what is left of a lost job", "job", id, "err", err)
	} else if n > 0 {
		s.log.Warn("ended what was left of a lost job", "job", id, "processes", n)
	}
	if s.life.Err() != nil {
		return
	}
	size, _ := s.runner.Output(s.life, id)
	j, err := s.record(id, func(j *Job) error {
		if j.state.Final() {
			return ErrUnchanged
		}
		j.OutputBytes, j.OutputDropped = size.Total, size.Dropped
		s.lastProgress(j)
		j.Reason = "the outcome is not known: " + why
		return j.Apply(EventLost, s.clock(), why)
	})
	s.ended(j, err)
}

// ended tells of a job that has become final.
func (s *Supervisor) ended(j Job, err error) {
	switch {
	case err == nil && j.state.Final():
		s.notify(Notice{Job: j})
	case err != nil && s.life.Err() == nil:
		s.log.Error("recording a job's end", "err", err)
	}
	s.look()
}
