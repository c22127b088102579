package ipc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// An answer is the first reply to bytes that were sent to a socket.
type answer struct {
	status int
	header http.Header
	fault  Error // where the status is not 200
}

// raw sends bytes to a socket.
func raw(t *testing.T, path, request string) answer {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, request) // the server may answer and close before it has all
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.status != http.StatusOK {
		if err := json.Unmarshal(body, &a.fault); err != nil {
			t.Fatalf("%.80q: %s is no error: %q", request, resp.Status, body)
		}
	}
	return a
}

func post(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", path, header, len(body), body)
}

func TestBadRequestsAreRefusedAtTheDoor(t *testing.T) {
	h := &script{submit: func(context.Context, string, SubmitRequest) (SubmitReply, error) { return SubmitReply{}, nil }}
	path := filepath.Join(room(t), "s")
	serve(t, path, h)
	for _, test := range []struct {
		name, request string
		status        int
		code          Code
		says          string
	}{
		{"no such call", post("/v1/nonsense", "", "{}"), 404, CodeNotFound, `no call "/v1/nonsense" in protocol 1 of jobd 1.0`},
		{"wrong method", "GET /v1/list HTTP/1.1\r\nHost: x\r\n\r\n", 405, CodeInvalid, "/v1/list takes POST, not GET"},
		{"no JSON", post("/v1/list", "", "{"), 400, CodeInvalid, "no valid JSON"},
		{"JSON of another kind", post("/v1/list", "", `{"project":7}`), 400, CodeInvalid, "project"},
		{"trailing text", post("/v1/list", "", `{} {}`), 400, CodeInvalid, "no valid JSON"},
		{"a list", post("/v1/list", "", `[1]`), 400, CodeInvalid, "no valid JSON"},
		{"no key", post("/v1/jobs", "", `{}`), 400, CodeInvalid, "Idempotency-Key is missing"},
		{"a protocol of the future", post("/v1/list", "Jobd-Protocol: 2\r\n", `{}`), 426, CodeVersion, "speaks protocol 1 at most, and the client speaks 2"},
		{"no protocol number", post("/v1/list", "Jobd-Protocol: new\r\n", `{}`), 400, CodeInvalid, `"new", which is no protocol number`},
		{"protocol zero", post("/v1/list", "Jobd-Protocol: 0\r\n", `{}`), 400, CodeInvalid, "no protocol number"},
		{"too large", fmt.Sprintf("POST /v1/list HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", maxBody+1), 400, CodeInvalid, "larger than"},
		{"a gigabyte", "POST /v1/set-result HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n", 400, CodeInvalid, "larger than"},
		{"too large in chunks", "POST /v1/list HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1100000\r\n" + strings.Repeat(" ", 0x1100000), 400, CodeInvalid, "larger than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := raw(t, path, test.request)
			if got.status != test.status || got.fault.Code != test.code || !strings.Contains(got.fault.Message, test.says) {
				t.Errorf("%d, %+v", got.status, got.fault)
			}
			if got.header.Get(HeaderProtocol) != "1" || got.header.Get(HeaderVersion) != "1.0" {
				t.Errorf("headers %v", got.header)
			}
		})
	}
	if len(h.all()) != 0 {
		t.Errorf("the handler was called: %v", h.all())
	}
	for _, request := range []string{
		post("/v1/list", "", ""), post("/v1/list", "", `{"unheard_of":[1],"text":"x"}`), post("/v1/list", "Jobd-Protocol: 1\r\n", "null"),
		post("/v1/jobs", "Idempotency-Key: k\r\n", "{}"), post("/stop", "Jobd-Protocol: 999\r\n", ""),
		"GET /status HTTP/1.1\r\nHost: x\r\nJobd-Protocol: nonsense\r\n\r\n",
	} {
		if got := raw(t, path, request); got.status != http.StatusOK {
			t.Errorf("%q: %d, %+v", request, got.status, got.fault)
		}
	}
}

