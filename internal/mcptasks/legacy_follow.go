package mcptasks

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// legacyWait returns a task's final snapshot.
func (e *Extension) legacyWait(ctx context.Context, c *Client, id string) (Task, error) {
	var last Task
	err := e.store.Watch(ctx, c, id, func(t Task) error {
		if last = t; t.Status.Final() {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return Task{}, err
	case !last.Status.Final():
		return Task{}, fmt.Errorf("the store stopped watching the task while it was %s", last.Status)
	}
	return last, nil
}

// legacyFollow follows a task for a client until the task or the connection
// ends: it sends notifications/tasks/status, and puts the task's questions to
// the client. The revision lets a client wait for its questions in tasks/result
// or take them at any time; on one channel the second serves both. status is
// what the client knows already; "" = nothing.
func (e *Extension) legacyFollow(c *Client, id string, status Status) {
	conn := c.request.conn
	l := conn.initialized()
	l.mu.Lock()
	follows := l.followed[id] || len(l.followed) >= maxFollowed
	if !follows {
		l.followed[id] = true
	}
	l.mu.Unlock()
	if follows {
		return
	}
	f := &follower{ext: e, conn: conn, id: id, status: status, asked: map[string]context.CancelFunc{}}
	f.client = *c
	f.client.request = &request{conn: conn, done: true} // the one at hand ends before
	known := make(chan struct{})
	if status == "" {
		close(known) // the client asks for the task by its id
	} else {
		c.request.afterWrite(func(error) { close(known) })
	}
	conn.background(func(ctx context.Context) {
		defer func() {
			l.mu.Lock()
			delete(l.followed, id)
			l.mu.Unlock()
		}()
		select {
		case <-known:
		case <-ctx.Done():
			return
		}
		f.run(ctx)
	})
}

// A follower tells one client of one task.
type follower struct {
	ext    *Extension
	conn   *conn
	client Client
	id     string
	status Status
	asked  map[string]context.CancelFunc // questions by key, never asked again
	asking sync.WaitGroup
}

// run follows the task to its end.
func (f *follower) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer f.asking.Wait()
	defer stop()
	err := f.ext.store.Watch(ctx, &f.client, f.id, func(t Task) error {
		w, err := newLegacyTask(t, &f.client)
		if err != nil {
			return err
		}
		if w.Status != f.status {
			f.status = w.Status
			params, err := encode(w)
			if err != nil {
				return err
			}
			if err := f.conn.notify("notifications/tasks/status", params); err != nil {
				return err
			}
		}
		f.ask(ctx, t)
		return nil
	})
	if err != nil && !isEnd(err) {
		f.ext.opts.Logger.Error("a task is not followed any more", "task", f.id, "error", err)
	}
}

// ask puts new questions, and takes back those that are not open any more.
func (f *follower) ask(ctx context.Context, t Task) {
	if t.Status != StatusInputRequired {
		t.InputRequests = nil
	}
	for key, takeBack := range f.asked {
		if _, open := t.InputRequests[key]; !open {
			takeBack() // answered elsewhere, or withdrawn
		}
	}
	for key, q := range t.InputRequests {
		if f.asked[key] != nil || !f.client.Allows(q) {
			continue
		}
		one, takeBack := context.WithCancel(ctx)
		f.asked[key] = takeBack
		f.asking.Go(func() {
			defer takeBack()
			defer f.ext.recovered("asking for task " + f.id)
			a, err := elicitOne(one, &f.client, q, f.id)
			if err == nil {
				// Not by one: it ends when the question is seen to be answered.
				err = f.ext.store.Update(ctx, &f.client, f.id, InputResponses{key: a})
			}
			if err != nil && !isEnd(err) && one.Err() == nil {
				f.ext.opts.Logger.Error("a question of a task could not be asked", "task", f.id, "key", key, "error", err)
			}
		})
	}
}
