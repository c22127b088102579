package mcptasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options configure an [Extension]. The zero value is good.
type Options struct {
	// Tokens keep the rounds of calls that ask; nil = in memory, 1024 of them
	// for an hour.
	Tokens Tokens
	// Principal names who a request comes from, where the transport can tell
	// callers apart; a multi round-trip must stay with one. nil = one caller.
	Principal func(*Client) string
	// NoLegacyTasks switches the experimental 2025-11-25 tasks off: clients that
	// initialize then have no tasks at all.
	NoLegacyTasks bool
	// Prompts, Resources, Completions and Logging say that the server offers
	// these; the methods of those it does not offer are answered with -32601.
	Prompts, Resources, Completions, Logging bool
	// Logger gets panics of handlers and bugs; nil = nothing is logged.
	Logger *slog.Logger
}

// An Extension serves the tasks of one [Store] on one or more servers.
type Extension struct {
	store Store
	opts  Options

	mu       sync.Mutex
	requests map[string]*request // of wrapped connections, by name
	last     uint64
	tools    map[string]TaskSupport
}

// New returns an extension that serves the tasks of store.
func New(store Store, opts Options) *Extension {
	if opts.Tokens == nil {
		opts.Tokens = NewTokens(defaultTokens, defaultTokenTTL)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Extension{store: store, opts: opts, requests: map[string]*request{}, tools: map[string]TaskSupport{}}
}

// Declare adds the extension to the capabilities that a server is made with.
func (e *Extension) Declare(caps *mcp.ServerCapabilities) { caps.AddExtension(ExtensionID, nil) }

// Attach adds the extension's methods and middleware to a server. It must come
// after any other receiving middleware is added, so that a panic there is
// caught too, and before the server is connected.
func (e *Extension) Attach(s *mcp.Server) {
	for method, handler := range map[string]func(context.Context, *Client, *taskParams) (*reply, error){
		"tasks/get": e.get, "tasks/update": e.update, "tasks/cancel": e.cancel,
		"tasks/result": e.legacyResult, "tasks/list": e.legacyList,
	} {
		err := mcp.AddReceivingCustomMethod(s, method, func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*reply, error) {
			c := ClientFrom(ctx)
			if c == nil {
				return nil, bug("%s was served outside of the extension", method)
			}
			if p == nil {
				p = &taskParams{} // the SDK lets the parameters be absent
			}
			r, err := handler(ctx, c, p)
			if r != nil {
				r.request = c.request
			}
			return r, err
		})
		if err != nil {
			panic(err)
		}
	}
	s.AddReceivingMiddleware(e.middleware)
}

// middleware serves every request and notification of a server.
func (e *Extension) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		r := e.find(req.GetExtra())
		defer func() {
			if p := recover(); p != nil {
				e.opts.Logger.Error("a handler panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
				res, err = nil, bug("the handler of %s panicked: %.200v", method, p)
			}
			if err = wireError(err); err != nil {
				r.fail(err)
			}
		}()
		c := e.client(req, r)
		ctx, cancel := context.WithCancelCause(context.WithValue(ctx, clientKey{}, c))
		defer cancel(nil)
		r.serve(cancel)
		if err := e.admit(method, c); err != nil {
			return nil, err
		}
		switch method {
		case "tools/call":
			return e.call(ctx, method, req, c, next)
		case "subscriptions/listen":
			return e.listen(ctx, method, req, c, next)
		case "initialize":
			return e.legacyInitialize(ctx, method, req, c, next)
		case "tools/list":
			return e.legacyTools(ctx, method, req, c, next)
		}
		return next(ctx, method, req)
	}
}

// admit refuses what the client may not ask for, or the server does not offer.
func (e *Extension) admit(method string, c *Client) error {
	offered := true
	switch group, _, _ := strings.Cut(method, "/"); group {
	case "prompts":
		offered = e.opts.Prompts
	case "resources":
		offered = e.opts.Resources
	case "completion":
		offered = e.opts.Completions
	case "logging":
		offered = e.opts.Logging
	case "tasks":
		switch {
		case e.legacyTasks(c):
			_, lists := e.store.(Lister)
			offered = method != "tasks/update" && (method != "tasks/list" || lists)
		case c.Legacy, c.mixed(), method == "tasks/list", method == "tasks/result":
			offered = false
		case !c.Tasks:
			return errUndeclared()
		}
	}
	if !offered {
		return notFound("%q is not offered by this server", method)
	}
	return nil
}

// remember keeps a request of a wrapped connection and returns a name for it.
func (e *Extension) remember(r *request) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	name := strconv.FormatUint(e.last, 10)
	e.requests[name] = r
	return name
}

func (e *Extension) forget(r *request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.requests, r.instance)
}

// find returns the request by the header it was delivered with; nil = it is not
// one of a wrapped connection.
func (e *Extension) find(extra *mcp.RequestExtra) *request {
	if extra == nil {
		return nil
	}
	names := extra.Header[requestHeader]
	if len(names) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests[names[0]]
}

// recovered is deferred in goroutines that run a store's code.
func (e *Extension) recovered(doing string) {
	if p := recover(); p != nil {
		e.opts.Logger.Error("a store panicked", "while", doing, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// taskParams are the parameters of all tasks methods, of any type: the SDK
// quotes whole parameters in the error of a wrong one.
type taskParams struct {
	mcp.ParamsBase
	TaskID         any `json:"taskId"`
	InputResponses any `json:"inputResponses"`
	Cursor         any `json:"cursor"`
}

// id returns the task's id.
func (p *taskParams) id() (string, error) {
	id, ok := p.TaskID.(string)
	switch {
	case p.TaskID == nil:
		return "", invalid(`"taskId" is missing`)
	case !ok:
		return "", invalid(`"taskId" is not a string`)
	case !validID(id):
		return "", wireError(ErrUnknownTask)
	}
	return id, nil
}

// get serves tasks/get.
func (e *Extension) get(ctx context.Context, c *Client, p *taskParams) (*reply, error) {
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	if e.legacyTasks(c) {
		return e.legacyGet(ctx, c, id)
	}
	t, err := e.store.Get(ctx, c, id)
	if err != nil {
		return nil, about(id, err)
	}
	return detailed(t, c, `"resultType":"complete"`)
}

// update serves tasks/update.
func (e *Extension) update(ctx context.Context, c *Client, p *taskParams) (*reply, error) {
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	if _, ok := p.InputResponses.(map[string]any); !ok {
		return nil, invalid(`"inputResponses" is not an object`)
	}
	answers, err := c.request.inputResponses(p.InputResponses)
	if err != nil {
		return nil, err
	}
	if err := e.store.Update(ctx, c, id, answers); err != nil {
		return nil, about(id, err)
	}
	return acknowledged(), nil
}

// cancel serves tasks/cancel.
func (e *Extension) cancel(ctx context.Context, c *Client, p *taskParams) (*reply, error) {
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	if e.legacyTasks(c) {
		return e.legacyCancel(ctx, c, id)
	}
	if err := e.store.Cancel(ctx, c, id); err != nil {
		return nil, about(id, err)
	}
	return acknowledged(), nil
}

// acknowledged is the empty result of 2026-07-28.
func acknowledged() *reply { return &reply{members: []byte(`"resultType":"complete"`)} }

// about names the task in an error.
func about(id string, err error) error {
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return err // it has its own words
	}
	return fmt.Errorf("task %s: %w", id, err)
}
