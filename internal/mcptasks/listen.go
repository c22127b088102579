package mcptasks

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxTaskIDs bounds the tasks of one subscription: each is watched by a
// goroutine of its own.
const maxTaskIDs = 1000

// A listen is an open subscriptions/listen that names tasks.
type listen struct {
	ids   []string      // those that the client may see
	acked chan struct{} // closed once the acknowledgement is written
	once  sync.Once
}

// listen serves subscriptions/listen. The SDK serves the rest of the filter and
// sends the acknowledgement, to which the connection adds the tasks; it ends the
// subscription itself only where nothing but tasks is asked for.
func (e *Extension) listen(ctx context.Context, method string, req mcp.Request, c *Client, next mcp.MethodHandler) (mcp.Result, error) {
	r := c.request
	if r == nil {
		return next(ctx, method, req)
	}
	asked, err := taskIDs(r.params)
	if err != nil {
		return nil, err
	}
	if asked == nil {
		return next(ctx, method, req)
	}
	if c.Legacy || !c.Tasks {
		return nil, errUndeclared()
	}
	l := &listen{ids: []string{}, acked: make(chan struct{})}
	for _, id := range asked {
		if !validID(id) {
			continue
		}
		_, err := e.store.Get(ctx, c, id)
		switch {
		case err == nil:
			l.ids = append(l.ids, id)
		case errors.Is(err, ErrUnknownTask), errors.Is(err, ErrExpiredTask):
			// Left out of the acknowledgement: it must not be told from a task
			// that is somebody else's.
		default:
			return nil, about(id, err)
		}
	}
	r.conn.mu.Lock()
	r.conn.listens[r.id] = l
	r.conn.mu.Unlock()
	defer func() {
		r.conn.mu.Lock()
		delete(r.conn.listens, r.id)
		r.conn.mu.Unlock()
	}()

	watched, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stop() // before the wait
	for _, id := range l.ids {
		watchers.Go(func() {
			defer e.recovered("watching task " + id)
			e.watch(watched, c, l, id)
		})
	}
	res, err := next(ctx, method, req)
	if err != nil {
		return nil, err
	}
	<-ctx.Done()
	return res, nil
}

// watch sends the snapshots of one task of a subscription.
func (e *Extension) watch(ctx context.Context, c *Client, l *listen, id string) {
	select {
	case <-l.acked:
	case <-ctx.Done():
		return
	}
	err := e.store.Watch(ctx, c, id, func(t Task) error {
		if err := ctx.Err(); err != nil {
			return err // nothing follows the end of a subscription
		}
		r, err := detailed(t, c, "")
		if err != nil {
			return err
		}
		if r.Meta == nil {
			r.Meta = map[string]any{}
		}
		r.Meta[mcp.MetaKeySubscriptionID] = c.request.id.Raw()
		params, err := r.encode()
		if err != nil {
			return err
		}
		return c.request.conn.notify("notifications/tasks", params)
	})
	if err != nil && !isEnd(err) {
		e.opts.Logger.Error("a task is not watched any more", "task", id, "error", err)
	}
}

// taskIDs returns the different taskIds of a filter; nil = it names none.
func taskIDs(params json.RawMessage) ([]string, error) {
	var p struct {
		Notifications struct {
			TaskIDs json.RawMessage `json:"taskIds"`
		} `json:"notifications"`
	}
	if json.Unmarshal(params, &p) != nil || len(p.Notifications.TaskIDs) == 0 || string(p.Notifications.TaskIDs) == "null" {
		return nil, nil // what is wrong beside is the SDK's to say
	}
	var ids []string
	if json.Unmarshal(p.Notifications.TaskIDs, &ids) != nil {
		return nil, invalid(`"taskIds" is not a list of strings`)
	}
	if len(ids) > maxTaskIDs {
		return nil, invalid(`"taskIds" names %d tasks, at most %d are allowed in one subscription`, len(ids), maxTaskIDs)
	}
	different, seen := []string{}, map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			different = append(different, id)
		}
	}
	return different, nil
}

// acknowledge writes the SDK's acknowledgement of a subscription, with the tasks
// of the subscription added.
func (c *conn) acknowledge(ctx context.Context, msg *jsonrpc.Request) error {
	var p acknowledgement
	var raw any
	if json.Unmarshal(msg.Params, &p) != nil || json.Unmarshal(p.Meta[mcp.MetaKeySubscriptionID], &raw) != nil {
		return c.inner.Write(ctx, msg)
	}
	id, err := jsonrpc.MakeID(raw)
	if err != nil {
		return c.inner.Write(ctx, msg)
	}
	c.mu.Lock()
	l := c.listens[id]
	c.mu.Unlock()
	if l == nil {
		return c.inner.Write(ctx, msg)
	}
	if p.Notifications == nil {
		p.Notifications = map[string]json.RawMessage{}
	}
	if p.Notifications["taskIds"], err = encode(l.ids); err != nil {
		return err
	}
	out := *msg
	if out.Params, err = encode(p); err != nil {
		return err
	}
	if err := c.inner.Write(ctx, &out); err != nil {
		return err
	}
	l.once.Do(func() { close(l.acked) })
	return nil
}

// An acknowledgement is the parameters of
// notifications/subscriptions/acknowledged.
type acknowledgement struct {
	Meta          map[string]json.RawMessage `json:"_meta"`
	Notifications map[string]json.RawMessage `json:"notifications"`
}
