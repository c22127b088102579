package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"jobd/internal/caller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer is a client of the wire: it sends what a test says and keeps all that
// comes back.
type peer struct {
	t    *testing.T
	f    *Frontend
	conn mcp.Connection
	caps map[string]any // of each request, in _meta; nil = the old protocol

	mu            sync.Mutex
	next          int64
	waiting       map[any]chan *jsonrpc.Response
	notifications []*jsonrpc.Request
	onRequest     func(*jsonrpc.Request) (any, error) // requests of the server

	end func()
}

// Capabilities of clients.
var (
	withTasks = map[string]any{
		"elicitation": map[string]any{"form": map[string]any{}, "url": map[string]any{}},
		"extensions":  map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}},
	}
	withForms = map[string]any{"elicitation": map[string]any{"form": map[string]any{}, "url": map[string]any{}}}
	withNone  = map[string]any{}
)

// connect starts a front end on an in-memory connection.
func connect(t *testing.T, d *fakeDaemon, caps map[string]any, change func(*Options)) *peer {
	t.Helper()
	o := Options{Daemon: d, Version: "test", Caller: caller.Caller{Session: "session-1", Project: "/", Environ: []byte("PATH=/bin\x00"), Umask: 0o22}}
	if change != nil {
		change(&o)
	}
	f := New(o)
	ours, theirs := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	ss, err := f.Server().Connect(ctx, f.Wrap(theirs), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ours.Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, f: f, conn: conn, caps: caps, waiting: map[any]chan *jsonrpc.Response{}}
	var wg sync.WaitGroup
	wg.Go(func() { p.read(ctx) })
	p.end = sync.OnceFunc(func() {
		_ = conn.Close()
		_ = ss.Wait()
		f.Close(time.Second)
		cancel()
		wg.Wait()
	})
	t.Cleanup(p.end)
	return p
}

func (p *peer) read(ctx context.Context) {
	for {
		m, err := p.conn.Read(ctx)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			p.mu.Lock()
			c := p.waiting[m.ID.Raw()]
			delete(p.waiting, m.ID.Raw())
			p.mu.Unlock()
			if c != nil {
				c <- m
			}
		case *jsonrpc.Request:
			if !m.IsCall() {
				p.mu.Lock()
				p.notifications = append(p.notifications, m)
				p.mu.Unlock()
				continue
			}
			r := &jsonrpc.Response{ID: m.ID}
			v, err := p.onRequest(m)
			if err != nil {
				r.Error = &jsonrpc.Error{Code: -1, Message: err.Error()}
			} else {
				r.Result, _ = json.Marshal(v)
			}
			_ = p.conn.Write(ctx, r)
		}
	}
}

// A reply is what the server answered.
type reply struct {
	result map[string]any
	err    *jsonrpc.Error
}

// A pending request has no reply yet.
type pending struct {
	p  *peer
	id int64
	c  chan *jsonrpc.Response
}

// send sends a request.
func (p *peer) send(method string, params map[string]any) *pending {
	p.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	if p.caps != nil {
		meta, _ := params["_meta"].(map[string]any)
		all := map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "peer", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": p.caps,
		}
		for k, v := range meta {
			all[k] = v
		}
		params["_meta"] = all
	}
	raw, err := json.Marshal(params)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.next++
	id := p.next
	c := make(chan *jsonrpc.Response, 1)
	p.waiting[id] = c
	p.mu.Unlock()
	rid, err := jsonrpc.MakeID(float64(id))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.Write(context.Background(), &jsonrpc.Request{ID: rid, Method: method, Params: raw}); err != nil {
		p.t.Fatal(err)
	}
	return &pending{p, id, c}
}

// notify sends a notification.
func (p *peer) notify(method string, params any) {
	p.t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.Write(context.Background(), &jsonrpc.Request{Method: method, Params: raw}); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the reply.
func (r *pending) wait() reply {
	r.p.t.Helper()
	select {
	case m := <-r.c:
		out := reply{}
		if m.Error != nil {
			e, ok := m.Error.(*jsonrpc.Error)
			if !ok {
				e = &jsonrpc.Error{Message: m.Error.Error()}
			}
			out.err = e
			return out
		}
		if err := json.Unmarshal(m.Result, &out.result); err != nil {
			r.p.t.Fatal(err)
		}
		return out
	case <-time.After(time.Hour):
		r.p.t.Fatal("no reply within an hour")
		return reply{}
	}
}

// answered reports whether the reply has come.
func (r *pending) answered() bool { return len(r.c) > 0 }

// cancel sends notifications/cancelled.
func (r *pending) cancel(reason string) {
	r.p.t.Helper()
	r.p.notify("notifications/cancelled", map[string]any{"requestId": r.id, "reason": reason})
}

// call sends a tools/call, with a progress token if there is one.
func (p *peer) call(tool string, arguments any, meta map[string]any) *pending {
	p.t.Helper()
	params := map[string]any{"name": tool, "arguments": arguments}
	if meta != nil {
		params["_meta"] = meta
	}
	return p.send("tools/call", params)
}

// request sends a request and returns its result.
func (p *peer) request(method string, params map[string]any) map[string]any {
	p.t.Helper()
	r := p.send(method, params).wait()
	if r.err != nil {
		p.t.Fatalf("%s: %d %s", method, r.err.Code, r.err.Message)
	}
	return r.result
}

// told returns the notifications of a method.
func (p *peer) told(method string) []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []map[string]any
	for _, n := range p.notifications {
		if n.Method == method {
			var v map[string]any
			_ = json.Unmarshal(n.Params, &v)
			out = append(out, v)
		}
	}
	return out
}

// text joins the text of a tool's result.
func (r reply) text() string {
	return textOf(r.result)
}

func textOf(result map[string]any) string {
	content, _ := result["content"].([]any)
	var parts []string
	for _, c := range content {
		block, _ := c.(map[string]any)
		if block["type"] == "text" {
			parts = append(parts, fmt.Sprint(block["text"]))
		}
	}
	return strings.Join(parts, "\n")
}

func (r reply) isError() bool { return r.result["isError"] == true }

// must fails the test unless the text is in the reply.
func (r reply) must(t *testing.T, parts ...string) {
	t.Helper()
	if r.err != nil {
		t.Fatalf("error %d: %s", r.err.Code, r.err.Message)
	}
	for _, part := range parts {
		if !strings.Contains(r.text(), part) {
			t.Errorf("%q is not in the reply:\n%s", part, r.text())
		}
	}
}
