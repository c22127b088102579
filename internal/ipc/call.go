package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The reasons why an attempt gave no reply, which decide what comes next.
var (
	errAbsent = errors.New("no daemon")         // nobody listens on the socket
	errBroken = errors.New("the reply is lost") // somebody did, and it may have acted
)

// call carries one call through: it repeats what can be repeated, and starts
// or exchanges the daemon where that helps.
func call[Out any](ctx context.Context, c *Client, path, key string, in any) (Out, error) {
	var out Out
	rt := routes[path]
	began := time.Now()
	var (
		trouble     time.Time // since when no attempt got through
		interrupted bool      // an attempt got through and its reply was lost
		starts      int
		exchanged   bool
		pause       = 5 * time.Millisecond
	)
	for {
		attempt := time.Now()
		request := in
		if rt.poll && interrupted {
			request = waitLess(in, attempt.Sub(began))
		}
		err := c.send(ctx, rt, key, request, &out)
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return out, fmt.Errorf("asking jobd: %w", context.Cause(ctx))
		}
		if trouble.IsZero() || time.Since(attempt) > healthy {
			trouble = time.Now()
		}
		var e *Error
		switch {
		case errors.Is(err, errAbsent):
			if c.mayStart() && (!interrupted || !c.stopped()) {
				if starts++; starts > 3 {
					return out, &Error{Code: CodeUnavailable, Message: "jobd was started three times and ended again each time", Hint: "its log says why: " + c.o.Log}
				}
				if serr := c.start(ctx, false); serr != nil {
					return out, serr
				}
				continue
			}
			// Another process may be about to start one.
			patience := time.Duration(0)
			switch {
			case c.o.InJob:
				patience = jobWaits
			case interrupted && !c.stopped():
				patience = healthy
			}
			if time.Since(trouble) >= patience {
				return out, c.missing(interrupted)
			}
		case errors.Is(err, errBroken):
			interrupted = true
			c.transport.CloseIdleConnections()
			if rt.once || time.Since(trouble) >= retryFor {
				return out, &Error{Code: CodeUnavailable, Message: fmt.Sprintf("the connection to jobd broke before the reply came: %v", unmarked(err)), Hint: "its log may say why: " + c.o.Log}
			}
		case errors.As(err, &e) && e.Code == CodeVersion && c.older():
			if exchanged || !c.mayStart() {
				return out, c.tooOld()
			}
			exchanged = true
			if serr := c.start(ctx, true); serr != nil {
				return out, serr
			}
			continue
		default:
			return out, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return out, fmt.Errorf("asking jobd: %w", context.Cause(ctx))
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
}

// mayStart reports whether this client starts daemons.
func (c *Client) mayStart() bool { return !c.passive && !c.o.InJob && c.o.Executable != "" }

// stopped reports whether the daemon was stopped on purpose.
func (c *Client) stopped() bool {
	if c.o.Stopped == "" {
		return false
	}
	_, err := os.Lstat(c.o.Stopped)
	return err == nil
}

// older reports whether the daemon that answered last is older than c.
func (c *Client) older() bool {
	p := c.seen.Load()
	return p != nil && p.protocol < c.o.Protocol
}

func (c *Client) tooOld() error {
	protocol, version := c.Peer()
	return &Error{Code: CodeVersion,
		Message: fmt.Sprintf("the daemon is jobd %s (protocol %d), older than this program, %s (protocol %d)", version, protocol, c.o.Version, c.o.Protocol),
		Hint:    "run: jobd restart"}
}

func (c *Client) missing(interrupted bool) error {
	e := &Error{Code: CodeUnavailable, Message: "jobd is not running: nothing answers on " + c.o.Socket}
	switch {
	case c.o.InJob:
		e.Hint = "inside a job none is started; from outside, run: jobd start"
	case c.stopped():
		e.Message = "jobd was stopped"
		e.Hint = "start it again with: jobd start"
	case interrupted:
		e.Message = "jobd ended, and nothing answers on " + c.o.Socket
		e.Hint = "its log may say why: " + c.o.Log
	}
	return e
}

// unmarked returns the cause of an error made by mark.
func unmarked(err error) error {
	var m *marked
	if errors.As(err, &m) {
		return m.cause
	}
	return err
}

// marked is an error of the transport with its reason.
type marked struct{ reason, cause error }

// Error implements error.
func (m *marked) Error() string { return m.reason.Error() + ": " + m.cause.Error() }

// Unwrap lets errors.Is see the reason and the cause.
func (m *marked) Unwrap() []error { return []error{m.reason, m.cause} }

// send makes one attempt. Its error is an [*Error] from the daemon or about
// the socket, one that is marked errAbsent or errBroken, or the context's.
func (c *Client) send(ctx context.Context, rt *route, key string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the request cannot be encoded: %v", err)}
		}
	}
	within := replyWithin
	if rt.poll {
		within += waitOf(in)
	}
	if !rt.unbounded {
		tooSlow := &Error{Code: CodeUnavailable, Message: fmt.Sprintf("jobd took the request on %s and did not answer within %v", c.o.Socket, within),
			Hint: "it may be stopped or overloaded; see " + c.o.Log + ", or run: jobd restart"}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, within, tooSlow)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, rt.method, "http://jobd"+rt.path, bytes.NewReader(body))
	if err != nil {
		return &Error{Code: CodeInternal, Message: fmt.Sprintf("making the request: %v", err)}
	}
	req.Header.Set(HeaderProtocol, strconv.Itoa(c.o.Protocol))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set(HeaderKey, key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.transportFault(ctx, err)
	}
	defer resp.Body.Close()
	p := &peer{version: resp.Header.Get(HeaderVersion)}
	if p.protocol, err = strconv.Atoi(resp.Header.Get(HeaderProtocol)); err != nil {
		return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("what answers on %s is not jobd", c.o.Socket), Hint: "end that program, and try again"}
	}
	if old := c.seen.Load(); old == nil || *old != *p {
		c.seen.Store(p)
	}
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return c.transportFault(ctx, err)
	}
	if len(reply) > maxReply {
		return &Error{Code: CodeInternal, Message: fmt.Sprintf("jobd's reply is larger than %d bytes", maxReply)}
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(reply, out); err != nil {
			return &Error{Code: CodeInternal, Message: fmt.Sprintf("jobd %s sent a reply that cannot be read: %v", p.version, err)}
		}
		return nil
	}
	e := new(Error)
	if err := json.Unmarshal(reply, e); err != nil || e.Message == "" {
		e = &Error{Code: CodeInternal, Message: fmt.Sprintf("jobd %s answered %s and no reason", p.version, resp.Status)}
	}
	if resp.Header.Get(headerLeaving) != "" {
		return &marked{errBroken, e}
	}
	return e
}

