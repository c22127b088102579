package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds that keep a client that misbehaves from harming the others.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	// idleTimeout is longer than what [Client] keeps an idle connection for, so
	// that it is the client who closes it.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 64 << 10
	maxConns       = 2000
)

// errLeaving ends the waiting of polls when the daemon leaves.
var errLeaving = errors.New("jobd is leaving")

// ServerOptions are what a server is made of.
type ServerOptions struct {
	Handler Handler
	Log     *slog.Logger

	// The rest stands for other builds and users in tests.

	// Version is what replies name; "" = "devel".
	Version string
	// Protocol is the newest one that is spoken; 0 = [Protocol].
	Protocol int
	// UID is the only user who is served; nil = this one.
	UID *int
	// MaxConns bounds the open connections; 0 = 2,000.
	MaxConns int
}

// A Server serves the protocol to this user's processes.
type Server struct {
	handler  Handler
	log      *slog.Logger
	version  string
	protocol int
	uid      int
	max      int64

	http    http.Server
	leaving context.Context
	leave   context.CancelFunc

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // have not sent anything yet

	conns atomic.Int64
	last  atomic.Int64 // of the last activity, in nanoseconds since born
	born  time.Time
}

// NewServer returns a server. Call Serve for each listener, and Shutdown.
func NewServer(o ServerOptions) *Server {
	s := &Server{handler: o.Handler, log: o.Log, version: o.Version, protocol: o.Protocol, uid: os.Getuid(), max: maxConns, fresh: map[net.Conn]struct{}{}, born: time.Now()}
	if s.version == "" {
		s.version = "devel"
	}
	if s.protocol == 0 {
		s.protocol = Protocol
	}
	if o.UID != nil {
		s.uid = *o.UID
	}
	if o.MaxConns > 0 {
		s.max = int64(o.MaxConns)
	}
	s.leaving, s.leave = context.WithCancel(context.Background())
	s.http = http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.track,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers the connections that l accepts until l is closed or Shutdown
// is called, and then returns nil. It may be called for more than one listener.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(&checkedListener{Listener: l, server: s})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", l.Addr(), err)
}

// Shutdown stops accepting, ends the requests that wait, and lets the others
// finish until ctx ends; then it breaks them off. It closes the listeners,
// which must not unlink their sockets.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave()
	// The standard library gives a connection that has sent nothing yet some
	// seconds more; whoever is about to send on it will repeat that elsewhere.
	s.mu.Lock()
	for c := range s.fresh {
		c.Close()
	}
	s.mu.Unlock()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// Activity returns how many connections are open, and for how long there has
// been neither a request nor a new connection.
func (s *Server) Activity() (conns int, quiet time.Duration) {
	return int(s.conns.Load()), time.Since(s.born) - time.Duration(s.last.Load())
}

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	if state == http.StateNew {
		s.fresh[c] = struct{}{}
	} else {
		delete(s.fresh, c)
	}
	s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	case http.StateActive, http.StateIdle:
	}
	s.last.Store(int64(time.Since(s.born)))
}

// checkedListener hands on the connections of the right user only, and no more
// than the server takes.
type checkedListener struct {
	net.Listener
	server *Server
}

// full is what a connection too many is told.
var full = func() []byte {
	body, _ := json.Marshal(&Error{Code: CodeUnavailable, Message: "jobd has too many open connections", Hint: "try again when some of its clients have ended"})
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n%s: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		HeaderProtocol, Protocol, len(body), body)
}()

// Accept implements [net.Listener].
func (l *checkedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := checkPeer(c, l.server.uid); err != nil {
			l.server.log.Warn("refused a connection", "err", err)
			c.Close()
			continue
		}
		if l.server.conns.Load() >= l.server.max {
			l.server.log.Warn("refused a connection", "open", l.server.max)
			// Its buffer is empty, so this does not wait.
			if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
				_, _ = c.Write(full)
			}
			c.Close()
			continue
		}
		return c, nil
	}
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set(HeaderProtocol, strconv.Itoa(s.protocol))
	h.Set(HeaderVersion, s.version)
	reply, err := s.answer(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(reply); err != nil {
		s.fail(w, r, fmt.Errorf("encoding the reply: %w", err))
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(buf.Len()))
	_, _ = w.Write(buf.Bytes()) // a reader that is gone asks again
}

