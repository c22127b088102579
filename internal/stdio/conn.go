package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refHeader names a request in the header that the SDK delivers it with.
const refHeader = "Stdio-Request"

// errRejected is what the SDK takes for a message that was not sent while the
// connection stays good.
var errRejected = &jsonrpc.Error{Code: -32005, Message: "the client cancelled the request: no reply is sent"}

// A pending request was read and not answered yet.
type pending struct {
	raw       json.RawMessage // the id as the client wrote it
	ref       string
	method    string
	waits     bool
	cancelled bool
}

// conn is the one connection of a transport.
type conn struct {
	in       io.Reader
	out      io.Writer
	limit    int
	grace    time.Duration
	waits    func(string) bool
	warn     func(msg string, args ...any)
	incoming chan jsonrpc.Message
	pumped   chan struct{} // closed when the pump is done

	closed    chan struct{} // Close was called
	closeOnce sync.Once
	inputEnd  chan struct{} // the input has ended; readErr is set
	readErr   error
	over      chan struct{} // closed when Read is to report the end of input
	failed    chan struct{} // the output failed; writeErr is set

	writeMu  sync.Mutex
	writeErr error

	mu      sync.Mutex
	pending map[jsonrpc.ID]*pending
	refs    map[string]*pending
	writing int // replies that are being written
	lastRef uint64
	changed chan struct{} // has a token when pending changed
	heard   chan struct{} // closed and replaced at each message read
}

func newConn(t *Transport) *conn {
	c := &conn{in: t.in, out: t.out, limit: t.opts.MaxFrame, grace: t.opts.Grace, waits: t.opts.Waits,
		warn:     func(string, ...any) {},
		incoming: make(chan jsonrpc.Message), pumped: make(chan struct{}), closed: make(chan struct{}),
		inputEnd: make(chan struct{}), over: make(chan struct{}), failed: make(chan struct{}),
		pending: map[jsonrpc.ID]*pending{}, refs: map[string]*pending{},
		changed: make(chan struct{}, 1), heard: make(chan struct{})}
	if c.limit <= 0 {
		c.limit = DefaultMaxFrame
	}
	if c.grace <= 0 {
		c.grace = DefaultGrace
	}
	if c.waits == nil {
		c.waits = func(method string) bool { return method == "subscriptions/listen" }
	}
	if t.opts.Logger != nil {
		c.warn = t.opts.Logger.Warn
	}
	return c
}

// pump reads lines until the input ends or the connection is closed.
func (c *conn) pump() {
	defer close(c.pumped)
	r := bufio.NewReaderSize(c.in, 64<<10)
	for {
		f, err := readFrame(r, c.limit)
		if err != nil {
			c.end(err)
			return
		}
		if !c.take(f) {
			c.end(io.EOF)
			return
		}
	}
}

// end marks the end of input, and reports it to the SDK once every request that
// does not wait is answered, at the latest after the grace: at the end of input
// the SDK drops what it has not answered.
func (c *conn) end(err error) {
	if !errors.Is(err, io.EOF) {
		c.readErr = fmt.Errorf("reading the input: %w", err)
	}
	close(c.inputEnd)
	defer close(c.over)
	limit := time.NewTimer(c.grace)
	defer limit.Stop()
	for !c.settled() {
		select {
		case <-c.changed:
		case <-limit.C:
			return
		case <-c.closed:
			return
		case <-c.failed:
			return
		}
	}
}

// settled reports whether no reply is to be expected.
func (c *conn) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if !p.waits && !p.cancelled {
			return false
		}
	}
	return c.writing == 0
}

