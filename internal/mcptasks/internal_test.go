package mcptasks

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTokensAreGoodOnceUnderConcurrency(t *testing.T) {
	tokens := NewTokens(10, time.Hour)
	token, err := tokens.Issue(t.Context(), Round{State: "s"})
	if err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if r, err := tokens.Redeem(context.Background(), token); err == nil && r.State == "s" {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("the token was good %d times", won.Load())
	}
}

func TestTokensAreBoundedAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens(2, time.Minute)
		issue := func() string {
			token, err := tokens.Issue(t.Context(), Round{})
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		good := func(token string) bool {
			_, err := tokens.Redeem(t.Context(), token)
			if err != nil && !errors.Is(err, ErrBadToken) {
				t.Fatal(err)
			}
			return err == nil
		}
		first, second, third := issue(), issue(), issue()
		if good(first) || !good(second) || !good(third) {
			t.Error("the oldest of three tokens should be gone, where two are kept")
		}
		late := issue()
		time.Sleep(time.Minute)
		if good(late) {
			t.Error("a token is good after its time")
		}
		if a, b := issue(), issue(); a == b || len(a) < 26 {
			t.Errorf("tokens %q and %q", a, b)
		}
	})
}

func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c", "\n\r\t\x00\x1f\x7f", "ä€😀", "\xff\xc3", "\u2028", strings.Repeat("x\n", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := appendQuoted(nil, s)
		if len(quoted) > quotedSize(s)+3*strings.Count(s, "\xff")+2*len(s) || (utf8.ValidString(s) && len(quoted) > quotedSize(s)) {
			t.Errorf("%d bytes, %d expected", len(quoted), quotedSize(s))
		}
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil {
			t.Fatalf("%q: %v", quoted, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Errorf("%q came back as %q", s, back)
		}
		if !utf8.Valid(quoted) {
			t.Errorf("%q is no UTF-8", quoted)
		}
	})
}

// fakeConn is a connection with one request, which keeps no reply.
type fakeConn struct {
	request jsonrpc.Message
	written chan int
	closed  chan struct{}
	once    sync.Once
}

func (f *fakeConn) Connect(context.Context) (mcp.Connection, error) { return f, nil }
func (f *fakeConn) SessionID() string                               { return "" }
func (f *fakeConn) Close() error                                    { f.once.Do(func() { close(f.closed) }); return nil }

func (f *fakeConn) Read(context.Context) (jsonrpc.Message, error) {
	if m := f.request; m != nil {
		f.request = nil
		return m, nil
	}
	<-f.closed
	return nil, errors.New("closed")
}

func (f *fakeConn) Write(_ context.Context, m jsonrpc.Message) error {
	f.written <- len(m.(*jsonrpc.Response).Result)
	return nil
}

// bigStore has one finished task.
type bigStore struct {
	Store
	result *mcp.CallToolResult
}

func (b bigStore) Get(context.Context, *Client, string) (Task, error) {
	return Task{ID: "big", Status: StatusCompleted, Result: b.result}, nil
}

// A result is encoded once, into one buffer: with the text that the tool or the
// store made there are two copies of it, the SDK's way makes more than five.
func TestABigResultIsEncodedOnce(t *testing.T) {
	const size = 10 << 20
	big := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("0123456\n", size/8)}}}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	for method, params := range map[string]string{
		"tools/call": `{"name":"big",` + meta + `}`,
		"tasks/get":  `{"taskId":"big",` + meta + `}`,
	} {
		t.Run(method, func(t *testing.T) {
			ext := New(bigStore{result: big}, Options{})
			server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			ext.Attach(server)
			ext.AddTool(server, &mcp.Tool{Name: "big", InputSchema: json.RawMessage(`{"type":"object"}`)}, TaskOptional,
				func(context.Context, *Call) (Answer, error) { return Result(big), nil })
			id, err := jsonrpc.MakeID(1.0)
			if err != nil {
				t.Fatal(err)
			}
			f := &fakeConn{request: &jsonrpc.Request{ID: id, Method: method, Params: json.RawMessage(params)},
				written: make(chan int, 1), closed: make(chan struct{})}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			session, err := server.Connect(t.Context(), ext.Wrap(f), nil)
			if err != nil {
				t.Fatal(err)
			}
			n := <-f.written
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; n < size || used > uint64(n)+size/2 {
				t.Errorf("a result of %d bytes took %d bytes of memory, garbage included", n, used)
			}
			f.Close()
			_ = session.Wait()
		})
	}
}
