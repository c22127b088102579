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

// pruneAtOnce is how many jobs are looked at, and removed in one transaction,
// at a time: others write in between.
const pruneAtOnce = 200

// Prune removes final jobs, their output included, and returns their ids. A
// live job is never removed. Where it fails midway it returns what is gone.
func (s *Supervisor) Prune(ctx context.Context, p Prune) ([]string, error) {
	now := s.clock()
	var all []string
	for before := int64(0); ; {
		found, err := s.store.Jobs(ctx, Filter{States: finals(), Before: before, Limit: pruneAtOnce})
		if err != nil || len(found) == 0 {
			return all, err
		}
		before = found[len(found)-1].Seq
		var ids []string
		for _, j := range found {
			if now.Since(j.Ended) >= p.OlderThan && (p.Undelivered || !j.Delivered.IsZero()) {
				ids = append(ids, j.ID)
			}
		}
		if !p.DryRun && len(ids) > 0 {
			if ids, err = s.remove(ctx, ids, now); err != nil {
				return append(all, ids...), err
			}
		}
		all = append(all, ids...)
	}
}

// remove removes jobs and returns which. The rows go first: a bundle without a
// row is removed by the next recovery, a row without a bundle would be a job
// without output.
func (s *Supervisor) remove(ctx context.Context, ids []string, now Instant) ([]string, error) {
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
