package frontend

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/caller"
	"jobd/internal/mcptasks"
)

//go:embed instructions.md
var instructions string

// Options configure a [Frontend]. Daemon and Caller are needed.
type Options struct {
	// Daemon is jobd, started by whoever needs it.
	Daemon Daemon
	// Passive is jobd only where it runs already: its calls fail with
	// [ipc.CodeUnavailable] where not, and start nothing. nil = Daemon.
	Passive Daemon
	// Caller is what the front end was started with.
	Caller caller.Caller
	// Line is what the transport knows of the client; nil = nothing is marked as
	// waiting, and a client counts as there when 2 s have passed.
	Line Line
	// ConfigDir holds config.yaml and the user's job files; "" = there are none.
	ConfigDir string
	// Version is what the server calls itself.
	Version string
	// Logger gets bugs; nil = nothing is logged.
	Logger *slog.Logger
}

// A Line is what a transport knows beside the messages; *stdio.Transport is one.
type Line interface {
	// Waits marks a request as one that is dropped at the end of input.
	Waits(request http.Header)
	// Heard reports whether the client was still there some time after a reply
	// was written to it.
	Heard(ctx context.Context, within time.Duration) bool
}

// A Frontend serves one connection of one client. It is made by [New] and ended
// by [Frontend.Close].
type Frontend struct {
	daemon, passive Daemon
	caller          caller.Caller
	line            Line
	log             *slog.Logger
	server          *mcp.Server
	ext             *mcptasks.Extension
	catalog         *catalog
	deliveries      *deliveries
	// session is what the daemon calls this session now, where it has said so:
	// it goes on under another name after /clear.
	session atomic.Pointer[string]

	// life ends with Close. Requests to the daemon that must not end with a
	// request of the client live as long.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // goroutines of background
}

// New returns a front end that is ready to be connected. It asks nothing of the
// daemon yet.
func New(o Options) *Frontend {
	f := &Frontend{daemon: o.Daemon, passive: o.Passive, caller: o.Caller, line: o.Line, log: o.Logger}
	if f.passive == nil {
		f.passive = o.Daemon
	}
	if f.line == nil {
		f.line = noLine{}
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.life, f.end = context.WithCancel(context.Background())
	f.deliveries = &deliveries{f: f}
	f.ext = mcptasks.New(&store{f}, mcptasks.Options{Resources: true, Logger: o.Logger})

	capabilities := &mcp.ServerCapabilities{
		Tools:     &mcp.ToolCapabilities{ListChanged: true},
		Resources: &mcp.ResourceCapabilities{},
	}
	f.ext.Declare(capabilities)
	f.server = mcp.NewServer(
		&mcp.Implementation{Name: "jobd", Title: "jobd: durable jobs", Version: o.Version},
		&mcp.ServerOptions{
			Instructions: instructions,
			Capabilities: capabilities,
			// What is listed and read changes with every job.
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" },
		})
	f.catalog = newCatalog(f, o.ConfigDir)
	// Listing asks the extension for the client, so it goes within its middleware;
	// a tool that is not known yet is looked for before that sees the call.
	f.server.AddReceivingMiddleware(f.lists)
	f.ext.Attach(f.server)
	f.server.AddReceivingMiddleware(f.catalog.find)
	f.addResources()
	return f
}

// Server returns the server that speaks for the front end.
func (f *Frontend) Server() *mcp.Server { return f.server }

// Wrap returns the transport to connect the server to, given the client's.
func (f *Frontend) Wrap(t mcp.Transport) mcp.Transport { return f.ext.Wrap(t) }

// Close ends what the front end still does, and gives what it owes the daemon
// (which results were delivered) the time grace. It touches no job.
func (f *Frontend) Close(grace time.Duration) {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.deliveries.flush(grace)
	f.end()
	done := make(chan struct{})
	go func() { // outlives Close only if the daemon ignores the end of a context
		f.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(grace):
	}
}

// background runs work that outlives a request. It reports false, and does
// nothing, when the front end is closed.
func (f *Frontend) background(work func(life context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.work.Go(func() {
		defer f.caught()
		work(f.life)
	})
	return true
}

// own reports whether a job's session is this one.
func (f *Frontend) own(session string) bool {
	if now := f.session.Load(); now != nil && *now == session {
		return true
	}
	return session == f.caller.Session
}

// caught keeps a panic in a goroutine of ours from ending the process.
func (f *Frontend) caught() {
	if v := recover(); v != nil {
		f.log.Error("panic", "value", v)
	}
}

// noLine is a transport that knows nothing.
type noLine struct{}

func (noLine) Waits(http.Header) {}

func (noLine) Heard(ctx context.Context, within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