// take handles one line; false means that the connection is closed.
func (c *conn) take(f *frame) bool {
	if f.long {
		c.refuse(&refusal{idOfLong(f.head, f.tail), jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the message is longer than %d bytes", c.limit)})
		return true
	}
	m, no := split(f.line)
	if no != nil {
		c.refuse(no)
		return true
	}
	if m == nil {
		return true
	}
	msg, no := c.message(m)
	if no != nil {
		c.refuse(no)
		return true
	}
	c.mu.Lock()
	close(c.heard)
	c.heard = make(chan struct{})
	c.mu.Unlock()
	if msg == nil {
		return true
	}
	select {
	case c.incoming <- msg:
		return true
	case <-c.closed:
		return false
	}
}

// message makes the SDK's message of one that was taken apart; nil = there is
// nothing to pass on.
func (c *conn) message(m *message) (jsonrpc.Message, *refusal) {
	if m.method == nil {
		return reply(m), nil
	}
	req := &jsonrpc.Request{Method: unquote(m.method), Params: m.params}
	if string(m.params) == "null" {
		req.Params = nil
	}
	if m.id == nil {
		if req.Method == "notifications/cancelled" {
			return c.cancelled(req), nil
		}
		if req.Params != nil && req.Params[0] != '{' {
			return nil, nil // an invalid notification is ignored
		}
		return req, nil
	}
	if strings.HasPrefix(req.Method, "notifications/") {
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, fmt.Sprintf("%q is a notification and must not have an id", req.Method)}
	}
	req.ID, _ = parseID(m.id)
	p := &pending{raw: bytes.Clone(m.id), method: req.Method, waits: c.waits(req.Method)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[req.ID] != nil {
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, "a request with this id is not answered yet"}
	}
	c.lastRef++
	p.ref = strconv.FormatUint(c.lastRef, 10)
	c.pending[req.ID], c.refs[p.ref] = p, p
	req.Extra = &mcp.RequestExtra{Header: http.Header{refHeader: {p.ref}}}
	return req, nil
}

// reply makes the SDK's message of a client's response to one of our requests,
// whose ids the SDK makes: integers, or what a wrapping transport made. The SDK
// ignores a response to nothing.
func reply(m *message) jsonrpc.Message {
	id, ok := parseID(m.id)
	if !ok || string(m.tag) != `"2.0"` {
		return nil
	}
	resp := &jsonrpc.Response{ID: id, Result: m.result}
	if m.err != nil {
		e := new(jsonrpc.Error)
		if err := json.Unmarshal(m.err, e); err != nil {
			e = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client sent a malformed error"}
		}
		resp.Result, resp.Error = nil, e
	}
	return resp
}

// cancelled notes that a request is not to be answered any more, and puts the
// SDK's id into the notification. A notification that names no request is
// dropped: the SDK would round a fraction to somebody else's id.
func (c *conn) cancelled(n *jsonrpc.Request) jsonrpc.Message {
	if len(n.Params) == 0 || n.Params[0] != '{' {
		return nil
	}
	var raw json.RawMessage
	members(n.Params, func(key string, value []byte) {
		if key == "requestId" {
			raw = value
		}
	})
	id, ok := parseID(raw)
	if !ok {
		return nil
	}
	c.mu.Lock()
	p := c.pending[id]
	if p != nil && p.method != "initialize" {
		p.cancelled = true
	}
	c.mu.Unlock()
	if p == nil || p.method == "initialize" {
		return nil
	}
	c.poke()
	var params struct {
		RequestID any    `json:"requestId"`
		Reason    string `json:"reason,omitempty"`
	}
	_ = json.Unmarshal(n.Params, &params) // a reason of another type is none
	params.RequestID = id.Raw()
	out, err := json.Marshal(params)
	if err != nil {
		return nil
	}
	return &jsonrpc.Request{Method: n.Method, Params: out}
}

// poke wakes whoever waits for pending to change.
func (c *conn) poke() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// refuse answers a line that is no message. The text of it is not logged: it may
// hold secrets.
func (c *conn) refuse(no *refusal) {
	c.warn("a line of input was refused", "code", no.code, "why", no.message)
	_ = c.send(response(no.id, nil, &jsonrpc.Error{Code: no.code, Message: no.message}))
}

// Read implements [mcp.Connection].
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-c.incoming:
		return msg, nil
	case <-c.over:
		if c.readErr != nil {
			return nil, c.readErr
		}
		return nil, io.EOF
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements [mcp.Connection].
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		c.mu.Lock()
		p := c.pending[msg.ID]
		if p == nil {
			c.mu.Unlock()
			return fmt.Errorf("writing the reply to %v: no such request is open", msg.ID.Raw())
		}
		// Before the write: with the reply the client may use the id again.
		delete(c.pending, msg.ID)
		delete(c.refs, p.ref)
		cancelled := p.cancelled
		c.writing++
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.writing--
			c.mu.Unlock()
			c.poke()
		}()
		if cancelled {
			return errRejected
		}
		return c.send(response(p.raw, c.subscription(p, msg.Result), msg.Error))
	case *jsonrpc.Request:
		var id json.RawMessage
		if msg.ID.IsValid() {
			raw, err := encode(msg.ID.Raw())
			if err != nil {
				return fmt.Errorf("encoding an id: %w", err)
			}
			id = raw
		}
		pieces, err := request(id, msg.Method, c.subscription(nil, msg.Params))
		if err != nil {
			return fmt.Errorf("encoding %s: %w", msg.Method, err)
		}
		return c.send(pieces)
	}
	return fmt.Errorf("writing a %T: not a message", msg)
}

// subscription puts the client's own id where a subscription is named by the
// SDK's stand-in for it. closing is the listen request that is being answered.
func (c *conn) subscription(closing *pending, text json.RawMessage) json.RawMessage {
	if !bytes.Contains(text, []byte(`"io.modelcontextprotocol/subscriptionId":"\u0000`)) {
		return text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	listens := map[string]json.RawMessage{}
	for id, p := range c.pending {
		if s, ok := id.Raw().(string); ok && p.method == "subscriptions/listen" {
			listens[s] = p.raw
		}
	}
	if closing != nil {
		if id, ok := parseID(closing.raw); ok {
			if s, ok := id.Raw().(string); ok {
				listens[s] = closing.raw
			}
		}
	}
	for stand, raw := range listens {
		quoted, err := encode(stand)
		if err != nil {
			continue
		}
		const name = `"io.modelcontextprotocol/subscriptionId":`
		text = bytes.ReplaceAll(text, append([]byte(name), quoted...), append([]byte(name), raw...))
	}
	return text
}

// send writes the pieces of one line.
func (c *conn) send(pieces [][]byte) error {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	if size <= small {
		line := make([]byte, 0, size)
		for _, p := range pieces {
			line = append(line, p...)
		}
		pieces = [][]byte{line}
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return c.writeErr
	}
	for _, p := range pieces {
		if _, err := c.out.Write(p); err != nil {
			// Part of a line may be out: nothing can follow it.
			c.writeErr = fmt.Errorf("writing the output: %w", err)
			close(c.failed)
			return c.writeErr
		}
	}
	return nil
}

// Close implements [mcp.Connection].
func (c *conn) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		if in, ok := c.in.(io.Closer); ok {
			_ = in.Close()
		}
	})
	return nil
}

// SessionID implements [mcp.Connection]; a pair of streams has none.
func (c *conn) SessionID() string { return "" }
