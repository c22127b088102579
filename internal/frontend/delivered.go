package frontend

import (
	"context"
	"sync"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// How long the client must be there after a final result was written to it, so
// that the result counts as delivered.
const heardWithin = 2 * time.Second

// deliveries tell the daemon which results reached the session, each once. A
// result that was written while the client was dying is not reported: the
// session that comes after it is given it again.
type deliveries struct {
	f *Frontend

	mu    sync.Mutex
	known map[string]bool // on the way
	owing int             // confirmed and not reported yet
	idle  chan struct{}   // closed when owing falls to 0; nil = nobody waits
}

// onWrite reports a final job once the reply that holds its result is written
// and the client was heard after that.
func (d *deliveries) onWrite(c *mcptasks.Client, job ipc.Job) {
	if job.Final && job.DeliveredAt == nil {
		c.AfterWrite(func(err error) {
			if err == nil {
				d.written(job.ID)
			}
		})
	}
}

// written is told that the final result of a job was handed to the operating
// system just now.
func (d *deliveries) written(id string) {
	if !d.begin(id) {
		return
	}
	d.f.background(func(ctx context.Context) {
		// What was not reported, or was refused because the job is another
		// session's, is reported when its result is written again.
		defer d.forget(id)
		if !d.f.line.Heard(ctx, heardWithin) {
			return
		}
		d.owe(1)
		defer d.owe(-1)
		wait := time.Second
		for {
			err := d.f.passive.Delivered(ctx, ipc.DeliveredRequest{ID: id, Session: d.f.caller.Session, Client: d.f.caller.Client})
			if err == nil || !passing(err) {
				return // anything else would be refused again
			}
			if !pause(ctx, wait) {
				return
			}
			wait = min(2*wait, time.Minute)
		}
	})
}

// begin reports whether nothing waits to report this job yet.
func (d *deliveries) begin(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[id] {
		return false
	}
	if d.known == nil {
		d.known = map[string]bool{}
	}
	d.known[id] = true
	return true
}

// forget ends what begin began.
func (d *deliveries) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, id)
}

func (d *deliveries) owe(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owing += n
	if d.owing == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// flush waits until what was confirmed is reported, for grace at most.
func (d *deliveries) flush(grace time.Duration) {
	d.mu.Lock()
	if d.owing == 0 {
		d.mu.Unlock()
		return
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

// pause waits, and reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
