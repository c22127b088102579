package jobs_test

import (
	"context"
	"errors"
	"testing"

	"jobd/internal/jobs"
)

// deletions counts what is deleted in one transaction.
type deletions struct {
	jobs.Store
	sizes []int
	fail  int // the deletion with this number fails, from 1
}

func (d *deletions) DeleteJobs(ctx context.Context, ids []string, now jobs.Instant) ([]string, error) {
	d.sizes = append(d.sizes, len(ids))
	if len(d.sizes) == d.fail {
		return nil, &jobs.Error{Kind: jobs.ErrUnavailable, Message: "the disk is full"}
	}
	return d.Store.DeleteJobs(ctx, ids, now)
}

// Nobody waits long for the removal of very many jobs.
func TestVeryManyJobsAreRemovedAFewAtATime(t *testing.T) {
	inBubble(t, func(r *rig) {
		const many = 450
		var store *deletions
		r.wrap = func(s jobs.Store) jobs.Store { store = &deletions{Store: s, fail: 2}; return store }
		r.max = many
		r.restart()
		r.runner.fail["n"] = &jobs.Error{Kind: jobs.ErrInvalid, Message: "no such command"}
		ids := map[string]bool{}
		for range many {
			j, _, err := r.try()
			if err != nil {
				t.Fatal(err)
			}
			ids[j.ID] = true
		}
		r.pass(0)
		delete(r.runner.fail, "n")
		live := r.submit()
		all := jobs.Prune{Undelivered: true}

		gone, err := r.sup.Prune(context.Background(), all)
		if !errors.Is(err, jobs.ErrUnavailable) || len(gone) != 200 {
			t.Fatalf("%d jobs were removed until %v", len(gone), err)
		}
		rest, err := r.sup.Prune(context.Background(), all)
		if err != nil || len(rest) != many-200 {
			t.Fatalf("%d jobs were removed, %v", len(rest), err)
		}
		for _, id := range append(gone, rest...) {
			if !ids[id] {
				t.Errorf("job %s was removed twice, or is none of those", id)
			}
			delete(ids, id)
			if r.runner.bundle(id) != nil {
				t.Errorf("the bundle of job %s is there", id)
			}
		}
		for _, n := range store.sizes {
			if n > 200 {
				t.Errorf("%d jobs were removed at once", n)
			}
		}
		r.is(live.ID, jobs.Running)
	})
}