// answer finds the route, reads the body and calls the handler. A panic of the
// handler is its error.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (reply any, err error) {
	rt, ok := routes[r.URL.Path]
	if !ok {
		return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no call %q in protocol %d of jobd %s", r.URL.Path, s.protocol, s.version)}
	}
	if r.Method != rt.method {
		w.Header().Set("Allow", rt.method)
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s takes %s, not %s", rt.path, rt.method, r.Method)}
	}
	if err := s.checkProtocol(rt, r.Header.Get(HeaderProtocol)); err != nil {
		return nil, err
	}
	body, err := readBody(w, r, rt.limit)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if rt.poll {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.leaving, func() { cancel(errLeaving) })()
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a request made jobd panic", "path", rt.path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			reply, err = nil, &Error{Code: CodeInternal, Message: fmt.Sprintf("jobd failed on this request: %v", p), Hint: "its log has the details; other requests are served"}
		}
	}()
	return rt.serve(ctx, s.handler, r.Header.Get(HeaderKey), body)
}

func (s *Server) checkProtocol(rt *route, header string) error {
	if rt.frozen || header == "" {
		return nil
	}
	p, err := strconv.Atoi(header)
	switch {
	case err != nil || p < 1:
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the header %s is %q, which is no protocol number", HeaderProtocol, header)}
	case p > s.protocol:
		return &Error{Code: CodeVersion, Message: fmt.Sprintf("jobd %s speaks protocol %d at most, and the client speaks %d", s.version, s.protocol, p), Hint: "run: jobd restart"}
	}
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	tooLarge := &Error{Code: CodeInvalid, Message: fmt.Sprintf("the body of %s is larger than %d bytes", r.URL.Path, limit)}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return nil, fmt.Errorf("bounding the request: %w", err)
	}
	var read bytes.Buffer
	// What the client says to send is believed to a point.
	read.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead)
	if _, err := read.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		var over *http.MaxBytesError
		if errors.As(err, &over) {
			return nil, tooLarge
		}
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the body of the request could not be read: %v", err)}
	}
	// The connection is read on while the handler works, to see it close.
	if err := rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("bounding the request: %w", err)
	}
	return read.Bytes(), nil
}

// fail sends err. An error that is not of the protocol becomes an internal one
// and is logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	gone := s.leaving.Err() != nil
	var e *Error
	switch {
	case errors.As(err, &e):
		gone = gone && e.Code == CodeUnavailable
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errLeaving):
		e = &Error{Code: CodeUnavailable, Message: "the request was broken off before it was answered", Hint: "ask again"}
	default:
		gone = false
		s.log.Error("a request failed", "path", r.URL.Path, "err", err)
		e = &Error{Code: CodeInternal, Message: err.Error()}
	}
	h := w.Header()
	if gone {
		h.Set(headerLeaving, "1")
		h.Set("Connection", "close")
	}
	body, merr := json.Marshal(e)
	if merr != nil {
		body = []byte(`{"code":"internal","message":"the error could not be encoded"}`)
	}
	h.Set("Content-Type", "application/json")
	status := statusOf(e.Code)
	if h.Get("Allow") != "" {
		status = http.StatusMethodNotAllowed
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// statusOf maps codes to HTTP, for people with curl; clients read the code.
func statusOf(c Code) int {
	switch c {
	case CodeNotFound:
		return http.StatusNotFound
	case CodeExpired:
		return http.StatusGone
	case CodeInvalid:
		return http.StatusBadRequest
	case CodeAmbiguous, CodeConflict, CodeState:
		return http.StatusConflict
	case CodeRefused:
		return http.StatusForbidden
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeVersion:
		return http.StatusUpgradeRequired
	case CodeAnswers:
		return http.StatusUnprocessableEntity
	case CodeInternal:
	}
	return http.StatusInternalServerError
}
