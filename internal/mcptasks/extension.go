package mcptasks

import (
	"log/slog"

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
}

// New returns an extension that serves the tasks of store.
func New(store Store, opts Options) *Extension {
	if opts.Tokens == nil {
		opts.Tokens = NewTokens(1024, defaultTokenTTL)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Extension{store: store, opts: opts}
}

// Declare adds the extension to the capabilities that a server is made with.
func (e *Extension) Declare(caps *mcp.ServerCapabilities) { caps.AddExtension(ExtensionID, nil) }

// Attach adds the extension's methods and middleware to a server. It must come
// before any other receiving middleware is added, so that a panic there is
// caught too, and before the server is connected.
func (e *Extension) Attach(s *mcp.Server) { e.attach(s) }

// AddTool adds a tool whose handler may answer with tasks and questions. Tools
// of the SDK's own kind work beside it.
func (e *Extension) AddTool(s *mcp.Server, t *mcp.Tool, support TaskSupport, h Handler) {
	e.addTool(s, t, support, h)
}

// Wrap returns a transport whose one connection is t's, with subscriptions to
// tasks, [Client.AfterWrite] and the 2025-11-25 tasks.
func (e *Extension) Wrap(t mcp.Transport) mcp.Transport { return &transport{ext: e, inner: t} }
