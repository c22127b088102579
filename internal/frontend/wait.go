package frontend

import (
	"context"
	"maps"
	"slices"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// The times of a call that waits.
const (
	// patience is how long a client that wants no progress is kept waiting;
	// clients give up after a minute.
	patience = 50 * time.Second
	// progressEvery is the longest time between two progress notifications,
	// progressPause the shortest.
	progressEvery = 10 * time.Second
	progressPause = time.Second
	// outage is how long the daemon may be out of reach before a call is
	// answered without it.
	outage = 60 * time.Second
	// retryEvery is how often it is tried meanwhile.
	retryEvery = time.Second
)

// waitInCall waits for a job's end, for a client that takes no task: as long
// as it takes where the client gets progress, else for [patience].
func (f *Frontend) waitInCall(ctx context.Context, call *mcptasks.Call, st callState, job ipc.Job) (mcptasks.Answer, error) {
	f.line.Waits(call.Client.Header)
	w := f.watch(call.Client, st, job)
	for {
		if w.job.Final {
			return f.outcome(ctx, call, st, outage)
		}
		if len(open(w.job)) > 0 {
			if requests := askable(w.job, call.Client); requests != nil {
				return mcptasks.Ask(requests, encode(st)), nil
			}
			return mcptasks.Result(f.handleInText(w.job, st, f.whereToAnswer(w.job, call.Client))), nil
		}
		switch err := w.next(ctx, ""); {
		case ctx.Err() != nil:
			f.abandon(ctx, st)
			return nil, ctx.Err()
		case err != nil:
			return f.lostSight(st, err), nil
		case w.over:
			return mcptasks.Result(f.handleInText(w.job, st, "This client cannot be kept waiting longer.")), nil
		}
	}
}

// A watched job is waited for within a call.
type watched struct {
	f      *Frontend
	client *mcptasks.Client
	job    ipc.Job
	over   bool // the client's patience is used up

	since    time.Time // of the call: what progress counts
	deadline time.Time // zero = none
	told     time.Time // the last progress notification
	news     bool      // something to tell has changed since
	down     time.Time // since when the daemon is out of reach; zero = it is not
}

// watch begins to wait for a job on behalf of a call.
func (f *Frontend) watch(c *mcptasks.Client, st callState, job ipc.Job) *watched {
	now := time.Now()
	w := &watched{f: f, client: c, job: job, since: st.Since, told: now}
	if c.ProgressToken == nil {
		w.deadline = now.Add(patience)
		if c.Legacy { // its questions were asked within the same request
			w.deadline = st.Since.Add(patience)
		}
	}
	return w
}

// next waits for the job's next change, or until it is time to tell the client
// something or to give up. It returns an error when ctx ends or when the daemon
// cannot be asked.
func (w *watched) next(ctx context.Context, until string) error {
	now := time.Now()
	if !w.deadline.IsZero() && !now.Before(w.deadline) {
		w.over = true
		return nil
	}
	wait := progressEvery
	if w.client.ProgressToken != nil {
		wait = w.told.Add(progressEvery).Sub(now)
		if w.news {
			wait = w.told.Add(progressPause).Sub(now)
		}
	}
	if !w.deadline.IsZero() {
		wait = min(wait, w.deadline.Sub(now))
	}
	wait = max(wait, time.Millisecond)
	job, err := w.f.daemon.Get(ctx, ipc.GetRequest{ID: w.job.ID, Exact: true, WaitMS: ceilMS(wait), Revision: w.job.Revision, Until: until})
	now = time.Now()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !passing(err):
		return err
	case err != nil:
		if w.down.IsZero() {
			w.down = now
		}
		if now.Sub(w.down) >= outage {
			return err
		}
		pause(ctx, min(retryEvery, wait))
	default:
		w.down = time.Time{}
		w.news = w.news || job.Revision != w.job.Revision
		w.job = job
	}
	w.tell(ctx)
	return ctx.Err()
}

// tell notifies the client of progress where it is due.
func (w *watched) tell(ctx context.Context) {
	now := time.Now()
	since := now.Sub(w.told)
	if w.client.ProgressToken == nil || w.job.Final || since < progressPause || !w.news && since < progressEvery {
		return
	}
	w.told, w.news = now, false
	// An error means that the connection is over, which ends ctx.
	_ = w.client.Progress(ctx, now.Sub(w.since).Seconds(), 0, oneLine(w.job.StatusMessage, 200))
}

// ceilMS rounds up: a wait of less than a millisecond must not become none.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
