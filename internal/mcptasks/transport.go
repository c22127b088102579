package mcptasks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// requestHeader names a request of a wrapped connection in the header that the
// SDK delivers it with: middleware sees neither ids nor raw parameters. It is no
// name that HTTP allows, so no HTTP client can send it.
const requestHeader = "mcptasks request"

// Wrap returns a transport whose one connection is t's, with subscriptions to
// tasks, [Client.AfterWrite] and the 2025-11-25 tasks.
func (e *Extension) Wrap(t mcp.Transport) mcp.Transport { return &transport{ext: e, inner: t} }

type transport struct {
	ext   *Extension
	inner mcp.Transport
}

// Connect implements [mcp.Transport].
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{ext: t.ext, inner: inner, requests: map[jsonrpc.ID]*request{}, listens: map[jsonrpc.ID]*listen{},
		calls: map[jsonrpc.ID]chan *jsonrpc.Response{}}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return c, nil
}

// A request is a request of a wrapped connection that is not answered yet. A nil
// request stands for one of another connection.
type request struct {
	conn   *conn
	id     jsonrpc.ID
	params json.RawMessage

	mu       sync.Mutex
	cancel   context.CancelCauseFunc // of its context, once it is served
	reason   *CancelledError         // set when the client cancelled it
	late     *reply                  // encoded when it is written
	failure  error                   // the error reply: the SDK rewrites some
	done     bool
	written  []func(error)
	instance string // its name in requestHeader
}

// afterWrite is [Client.AfterWrite].
func (r *request) afterWrite(f func(error)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done {
		r.written = append(r.written, f)
	}
}

// finish runs what waits for the reply's write.
func (r *request) finish(err error) {
	r.mu.Lock()
	written := r.written
	r.written, r.done, r.late = nil, true, nil
	r.mu.Unlock()
	for _, f := range written {
		f(err)
	}
}

// keep keeps a reply until it is written; false = there is no such place.
func (r *request) keep(late *reply) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = late
	return true
}

// inputResponses returns the answers in the parameters as they were sent; decoded
// are those as the SDK saw them, with rounded numbers, for other connections.
func (r *request) inputResponses(decoded any) (InputResponses, error) {
	raw := json.RawMessage(nil)
	if r != nil {
		raw = r.params
	} else {
		var err error
		if raw, err = encode(map[string]any{"inputResponses": decoded}); err != nil {
			return nil, invalid("\"inputResponses\" cannot be read")
		}
	}
	var p struct {
		InputResponses InputResponses `json:"inputResponses"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, invalid("\"inputResponses\" cannot be read")
	}
	return p.InputResponses, nil
}

// fail keeps an error until it is written: the SDK replaces the text of every
// -32601.
func (r *request) fail(err error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// serve gives the request the means to cancel its context.
func (r *request) serve(cancel context.CancelCauseFunc) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel = cancel; r.reason != nil {
		cancel(r.reason)
	}
}

// cancelled notes that the client gave the request up.
func (r *request) cancelled(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reason = (&CancelledError{Reason: reason}); r.cancel != nil {
		r.cancel(r.reason)
	}
}

// conn wraps a connection.
type conn struct {
	ext    *Extension
	inner  mcp.Connection
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // goroutines that live as long as the connection

	mu       sync.Mutex
	requests map[jsonrpc.ID]*request
	listens  map[jsonrpc.ID]*listen
	calls    map[jsonrpc.ID]chan *jsonrpc.Response // our own requests to the client
	lastCall int
	legacy   *legacy // set when the client has initialized
	closed   bool
}

// Read implements [mcp.Connection].
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.inner.Read(ctx)
		if err != nil {
			c.end()
			c.tasks.Wait()
			return nil, err
		}
		switch msg := msg.(type) {
		case *jsonrpc.Request:
			switch {
			case msg.ID.IsValid():
				c.register(msg)
			case msg.Method == "notifications/cancelled":
				c.cancelRequest(msg.Params)
			}
		case *jsonrpc.Response:
			c.mu.Lock()
			ours := c.calls[msg.ID]
			delete(c.calls, msg.ID)
			c.mu.Unlock()
			if ours != nil {
				ours <- msg // has room for it
				continue
			}
		}
		return msg, nil
	}
}

// register keeps a request and names it for the middleware.
func (c *conn) register(msg *jsonrpc.Request) {
	r := &request{conn: c, id: msg.ID, params: msg.Params}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.requests[msg.ID] != nil {
		return // the SDK refuses it
	}
	c.requests[msg.ID] = r
	r.instance = c.ext.remember(r)
	extra := &mcp.RequestExtra{}
	if given, ok := msg.Extra.(*mcp.RequestExtra); ok && given != nil {
		*extra = *given
	}
	if extra.Header = extra.Header.Clone(); extra.Header == nil {
		extra.Header = http.Header{}
	}
	extra.Header[requestHeader] = []string{r.instance}
	msg.Extra = extra
}

// cancelRequest tells a request why its context is about to end: the SDK does
// not keep the client's reason.
func (c *conn) cancelRequest(params json.RawMessage) {
	var p struct {
		RequestID any    `json:"requestId"`
		Reason    string `json:"reason"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	if err != nil {
		return
	}
	c.mu.Lock()
	r := c.requests[id]
	c.mu.Unlock()
	if r != nil {
		r.cancelled(p.Reason)
	}
}

// Write implements [mcp.Connection].
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		c.mu.Lock()
		r := c.requests[msg.ID]
		delete(c.requests, msg.ID)
		c.mu.Unlock()
		if r == nil {
			break
		}
		c.ext.forget(r)
		r.mu.Lock()
		late, failure := r.late, r.failure
		r.mu.Unlock()
		out := *msg
		switch {
		case msg.Error == nil && late != nil:
			var err error
			if out.Result, err = late.encode(); err != nil {
				out.Result, out.Error = nil, wireError(err)
			}
		case msg.Error != nil && failure != nil:
			out.Error = failure
		}
		msg = &out
		err := c.inner.Write(ctx, msg)
		r.finish(err)
		return err
	case *jsonrpc.Request:
		if msg.Method == "notifications/subscriptions/acknowledged" {
			return c.acknowledge(ctx, msg)
		}
	}
	return c.inner.Write(ctx, msg)
}

