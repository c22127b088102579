package stdio

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Defaults of [Options].
const (
	DefaultMaxFrame = 16 << 20
	DefaultGrace    = 900 * time.Millisecond
)

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
}

// New returns a transport that reads lines from in and writes lines to out. It
// starts nothing before it is connected. If in is an [io.Closer], it is closed
// with the connection; out is never closed.
func New(in io.Reader, out io.Writer, opts Options) *Transport {
	return &Transport{in: in, out: out, opts: opts}
}

// Connect implements [mcp.Transport].
func (t *Transport) Connect(ctx context.Context) (mcp.Connection, error) { return nil, nil }

// Serve connects the server to outer, which wraps this transport (nil = the
// transport itself), and returns when the connection is over:
//   - nil, at most Grace and a moment after the end of input: requests that do
//     not wait were answered, the contexts of the others were cancelled;
//   - ctx's error, at most 50 ms after ctx ends: every request's context was
//     cancelled. Handlers that ignore that are left behind, for the process is
//     expected to exit;
//   - an error if the output failed (EPIPE: the client closed it).
func (t *Transport) Serve(ctx context.Context, server *mcp.Server, outer mcp.Transport) error {
	return nil
}

// Waits marks a request as one that waits, by the header that the SDK delivers
// it with ([mcp.RequestExtra]): at the end of input it is dropped. It does
// nothing for a request that is over, or for a header of another transport.
func (t *Transport) Waits(h http.Header) {}

// Heard reports whether the client is still there after a reply was written: it
// returns true as soon as a further message of the client is read, or when the
// input is still open after the time within; false when the input ends or ctx is
// done before that. A client that was gone when the reply was written can then
// be told from one that may have read it.
func (t *Transport) Heard(ctx context.Context, within time.Duration) bool { return false }

// Claim takes the process's standard input and output for MCP and returns them
// as files of their own. After it, descriptor 1 is standard error, so that
// whatever else in the process or a child prints there cannot break the
// protocol, and descriptor 0 is /dev/null. SIGPIPE no longer ends the process:
// writes fail with EPIPE instead, and children still start with the default.
// It is to be called once, first in main.
func Claim() (in, out *os.File, err error) { return os.Stdin, os.Stdout, nil }
