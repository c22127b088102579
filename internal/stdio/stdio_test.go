package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modern is the _meta of a request of the 2026-07-28 revision.
const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// call is a line that calls a tool.
func call(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, id, tool, arguments, modern)
}

// A session is a server on one end of two pipes, and the test on the other.
type session struct {
	t      *testing.T
	in     *io.PipeWriter
	lines  chan string
	trans  *Transport
	cancel context.CancelFunc
	ended  chan error
	// entered has a token for each call of the tool "wait" that has begun.
	entered chan struct{}
	release chan struct{} // closed to end calls of the tool "gate"
}

func start(t *testing.T, opts Options) *session {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{t: t, in: inW, lines: make(chan string, 1000), cancel: cancel, ended: make(chan error, 1),
		entered: make(chan struct{}, 100), release: make(chan struct{})}
	s.trans = New(inR, outW, opts)
	go func() {
		s.ended <- s.trans.Serve(ctx, server(s), nil)
		outW.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		r := bufio.NewReaderSize(outR, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				close(s.lines)
				return
			}
			s.lines <- line
		}
	}()
	t.Cleanup(func() {
		cancel()
		inW.Close()
		outR.Close()
		<-read
	})
	return s
}

func server(s *session) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	text := func(text string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(r.Params.Arguments))
	})
	// wait lasts until its request is cancelled, and says that it waits.
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.trans.Waits(r.Extra.Header)
		s.entered <- struct{}{}
		<-ctx.Done()
		return text("cancelled")
	})
	// gate lasts until the test opens it, whatever happens to its request.
	server.AddTool(&mcp.Tool{Name: "gate", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.entered <- struct{}{}
		<-s.release
		return text("open")
	})
	server.AddTool(&mcp.Tool{Name: "fail", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("no luck")
	})
	return server
}

func (s *session) send(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatalf("writing to the server: %v", err)
	}
}

// next returns the next line of output, decoded.
func (s *session) next() map[string]json.RawMessage {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatal("the server has ended its output")
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			s.t.Fatalf("the server wrote a line that is not JSON: %.200q", line)
		}
		return m
	case <-time.After(10 * time.Second):
		s.t.Fatal("the server did not answer in 10 s")
	}
	return nil
}

// outcome is what a reply says, in a form that compares.
type outcome struct {
	ID   string
	Code int64
}

func (s *session) outcome() outcome {
	s.t.Helper()
	m := s.next()
	var e struct{ Code int64 }
	if m["error"] != nil {
		if err := json.Unmarshal(m["error"], &e); err != nil {
			s.t.Fatalf("error %s: %v", m["error"], err)
		}
	}
	return outcome{string(m["id"]), e.Code}
}

// end waits for Serve to return.
func (s *session) end(within time.Duration) error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(within):
		s.t.Fatalf("Serve did not return within %s", within)
	}
	return nil
}