// transportFault sorts the errors of a request that got no reply.
func (c *Client) transportFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *forbiddenError
	var e *Error
	var m *marked
	if errors.As(err, &f) {
		return f
	}
	if errors.As(err, &e) {
		return e
	}
	if errors.As(err, &m) {
		return m
	}
	return &marked{errBroken, err}
}

// dial connects to the socket and checks who is there.
func (c *shared) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.o.Socket)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return nil, forbidden(c.o.Socket, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return nil, &marked{errAbsent, err}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil, &marked{errBroken, err}
	case errors.Is(err, syscall.EINVAL):
		return nil, &Error{Code: CodeUnavailable, Message: fmt.Sprintf("the socket's path %s has %d bytes, more than a socket can have", c.o.Socket, len(c.o.Socket)),
			Hint: "set JOBD_HOME to a directory with a shorter path"}
	default:
		return nil, &Error{Code: CodeUnavailable, Message: fmt.Sprintf("connecting to jobd on %s: %v", c.o.Socket, err)}
	}
	if err := checkPeer(conn, *c.o.UID); err != nil {
		conn.Close()
		return nil, &Error{Code: CodeRefused, Message: fmt.Sprintf("somebody else's program listens on %s: %v", c.o.Socket, err),
			Hint: "remove its directory " + filepath.Dir(c.o.Socket) + ", or set JOBD_HOME to a directory of your own"}
	}
	return conn, nil
}

// forbidden is the error of a process that may not use the socket. Starting a
// daemon would not help it.
func forbidden(socket string, err error) error {
	paths := strconv.Quote(socket)
	if strings.HasPrefix(socket, "/tmp/") {
		paths += ", " + strconv.Quote("/private"+socket)
	}
	return &forbiddenError{err, &Error{
		Code:    CodeUnavailable,
		Message: fmt.Sprintf("this process may not connect to jobd's socket %s (%v): most likely it runs in a sandbox", socket, underlying(err)),
		Hint:    fmt.Sprintf("in Claude Code's settings allow it by sandbox.network.allowUnixSockets: [%s]", paths),
	}}
}

// forbiddenError is an [*Error] that errors.Is finds the system's own in.
type forbiddenError struct {
	cause error
	told  *Error
}

// Error implements error.
func (e *forbiddenError) Error() string { return e.told.Error() }

// Unwrap lets errors.As see the [*Error], and errors.Is the cause.
func (e *forbiddenError) Unwrap() []error { return []error{e.told, e.cause} }

// underlying returns the system's own word for err.
func underlying(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
