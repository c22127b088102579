package jobs

import (
	"context"
	"time"
)

// A Prune selects final jobs to remove.
type Prune struct {
	// OlderThan: ended so long ago.
	OlderThan time.Duration
	// Undelivered: also those whose result nobody was given.
	Undelivered bool
	// DryRun removes nothing.
	DryRun bool
}

// Prune removes final jobs, their output included, and returns their ids. A
// live job is never removed.
func (s *Supervisor) Prune(ctx context.Context, p Prune) ([]string, error) {
	now := s.clock()
	found, err := s.store.Jobs(ctx, Filter{States: finals()})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, j := range found {
		if now.Since(j.Ended) >= p.OlderThan && (p.Undelivered || !j.Delivered.IsZero()) {
			ids = append(ids, j.ID)
		}
	}
	if p.DryRun || len(ids) == 0 {
		return ids, nil
	}
	// The rows go first: a bundle without a row is removed by the next
	// recovery, a row without a bundle would be a job without output.
	gone, err := s.store.DeleteJobs(ctx, ids, now)
	for _, id := range gone {
		if err := s.runner.Discard(context.WithoutCancel(ctx), id); err != nil {
			s.log.Error("removing a bundle", "job", id, "err", err)
		}
	}
	return gone, err
}

// pruneExpired removes the jobs whose retention is over.
func (s *Supervisor) pruneExpired() {
	if s.retention <= 0 {
		return
	}
	gone, err := s.Prune(s.life, Prune{OlderThan: s.retention, Undelivered: true})
	if err != nil && s.life.Err() == nil {
		s.log.Error("removing expired jobs", "err", err)
	}
	if len(gone) > 0 {
		s.log.Info("removed expired jobs", "jobs", len(gone))
	}
}

func finals() []State {
	var f []State
	for _, s := range States() {
		if s.Final() {
			f = append(f, s)
		}
	}
	return f
}