// hostile are lines that are no good, with the code and the id of the answer; a
// code of 0 means that there must be no answer.
var hostile = []struct {
	name string
	line string
	id   string
	code int64
}{
	{"not JSON", `hello`, "null", -32700},
	{"half an object", `{"jsonrpc":"2.0","id":1,`, "null", -32700},
	{"two objects", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, "null", -32700},
	{"single quotes", `{'jsonrpc':'2.0'}`, "null", -32700},
	{"a NUL", "\x00", "null", -32700},
	{"a NUL in a string", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\x00ng\"}", "null", -32700},
	{"UTF-16", "\xff\xfe{\x00}\x00", "null", -32700},
	{"invalid UTF-8 in a string", "{\"jsonrpc\":\"2.0\",\"id\":31,\"method\":\"tools/call\",\"params\":{\"name\":\"\xff\"}}", "31", -32700},
	{"a string", `"hi"`, "null", -32600},
	{"a number", `5`, "null", -32600},
	{"null", `null`, "null", -32600},
	{"an empty batch", `[]`, "null", -32600},
	{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "null", -32600},
	{"a batch of notifications", `[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]`, "null", -32600},
	{"an empty object", `{}`, "null", -32600},
	{"an id only", `{"jsonrpc":"2.0","id":7}`, "7", -32600},
	{"no version", `{"id":7,"method":"ping"}`, "7", -32600},
	{"another version", `{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`, -32600},
	{"a version that is a number", `{"jsonrpc":2.0,"id":7,"method":"ping"}`, "7", -32600},
	{"a method that is a number", `{"jsonrpc":"2.0","id":7,"method":5}`, "7", -32600},
	{"a method that is null", `{"jsonrpc":"2.0","id":7,"method":null}`, "7", -32600},
	{"an id that is a fraction", `{"jsonrpc":"2.0","id":20.7,"method":"ping"}`, "20.7", -32600},
	{"an id with an exponent", `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, "1e3", -32600},
	{"an id that is too big", `{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}`, "99999999999999999999", -32600},
	{"an id that is null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
	{"an id that is true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, "null", -32600},
	{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", -32600},
	{"an id that is a list", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "null", -32600},
	{"an id of 2,000 characters", `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 2000) + `","method":"ping"}`, "null", -32600},
	{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "null", -32600},
	{"two methods", `{"jsonrpc":"2.0","id":1,"method":"ping","meth\u006fd":"tools/list"}`, "1", -32600},
	{"deep nesting", `{"jsonrpc":"2.0","id":8,"method":"ping","params":` + strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000) + "}", "8", -32600},
	{"very deep nesting", `{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":` + strings.Repeat("[", 50000) + strings.Repeat("]", 50000) + "}}", "8", -32600},
	{"nesting that never ends", strings.Repeat("[", 100000), "null", -32600},
	{"params that are a list", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[1]}`, "9", -32602},
	{"params that are a string", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":"x"}`, "9", -32602},
	{"a name that is a number", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5,` + modern + `}}`, "9", -32602},
	{"no params", `{"jsonrpc":"2.0","id":9,"method":"initialize"}`, "9", -32602},
	{"params that are null", `{"jsonrpc":"2.0","id":9,"method":"initialize","params":null}`, "9", -32602},
	{"an unknown method", `{"jsonrpc":"2.0","id":9,"method":"no/such","params":{` + modern + `}}`, "9", -32601},
	{"a tool that fails", call("9", "fail", "{}"), "9", -32603},
	{"a notification with an id", `{"jsonrpc":"2.0","id":9,"method":"notifications/cancelled","params":{"requestId":1}}`, "9", -32600},

	{"an empty line", "", "", 0},
	{"blanks", "  \t ", "", 0},
	{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/no-such"}`, "", 0},
	{"a notification of a request's method", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`, "", 0},
	{"a notification with a list", `{"jsonrpc":"2.0","method":"notifications/initialized","params":[1]}`, "", 0},
	{"a cancellation of nothing", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}`, "", 0},
	{"a cancellation without an id", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, "", 0},
	{"a cancellation of a list", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}`, "", 0},
	{"a cancellation without params", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, "", 0},
	{"a stray response", `{"jsonrpc":"2.0","id":4711,"result":{}}`, "", 0},
	{"a stray error", `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`, "", 0},
	{"a malformed error", `{"jsonrpc":"2.0","id":4711,"error":5}`, "", 0},
	{"a response without an id", `{"jsonrpc":"2.0","result":{}}`, "", 0},
	{"a response of another version", `{"jsonrpc":"1.0","id":1,"result":{}}`, "", 0},
}

// Every line in one session, and after each a request that works.
func TestNoLineEndsTheSession(t *testing.T) {
	s := start(t, Options{})
	for i, tt := range hostile {
		s.send(tt.line)
		good := fmt.Sprintf("%d", 1000+i)
		s.send(call(good, "echo", `{"n":1}`))
		// The two are served at the same time.
		got := map[string]int64{}
		want := map[string]int64{good: 0}
		if tt.code != 0 {
			want[tt.id] = tt.code
		}
		for range want {
			o := s.outcome()
			got[o.ID] = o.Code
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: answers (-want +got):\n%s", tt.name, diff)
		}
	}
	s.in.Close()
	if err := s.end(2 * time.Second); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestLinesThatAreOddButGood(t *testing.T) {
	for name, line := range map[string]string{
		"trailing blanks":   call("1", "echo", "{}") + " \t ",
		"leading blanks":    "  " + call("1", "echo", "{}"),
		"a carriage return": call("1", "echo", "{}") + "\r",
		"a BOM":             "\ufeff" + call("1", "echo", "{}"),
		"unknown members":   strings.Replace(call("1", "echo", "{}"), "{", `{"extra":[{"id":5}],"ID":6,`, 1),
		"an escaped key":    strings.Replace(call("1", "echo", "{}"), `"id"`, `"\u0069d"`, 1),
		"a lone surrogate":  call("1", "echo", `{"a":"\ud800"}`),
		"an escaped NUL":    call("1", "echo", `{"a":"\u0000"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{})
			s.send(line)
			if got, want := s.outcome(), (outcome{"1", 0}); got != want {
				t.Errorf("answer %+v, want %+v", got, want)
			}
		})
	}
}

