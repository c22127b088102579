package jobs_test

import (
	"context"
	"testing"
	"testing/synctest"

	"jobd/internal/jobs"
)

// lateRunner lets a job end in the moment after a daemon has looked at it.
type lateRunner struct {
	*runner
	looked func(id string)
}

func (r *lateRunner) Inspect(ctx context.Context, id string) (jobs.Remains, error) {
	rem, err := r.runner.Inspect(ctx, id)
	if f := r.looked; f != nil {
		r.looked = nil
		f(id)
	}
	return rem, err
}

// lateStore does so in the moment before a daemon writes.
type lateStore struct {
	jobs.Store
	writes func(id string)
}

func (s *lateStore) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	if f := s.writes; f != nil {
		s.writes = nil
		f(id)
	}
	return s.Store.UpdateJob(ctx, id, change)
}

// A job that ends while recovery looks at it has ended: what recovery saw before
// never comes over it.
func TestAJobThatEndsDuringRecoveryHasEnded(t *testing.T) {
	for name, arrange := range map[string]func(r *rig, end func(id string)){
		"after the look": func(r *rig, end func(id string)) {
			r.held = func(of *runner) jobs.Runner { return &lateRunner{of, end} }
		},
		"before the record": func(r *rig, end func(id string)) {
			r.wrap = func(s jobs.Store) jobs.Store { return &lateStore{s, end} }
		},
	} {
		for _, exit := range []*jobs.Exit{{Code: 4}, nil} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					j := r.submit()
					r.is(j.ID, jobs.Running)
					r.stop()
					arrange(r, func(id string) {
						if exit == nil {
							r.runner.kill(id)
						} else {
							r.runner.exit(id, *exit)
						}
					})
					r.start()
					if name == "before the record" {
						if _, err := r.sup.Cancel(context.Background(), j.ID, jobs.Cancel{}); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					want := jobs.Failed
					if exit == nil {
						want = jobs.Lost
					}
					r.is(j.ID, want)
					r.restart()
					r.is(j.ID, want)
				})
			})
		}
	}
}
