package ipc

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options say where the daemon is and how one is started.
type Options struct {
	// Socket is the path of the daemon's socket.
	Socket string

	// Executable is the sibling program jobd, which starts the daemon by
	// "jobd start"; "" = a daemon is never started.
	Executable string
	// Env is the whole environment of "jobd start".
	Env []string
	// Prepare makes the directories of socket and lock before a start, or says
	// why they cannot be used. May be nil.
	Prepare func() error
	// StartLock is the file that clients lock while they start a daemon.
	StartLock string
	// Stopped is the file that is there after a daemon was stopped on purpose.
	Stopped string
	// Log is the daemon's log, named in errors.
	Log string
	// InJob: this process runs inside a job, where no daemon may be started. One
	// that is missing is waited for.
	InJob bool

	// The rest stands for other builds and users in tests.

	// Version names this program in errors; "" = "devel".
	Version string
	// Protocol is what requests carry; 0 = [Protocol].
	Protocol int
	// UID is the only user whose daemon is spoken to; nil = this one.
	UID *int
}

// The client's fixed times.
const (
	// retryFor bounds how long a call is repeated whose connection breaks.
	retryFor = 10 * time.Second
	// startWithin bounds how long a daemon that is missing is being started.
	startWithin = 4500 * time.Millisecond
	// handOverWithin bounds the exchange of an older daemon.
	handOverWithin = 9 * time.Second
	// startMemory is how long a start that failed is not tried again.
	startMemory = 2 * time.Second
	// jobWaits is how long a process inside a job waits for a daemon.
	jobWaits = 5 * time.Second
	// replyWithin bounds one attempt at a call that does not wait.
	replyWithin = 30 * time.Second
	// healthy is how long a connection must have lasted for its end to count as
	// a new trouble.
	healthy   = 2 * time.Second
	idleConns = 90 * time.Second
)

// A Client calls the daemon over its socket and is itself a [Handler]: one
// method per call. It starts a daemon that is missing, and asks one that is
// older than itself to make place.
//
// A call whose reply was lost, because the connection broke or the daemon
// ended, is repeated over a fresh connection for about 10 s; those that create
// a job carry a key by which the daemon knows them again. A call that waits
// survives a restart of the daemon, and waits no longer in all for it. Every
// error wraps an [*Error], or that of the context, which ends a call at once;
// where the system forbids the socket it wraps EPERM or EACCES too.
//
// It may be used from any goroutine. Close it when no call is running.
type Client struct {
	*shared
	// passive: no daemon is started for a call of this client.
	passive bool
}

// shared is what a client and its passive twin have in common.
type shared struct {
	o         Options
	http      *http.Client
	transport *http.Transport
	seen      atomic.Pointer[peer]

	life   context.Context
	end    context.CancelFunc
	flight sync.WaitGroup

	mu       sync.Mutex
	starting *flight
	failed   error
	failedAt time.Time
}

// peer is who answered last.
type peer struct {
	protocol int
	version  string
}

// New returns a client. It does not connect yet.
func New(o Options) *Client {
	if o.Version == "" {
		o.Version = "devel"
	}
	if o.Protocol == 0 {
		o.Protocol = Protocol
	}
	if o.UID == nil {
		uid := os.Getuid()
		o.UID = &uid
	}
	s := &shared{o: o}
	s.life, s.end = context.WithCancel(context.Background())
	s.transport = &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
		DisableCompression:  true,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idleConns,
	}
	s.http = &http.Client{Transport: s.transport}
	return &Client{shared: s}
}

// Passive returns a client that shares everything with c but never starts a
// daemon: a call fails with [CodeUnavailable] where there is none. It is for
// whatever only watches, or a "jobd stop" would not last. It is closed with c.
func (c *Client) Passive() *Client { return &Client{shared: c.shared, passive: true} }

// Close ends the start of a daemon that is under way, and the idle
// connections.
func (c *Client) Close() {
	c.end()
	c.flight.Wait()
	c.transport.CloseIdleConnections()
}

// Peer returns the protocol and version of the daemon that answered last; 0
// and "" if none has.
func (c *Client) Peer() (protocol int, version string) {
	if p := c.seen.Load(); p != nil {
		return p.protocol, p.version
	}
	return 0, ""
}

var _ Handler = (*Client)(nil)

// Status implements [Handler].
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, pathStatus, "", nil)
}

// Stop implements [Handler]. It never starts a daemon, and is not repeated.
func (c *Client) Stop(ctx context.Context, r StopRequest) error {
	_, err := call[Empty](ctx, c.Passive(), pathStop, "", r)
	return err
}

// Submit implements [Handler]. The key must be new for each job, and the same
// where a caller repeats the call itself; "" = a random one.
func (c *Client) Submit(ctx context.Context, key string, r SubmitRequest) (SubmitReply, error) {
	if key == "" {
		key = rand.Text()
	}
	return call[SubmitReply](ctx, c, pathSubmit, key, r)
}

// List implements [Handler].
func (c *Client) List(ctx context.Context, r ListRequest) (ListReply, error) {
	return call[ListReply](ctx, c, pathList, "", r)
}

// Get implements [Handler].
func (c *Client) Get(ctx context.Context, r GetRequest) (Job, error) {
	return call[Job](ctx, c, pathGet, "", r)
}

// Result implements [Handler].
func (c *Client) Result(ctx context.Context, r GetRequest) (Result, error) {
	return call[Result](ctx, c, pathResult, "", r)
}

// Output implements [Handler].
func (c *Client) Output(ctx context.Context, r OutputRequest) (Output, error) {
	return call[Output](ctx, c, pathOutput, "", r)
}

// Cancel implements [Handler].
func (c *Client) Cancel(ctx context.Context, r CancelRequest) (Job, error) {
	return call[Job](ctx, c, pathCancel, "", r)
}

// Delivered implements [Handler].
func (c *Client) Delivered(ctx context.Context, r DeliveredRequest) error {
	_, err := call[Empty](ctx, c, pathDelivered, "", r)
	return err
}

// Ask implements [Handler].
func (c *Client) Ask(ctx context.Context, r AskRequest) (Answer, error) {
	return call[Answer](ctx, c, pathAsk, "", r)
}

// Await implements [Handler].
func (c *Client) Await(ctx context.Context, r AwaitRequest) (Answer, error) {
	return call[Answer](ctx, c, pathAwait, "", r)
}

// Answer implements [Handler].
func (c *Client) Answer(ctx context.Context, r AnswerRequest) (AnswerReply, error) {
	return call[AnswerReply](ctx, c, pathAnswer, "", r)
}

// Progress implements [Handler].
func (c *Client) Progress(ctx context.Context, r ProgressRequest) error {
	_, err := call[Empty](ctx, c, pathProgress, "", r)
	return err
}

// SetResult implements [Handler].
func (c *Client) SetResult(ctx context.Context, r SetResultRequest) error {
	_, err := call[Empty](ctx, c, pathSetResult, "", r)
	return err
}

// Session implements [Handler].
func (c *Client) Session(ctx context.Context, r SessionRequest) (ListReply, error) {
	return call[ListReply](ctx, c, pathSession, "", r)
}

// Tools implements [Handler].
func (c *Client) Tools(ctx context.Context, r ToolsRequest) (ToolsReply, error) {
	return call[ToolsReply](ctx, c, pathTools, "", r)
}

// Prune implements [Handler].
func (c *Client) Prune(ctx context.Context, r PruneRequest) (PruneReply, error) {
	return call[PruneReply](ctx, c, pathPrune, "", r)
}