func TestIDsComeBackAsTheyWereSent(t *testing.T) {
	s := start(t, Options{})
	for _, id := range []string{"0", "-1", "9007199254740991", "9007199254740993", "-9007199254740993",
		"9223372036854775807", "-9223372036854775808", `""`, `"1"`, `"a b"`, `"\u00e4"`, `"ä"`, `"9007199254740993"`,
		`"\u00009007199254740993"`, `"\u0000"`, `"\"\\\/"`, `"` + strings.Repeat("i", 1024) + `"`} {
		s.send(call(id, "echo", "{}"))
		if got, want := s.outcome(), (outcome{id, 0}); got != want {
			t.Errorf("answer %+v, want %+v", got, want)
		}
	}
}

func TestIDsThatLookAlikeAreOpenTogether(t *testing.T) {
	s := start(t, Options{})
	ids := []string{"9007199254740993", "9007199254740992", `"9007199254740993"`, `"\u00009007199254740993"`, "1", `"1"`}
	for _, id := range ids {
		s.send(call(id, "gate", "{}"))
		<-s.entered
	}
	close(s.release)
	want, got := map[string]int64{}, map[string]int64{}
	for _, id := range ids {
		want[id] = 0
		o := s.outcome()
		got[o.ID] = o.Code
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestAnIDInFlightIsRefused(t *testing.T) {
	s := start(t, Options{})
	s.send(call("5", "gate", "{}"))
	<-s.entered
	s.send(call("5", "echo", "{}"))
	if got, want := s.outcome(), (outcome{"5", -32600}); got != want {
		t.Errorf("second use of the id: %+v, want %+v", got, want)
	}
	close(s.release)
	if got, want := s.outcome(), (outcome{"5", 0}); got != want {
		t.Errorf("first use of the id: %+v, want %+v", got, want)
	}
	s.send(call("5", "echo", "{}"))
	if got, want := s.outcome(), (outcome{"5", 0}); got != want {
		t.Errorf("use of the id after its reply: %+v, want %+v", got, want)
	}
}

func TestALineThatIsTooLong(t *testing.T) {
	s := start(t, Options{MaxFrame: 100_000})
	filler := strings.Repeat("x", 200_000)
	for _, tt := range []struct{ name, line, id string }{
		{"with the id in front", call("1", "echo", `{"a":"`+filler+`"}`), "1"},
		{"with the id at the end", `{"method":"tools/call","params":{"a":"` + filler + `"},"jsonrpc":"2.0","id":"b"}`, `"b"`},
		{"with an id only inside", `{"jsonrpc":"2.0","method":"x","params":{"a":"` + filler + `","id":4}}`, "null"},
		{"that is no JSON", filler, "null"},
	} {
		s.send(tt.line)
		if got, want := s.outcome(), (outcome{tt.id, -32600}); got != want {
			t.Errorf("a line %s: %+v, want %+v", tt.name, got, want)
		}
	}
	// Exactly at the limit is good.
	line := call("2", "echo", `{"a":""}`)
	s.send(strings.Replace(line, `"a":""`, `"a":"`+strings.Repeat("y", 100_000-len(line))+`"`, 1))
	if got, want := s.outcome(), (outcome{"2", 0}); got != want {
		t.Errorf("a line as long as the limit: %+v, want %+v", got, want)
	}
}

func TestErrorsDoNotRepeatTheParameters(t *testing.T) {
	s := start(t, Options{})
	secret := strings.Repeat("secret", 1000)
	s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5,"arguments":{"password":"` + secret + `"},` + modern + `}}`)
	answer := string(s.next()["error"])
	if strings.Contains(answer, "secret") || !strings.Contains(answer, "-32602") {
		t.Errorf("error %.300s", answer)
	}
	s.send(`{"jsonrpc":"2.0","id":2,"method":"` + strings.Repeat("m", 100_000) + `","params":{` + modern + `}}`)
	if answer := string(s.next()["error"]); len(answer) > 3000 || !strings.Contains(answer, "-32601") {
		t.Errorf("the error of an unknown method has %d bytes: %.100s", len(answer), answer)
	}
}

func TestNoErrorHasTheCodeZero(t *testing.T) {
	s := start(t, Options{})
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`
	s.send(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"echo"}}`)
	if got, want := s.outcome(), (outcome{"0", -32600}); got != want {
		t.Errorf("a call before initialize: %+v, want %+v", got, want)
	}
	s.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}`)
	if got, want := s.outcome(), (outcome{"1", -32602}); got != want {
		t.Errorf("initialize with a wrong type: %+v, want %+v", got, want)
	}
	s.send(hello)
	if got, want := s.outcome(), (outcome{"1", 0}); got != want {
		t.Errorf("initialize: %+v, want %+v", got, want)
	}
	s.send(hello)
	if got, want := s.outcome(), (outcome{"1", -32600}); got != want {
		t.Errorf("a second initialize: %+v, want %+v", got, want)
	}
}

