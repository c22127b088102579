package mcptasks_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"jobd/internal/mcptasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The _meta of requests of 2026-07-28.
const (
	version    = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},`
	declared   = `"_meta":{` + version + `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	undeclared = `"_meta":{` + version + `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}}}}`
	formOnly   = `"_meta":{` + version + `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	noForms    = `"_meta":{` + version + `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
)

// hello opens a connection of an older revision.
func hello(revision string) string {
	return `{"protocolVersion":"` + revision + `","capabilities":{"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"old","version":"1"}}`
}

// newServer returns a server with an extension.
func newServer(store mcptasks.Store, opts mcptasks.Options) (*mcptasks.Extension, *mcp.Server) {
	ext := mcptasks.New(store, opts)
	caps := &mcp.ServerCapabilities{}
	ext.Declare(caps)
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, &mcp.ServerOptions{Capabilities: caps})
	ext.Attach(server)
	return ext, server
}

// A message is one that the server sent.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	line string
}

// code returns the error's code, 0 for none.
func (m message) code() int64 {
	if m.Error == nil {
		return 0
	}
	return m.Error.Code
}

// field returns a string member of the result or the params.
func (m message) field(name string) string {
	var o map[string]json.RawMessage
	raw := m.Result
	if m.Method != "" {
		raw = m.Params
	}
	_ = json.Unmarshal(raw, &o)
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return string(o[name])
	}
	return s
}

// A peer is the client on a connection of its own.
type peer struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	id    int
	kept  []message // that came while another was awaited
	close func()
}

// connect opens a connection to a server.
func connect(t *testing.T, ext *mcptasks.Extension, server *mcp.Server) *peer {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{t: t, in: inW, lines: make(chan string, 1000)}
	session, err := server.Connect(context.Background(), ext.Wrap(&mcp.IOTransport{Reader: inR, Writer: outW}), nil)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		r := bufio.NewReaderSize(outR, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			p.lines <- strings.TrimSpace(line)
		}
	}()
	closed := false
	p.close = func() {
		if closed {
			return
		}
		closed = true
		inW.Close()
		_ = session.Wait()
		outW.Close()
		<-read
	}
	t.Cleanup(p.close)
	return p
}

// open opens a connection by initialize.
func open(t *testing.T, ext *mcptasks.Extension, server *mcp.Server, revision string) *peer {
	t.Helper()
	p := connect(t, ext, server)
	if m := p.call("initialize", hello(revision)); m.Error != nil {
		t.Fatalf("initialize: %s", m.line)
	}
	p.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *peer) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("writing to the server: %v", err)
	}
}

// send sends a request and returns its id; params are the members.
func (p *peer) send(method, params string) string {
	p.t.Helper()
	p.id++
	id := fmt.Sprint(p.id)
	p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// read returns the next message of the server.
func (p *peer) read() message {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the server has closed the connection")
		}
		m := message{line: line}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			p.t.Fatalf("the server sent %.200q: %v", line, err)
		}
		return m
	case <-time.After(10 * time.Second):
		p.t.Fatal("the server sent nothing for 10 s")
	}
	return message{}
}

// await returns the first message that fits, and keeps the others.
func (p *peer) await(fits func(message) bool) message {
	p.t.Helper()
	for i, m := range p.kept {
		if fits(m) {
			p.kept = append(p.kept[:i], p.kept[i+1:]...)
			return m
		}
	}
	for {
		m := p.read()
		if fits(m) {
			return m
		}
		p.kept = append(p.kept, m)
	}
}

// reply returns the reply to a request.
func (p *peer) reply(id string) message {
	p.t.Helper()
	return p.await(func(m message) bool { return m.Method == "" && string(m.ID) == id })
}

// notification returns the next message of a method.
func (p *peer) notification(method string) message {
	p.t.Helper()
	return p.await(func(m message) bool { return m.Method == method })
}

// call sends a request and returns its reply.
func (p *peer) call(method, params string) message {
	p.t.Helper()
	return p.reply(p.send(method, params))
}

// tool calls a tool.
func (p *peer) tool(name, arguments, meta string) message {
	p.t.Helper()
	return p.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,%s}`, name, arguments, meta))
}

// object is the schema of any tool here.
var object = json.RawMessage(`{"type":"object"}`)

// texts returns the texts of a tool's result.
func texts(raw json.RawMessage) string {
	var r struct {
		Content []struct{ Text string }
	}
	_ = json.Unmarshal(raw, &r)
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "|")
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