// notify writes a notification.
func (c *conn) notify(method string, params []byte) error {
	return c.inner.Write(c.ctx, &jsonrpc.Request{Method: method, Params: params})
}

// call sends a request to an older client and returns its result. Where ctx ends
// first, the client is told.
func (c *conn) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	answer := make(chan *jsonrpc.Response, 1)
	c.mu.Lock()
	c.lastCall++
	name := "mcptasks-" + strconv.Itoa(c.lastCall) // never one of the SDK's, which are integers
	id, err := jsonrpc.MakeID(name)
	closed := c.closed
	if err == nil && !closed {
		c.calls[id] = answer
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if closed {
		return nil, mcp.ErrConnectionClosed
	}
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if err := c.inner.Write(ctx, &jsonrpc.Request{ID: id, Method: method, Params: params}); err != nil {
		return nil, err
	}
	select {
	case resp := <-answer:
		if resp.Error != nil {
			return nil, resp.Error
		}
		return resp.Result, nil
	case <-c.ctx.Done():
		return nil, mcp.ErrConnectionClosed
	case <-ctx.Done():
		if out, err := encode(map[string]string{"requestId": name}); err == nil {
			_ = c.notify("notifications/cancelled", out)
		}
		return nil, ctx.Err()
	}
}

// Close implements [mcp.Connection]. The SDK holds a lock while it calls it, so
// it does not wait for anything: Read does.
func (c *conn) Close() error {
	err := c.inner.Close()
	c.end()
	return err
}

// SessionID implements [mcp.Connection].
func (c *conn) SessionID() string { return c.inner.SessionID() }

// end gives up whatever is open.
func (c *conn) end() {
	c.mu.Lock()
	c.closed = true
	requests := c.requests
	c.requests = map[jsonrpc.ID]*request{}
	c.mu.Unlock()
	c.cancel(mcp.ErrConnectionClosed)
	for _, r := range requests {
		c.ext.forget(r)
		r.finish(mcp.ErrConnectionClosed)
	}
}

// background runs f until the connection ends; false = it has ended, or limit
// such functions run already.
func (c *conn) background(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(func() {
		defer c.ext.recovered("watching a task")
		f(c.ctx)
	})
	return true
}

// isEnd reports whether an error only says that a context or a connection ended.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mcp.ErrConnectionClosed)
}
