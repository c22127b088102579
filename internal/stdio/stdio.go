package stdio

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Defaults of [Options].
const (
	DefaultMaxFrame = 16 << 20
	DefaultGrace    = 900 * time.Millisecond
)

// leave is how long Serve waits for handlers whose contexts were cancelled.
const leave = 50 * time.Millisecond

// Options configure a [Transport]. The zero value is good.
type Options struct {
	// MaxFrame is the size of the longest line taken, in bytes without its end;
	// a longer one is skipped and answered with -32600. 0 = DefaultMaxFrame.
	MaxFrame int
	// Grace is how long requests may go on after the end of input. 0 =
	// DefaultGrace.
	Grace time.Duration
	// Waits says which methods wait for something to happen by their nature, and
	// so are dropped at the end of input instead of answered. nil = only
	// subscriptions/listen. Single requests are marked by [Transport.Waits].
	Waits func(method string) bool
	// Logger gets the lines that were refused, without their content; nil =
	// nothing is logged.
	Logger *slog.Logger
}

// A Transport is an [mcp.Transport] over one pair of streams. It serves one
// connection.
type Transport struct {
	in   io.Reader
	out  io.Writer
	opts Options

	mu   sync.Mutex
	conn *conn
}

// New returns a transport that reads lines from in and writes lines to out. It
// starts nothing before it is connected. If in is an [io.Closer], it is closed
// with the connection; out is never closed.
func New(in io.Reader, out io.Writer, opts Options) *Transport {
	return &Transport{in: in, out: out, opts: opts}
}

// Connect implements [mcp.Transport]. A second call fails.
func (t *Transport) Connect(context.Context) (mcp.Connection, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		return nil, errors.New("connecting: a stdio transport serves one connection only")
	}
	t.conn = newConn(t)
	go t.conn.pump() // ends with the input, or with Close where the input can be closed
	return t.conn, nil
}

// connection returns the connection, nil before Connect.
func (t *Transport) connection() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

// Serve connects the server to outer, which wraps this transport (nil = the
// transport itself), and returns when the connection is over:
//   - nil, at most Grace and a moment after the end of input: requests that do
//     not wait were answered, the contexts of the others were cancelled;
//   - ctx's error, at most 50 ms after ctx ends: every request's context was
//     cancelled. Handlers that ignore that are left behind, for the process is
//     expected to exit;
//   - an error if the output failed (EPIPE: the client closed it) or the input
//     could not be read.
func (t *Transport) Serve(ctx context.Context, server *mcp.Server, outer mcp.Transport) error {
	if outer == nil {
		outer = t
	}
	session, err := server.Connect(context.WithoutCancel(ctx), outer, nil)
	if err != nil {
		return err
	}
	c := t.connection()
	if c == nil {
		_ = session.Close()
		return errors.New("serving: the outer transport did not connect this one")
	}
	var endErr error
	ended := make(chan struct{}) // closed once endErr is set
	go func() {
		defer close(ended)
		endErr = session.Wait()
	}()

	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.failed:
		err = c.writeErr
	case <-c.over:
		err = c.readErr
	case <-ended:
		err = endErr // another's Close, or one of the above at the same moment
	}
	// The SDK cancels what is still open when it reads the end.
	_ = c.Close()
	late := time.NewTimer(leave)
	defer late.Stop()
	select {
	case <-ended:
		select {
		case <-c.pumped:
		case <-late.C:
		}
	case <-late.C:
	}
	select {
	case <-c.failed:
		if ctx.Err() == nil {
			err = c.writeErr
		}
	default:
	}
	return err
}

// Waits marks a request as one that waits, by the header that the SDK delivers
// it with ([mcp.RequestExtra]): at the end of input it is dropped. It does
// nothing for a request that is over, or for a header of another transport.
func (t *Transport) Waits(h http.Header) {
	c, refs := t.connection(), h[refHeader]
	if c == nil || len(refs) == 0 {
		return
	}
	c.mu.Lock()
	if p := c.refs[refs[0]]; p != nil {
		p.waits = true
	}
	c.mu.Unlock()
	c.poke()
}

// Heard reports whether the client is still there after a reply was written: it
// returns true as soon as a further message of the client is read, or when the
// input is still open after the time within; false when the input ends or ctx is
// done before that. A client that was gone when the reply was written can then
// be told from one that may have read it.
//
// What remains unknown: a message that is read now may have been sent before the
// reply was, by a client that died in between.
func (t *Transport) Heard(ctx context.Context, within time.Duration) bool {
	c := t.connection()
	if c == nil {
		return false
	}
	c.mu.Lock()
	heard := c.heard
	c.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.inputEnd:
		return false
	default:
	}
	select {
	case <-heard:
		return true
	case <-timer.C:
		return true
	case <-c.inputEnd:
		return false
	case <-c.closed:
		return false
	case <-ctx.Done():
		return false
	}
}