func TestACancelledRequestIsNotAnswered(t *testing.T) {
	for _, id := range []string{"1", `"s"`, "9007199254740993"} {
		s := start(t, Options{})
		s.send(call(id, "wait", "{}"))
		<-s.entered
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"user-cancel"}}`)
		s.send(call("2", "echo", "{}"))
		if got, want := s.outcome(), (outcome{"2", 0}); got != want {
			t.Errorf("after cancelling %s: %+v, want %+v", id, got, want)
		}
		s.in.Close()
		if err := s.end(2 * time.Second); err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if line, ok := <-s.lines; ok {
			t.Errorf("after cancelling %s the server also wrote %s", id, line)
		}
	}
}

// A fraction must not be rounded to another request's id.
func TestACancellationOfAFractionCancelsNothing(t *testing.T) {
	s := start(t, Options{})
	s.send(call("20", "gate", "{}"))
	<-s.entered
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":20.7}}`)
	s.send(call("21", "echo", "{}"))
	if got, want := s.outcome(), (outcome{"21", 0}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	close(s.release)
	if got, want := s.outcome(), (outcome{"20", 0}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAtTheEndOfInputRequestsAreAnswered(t *testing.T) {
	s := start(t, Options{})
	var all strings.Builder
	for i := range 50 {
		all.WriteString(call(fmt.Sprint(i), "echo", "{}") + "\n")
	}
	all.WriteString(call("50", "echo", "{}")) // the last line has no end
	go func() {
		_, _ = io.WriteString(s.in, all.String())
		s.in.Close()
	}()
	got := map[string]int64{}
	for range 51 {
		o := s.outcome()
		got[o.ID] = o.Code
	}
	if len(got) != 51 {
		t.Errorf("%d different replies, want 51", len(got))
	}
	if err := s.end(time.Second); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestAtTheEndOfInputWhatWaitsIsDropped(t *testing.T) {
	s := start(t, Options{Grace: time.Hour}) // so that nothing but the marks can end it
	s.send(call("1", "wait", "{}"))
	<-s.entered
	s.send(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modern + `}}`)
	s.next() // its acknowledgement
	s.send(call("3", "gate", "{}"))
	<-s.entered
	s.in.Close()
	close(s.release)
	if got, want := s.outcome(), (outcome{"3", 0}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := s.end(5 * time.Second); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestAtTheEndOfInputNothingOutlivesTheGrace(t *testing.T) {
	s := start(t, Options{Grace: 100 * time.Millisecond})
	s.send(call("1", "gate", "{}"))
	<-s.entered
	begin := time.Now()
	s.in.Close()
	if err := s.end(time.Second); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("the request was given %s, want 100 ms", took)
	}
	close(s.release) // the handler that did not listen is let go
}

func TestCancellingServeCancelsTheRequests(t *testing.T) {
	s := start(t, Options{})
	s.send(call("1", "wait", "{}"))
	<-s.entered
	s.cancel()
	if err := s.end(time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve returned %v, want context.Canceled", err)
	}
}

func TestCancellingServeDoesNotWaitForADeafHandler(t *testing.T) {
	s := start(t, Options{})
	s.send(call("1", "gate", "{}"))
	<-s.entered
	begin := time.Now()
	s.cancel()
	_ = s.end(time.Second)
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("Serve took %s, want about 50 ms", took)
	}
	close(s.release)
}

// brokenPipe fails as a closed standard output does.
type brokenPipe struct{ err error }

func (b brokenPipe) Write([]byte) (int, error) { return 0, b.err }

func TestAClosedOutputEndsServe(t *testing.T) {
	inR, inW := io.Pipe()
	defer inW.Close()
	broken := errors.New("broken pipe")
	trans := New(inR, brokenPipe{broken}, Options{})
	ended := make(chan error, 1)
	go func() { ended <- trans.Serve(context.Background(), server(&session{}), nil) }()
	go func() { _, _ = io.WriteString(inW, call("1", "echo", "{}")+"\n") }()
	select {
	case err := <-ended:
		if !errors.Is(err, broken) {
			t.Errorf("Serve returned %v, want the write's error", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Serve did not return")
	}
}

func TestHeard(t *testing.T) {
	t.Run("a further message", func(t *testing.T) {
		s := start(t, Options{})
		s.send(call("1", "echo", "{}"))
		s.next()
		heard := make(chan bool, 1)
		go func() { heard <- s.trans.Heard(t.Context(), time.Hour) }()
		for { // until Heard is waiting, a message may come too early for it
			s.send(call("2", "echo", "{}"))
			s.next()
			select {
			case ok := <-heard:
				if !ok {
					t.Error("Heard is false after a further message")
				}
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	t.Run("an open input", func(t *testing.T) {
		s := start(t, Options{})
		s.send(call("1", "echo", "{}"))
		s.next()
		if !s.trans.Heard(t.Context(), 10*time.Millisecond) {
			t.Error("Heard is false though the input is open")
		}
	})
	t.Run("the end of input", func(t *testing.T) {
		s := start(t, Options{})
		s.send(call("1", "echo", "{}"))
		s.next()
		s.in.Close()
		if s.trans.Heard(t.Context(), time.Hour) {
			t.Error("Heard is true though the input has ended")
		}
	})
}

func TestASubscriptionNamesTheClientsID(t *testing.T) {
	s := start(t, Options{})
	s.send(`{"jsonrpc":"2.0","id":9007199254740993,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modern + `}}`)
	if params := string(s.next()["params"]); !strings.Contains(params, `"io.modelcontextprotocol/subscriptionId":9007199254740993`) {
		t.Errorf("acknowledgement %s", params)
	}
}

func TestATransportServesOneConnection(t *testing.T) {
	s := start(t, Options{})
	s.send(call("1", "echo", "{}"))
	s.next()
	if _, err := s.trans.Connect(t.Context()); err == nil {
		t.Error("a second Connect succeeded")
	}
}