func TestErrorsCrossTheSocket(t *testing.T) {
	var fault error
	h := &script{list: func(context.Context, ListRequest) (ListReply, error) { return ListReply{}, fault }}
	path := filepath.Join(room(t), "s")
	log := new(syncBuffer)
	serve(t, path, h, func(o *ServerOptions) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	c := dial(t, path)
	for _, code := range []Code{CodeNotFound, CodeExpired, CodeAmbiguous, CodeInvalid, CodeConflict, CodeState, CodeRefused, CodeUnavailable,
		CodeVersion, CodeAnswers, CodeInternal, "of_the_future"} {
		want := &Error{Code: code, Message: "what failed", Hint: "what to do"}
		fault = fmt.Errorf("wrapped: %w", want)
		_, err := c.List(soon(t), ListRequest{})
		var e *Error
		if !errors.As(err, &e) || *e != *want || err.Error() != "what failed; what to do" {
			t.Errorf("%s: %v", code, err)
		}
		if statusOf(code) < 400 {
			t.Errorf("%s has the status %d", code, statusOf(code))
		}
	}
	if log.String() != "" {
		t.Errorf("logged: %s", log.String())
	}
	fault = errors.New("the disk is on fire")
	_, err := c.List(soon(t), ListRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeInternal || !strings.Contains(log.String(), "on fire") {
		t.Errorf("%v, logged %q", err, log.String())
	}
}

func TestAPanicIsOneRequestsError(t *testing.T) {
	h := &script{list: func(context.Context, ListRequest) (ListReply, error) { panic("oh no") }}
	path := filepath.Join(room(t), "s")
	log := new(syncBuffer)
	serve(t, path, h, func(o *ServerOptions) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	c := dial(t, path)
	_, err := c.List(soon(t), ListRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeInternal || !strings.Contains(e.Message, "oh no") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log lacks the stack: %s", log.String())
	}
	if _, err := c.Get(soon(t), GetRequest{}); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestOnlyItsOwnUserIsServed(t *testing.T) {
	path := filepath.Join(room(t), "s")
	other := os.Getuid() + 1
	h := &script{}
	serve(t, path, h, func(o *ServerOptions) { o.UID = &other })
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
	if b, err := io.ReadAll(c); len(b) != 0 {
		t.Errorf("got %q, %v", b, err)
	}
	if len(h.all()) != 0 {
		t.Error("the handler was called")
	}
}

func TestOneConnectionTooManyIsToldSo(t *testing.T) {
	path := filepath.Join(room(t), "s")
	s, _ := serve(t, path, &script{}, func(o *ServerOptions) { o.MaxConns = 3 })
	var held []net.Conn
	for range 3 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	eventually(t, func() bool { n, _ := s.Activity(); return n == 3 })
	_, err := dial(t, path).List(soon(t), ListRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeUnavailable || !strings.Contains(e.Message, "too many open connections") {
		t.Errorf("got %v", err)
	}
	held[0].Close()
	eventually(t, func() bool { n, _ := s.Activity(); return n == 2 })
	if _, err := dial(t, path).List(soon(t), ListRequest{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s")
		}
	}
}

func TestWhoSendsSlowlyHarmsNobody(t *testing.T) {
	t.Parallel() // it takes the time that a header may take
	path := filepath.Join(room(t), "s")
	s, _ := serve(t, path, &script{})
	began := time.Now()
	for _, part := range []string{"", "P", "POST /v1/list HTTP/1.1\r\nHost: x\r\n", strings.Repeat("\xff\x00", 500)} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, path)
	for range 20 {
		if _, err := c.List(soon(t), ListRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	eventually(t, func() bool { n, _ := s.Activity(); return n == 0 })
	if time.Since(began) > headerTimeout+3*time.Second {
		t.Errorf("the connections were dropped after %v", time.Since(began))
	}
}

func TestARequestEndsWithItsConnection(t *testing.T) {
	ended := make(chan error, 1)
	began := make(chan struct{})
	h := &script{get: func(ctx context.Context, _ GetRequest) (Job, error) {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return Job{}, ctx.Err()
	}}
	path := filepath.Join(room(t), "s")
	serve(t, path, h)
	ctx, cancel := context.WithCancel(soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := dial(t, path).Get(ctx, GetRequest{WaitMS: 60_000})
		gone <- err
	}()
	<-began
	at := time.Now()
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || time.Since(at) > time.Second {
		t.Errorf("the client: %v after %v", err, time.Since(at))
	}
	select {
	case err := <-ended:
		if errors.Is(err, errLeaving) {
			t.Errorf("the handler: %v", err)
		}
	case <-soon(t).Done():
		t.Error("the handler waits on")
	}
}

func TestShutdownEndsPollsAndFinishesTheRest(t *testing.T) {
	slow, release := make(chan struct{}), make(chan struct{})
	h := &script{
		get: func(ctx context.Context, _ GetRequest) (Job, error) {
			<-ctx.Done()
			return Job{}, context.Cause(ctx)
		},
		list: func(ctx context.Context, _ ListRequest) (ListReply, error) {
			close(slow)
			<-release
			return ListReply{Jobs: []Job{{ID: "x"}}}, ctx.Err()
		},
	}
	path := filepath.Join(room(t), "s")
	_, stop := serve(t, path, h)
	polls, lists := make(chan answer, 1), make(chan ListReply, 1)
	go func() {
		polls <- raw(t, path, post("/v1/get", "", `{"wait_ms":60000}`))
	}()
	eventually(t, func() bool { return h.last() != nil })
	go func() {
		r, err := dial(t, path).List(soon(t), ListRequest{})
		if err != nil {
			t.Error(err)
		}
		lists <- r
	}()
	<-slow
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	if got := <-polls; got.status != http.StatusServiceUnavailable || got.header.Get(headerLeaving) == "" {
		t.Errorf("the poll got %+v", got)
	}
	select {
	case <-stopped:
		t.Error("the server did not wait for a request that was under way")
	default:
	}
	close(release)
	if r := <-lists; len(r.Jobs) != 1 {
		t.Errorf("got %+v", r)
	}
	<-stopped
}

func TestShutdownBreaksOffWhatTakesTooLong(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	h := &script{list: func(context.Context, ListRequest) (ListReply, error) {
		close(began)
		<-release
		return ListReply{}, nil
	}}
	path := filepath.Join(room(t), "s")
	s := NewServer(ServerOptions{Handler: h, Log: slog.New(slog.DiscardHandler)})
	l := listen(t, path)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, post("/v1/list", "", "{}"))
	<-began
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	at := time.Now()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(at) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(at))
	}
	close(release)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestTheServerMovesToAnotherListener(t *testing.T) {
	dir := room(t)
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	s, _ := serve(t, one, &script{})
	c := dial(t, one)
	if _, err := c.List(soon(t), ListRequest{}); err != nil {
		t.Fatal(err)
	}
	l := listen(t, two)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	if _, err := dial(t, two).List(soon(t), ListRequest{}); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := <-done; err != nil {
		t.Errorf("a closed listener: %v", err)
	}
	if _, err := c.List(soon(t), ListRequest{}); err != nil {
		t.Errorf("by the other one: %v", err)
	}
}

func TestTheServerKnowsWhenItIsIdle(t *testing.T) {
	path := filepath.Join(room(t), "s")
	s, _ := serve(t, path, &script{})
	c := dial(t, path)
	if _, err := c.List(soon(t), ListRequest{}); err != nil {
		t.Fatal(err)
	}
	if n, quiet := s.Activity(); n != 1 || quiet > 5*time.Second {
		t.Errorf("%d connections, quiet for %v", n, quiet)
	}
	c.Close()
	eventually(t, func() bool { n, _ := s.Activity(); return n == 0 })
	_, before := s.Activity()
	eventually(t, func() bool { _, quiet := s.Activity(); return quiet > before })
}

// FuzzDecodeRequest holds that no body makes a call panic, and that what was
// understood is understood the same way again.
func FuzzDecodeRequest(f *testing.F) {
	for _, m := range messages() {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for path := range routes {
			f.Add(path, b)
		}
	}
	f.Add(pathSubmit, []byte(`{"env":null,"environ":"AA==","arguments":[1,2`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		rt, ok := routes[path]
		if !ok {
			return
		}
		h := &script{}
		_, err := rt.serve(context.Background(), h, "k", body)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || e.Code != CodeInvalid || len(h.all()) != 0 {
				t.Fatalf("%v, calls %v", err, h.all())
			}
			return
		}
		first := h.last()
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.serve(context.Background(), h, "k", again); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, err := json.Marshal(h.last()); err != nil || !bytes.Equal(again, third) {
			t.Errorf("%s became %s, %v", again, third, err)
		}
	})
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
