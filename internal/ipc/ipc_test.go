package ipc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script answers calls as a test says. Calls that it does not name get a reply
// with every field set.
type script struct {
	mu    sync.Mutex
	calls []any // the requests

	status func(context.Context) (Status, error)
	stop   func(StopRequest) error
	submit func(context.Context, string, SubmitRequest) (SubmitReply, error)
	get    func(context.Context, GetRequest) (Job, error)
	list   func(context.Context, ListRequest) (ListReply, error)
}

func (s *script) heard(r any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r)
}

// all returns the requests so far.
func (s *script) all() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *script) last() any {
	if all := s.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func filled[T any]() T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), "", &n)
	return v
}

func (s *script) Status(ctx context.Context) (Status, error) {
	s.heard(nil)
	if s.status != nil {
		return s.status(ctx)
	}
	return filled[Status](), nil
}
func (s *script) Stop(_ context.Context, r StopRequest) error {
	s.heard(r)
	if s.stop != nil {
		return s.stop(r)
	}
	return nil
}
func (s *script) Submit(ctx context.Context, key string, r SubmitRequest) (SubmitReply, error) {
	s.heard(r)
	if s.submit != nil {
		return s.submit(ctx, key, r)
	}
	return filled[SubmitReply](), nil
}
func (s *script) List(ctx context.Context, r ListRequest) (ListReply, error) {
	s.heard(r)
	if s.list != nil {
		return s.list(ctx, r)
	}
	return filled[ListReply](), nil
}
func (s *script) Get(ctx context.Context, r GetRequest) (Job, error) {
	s.heard(r)
	if s.get != nil {
		return s.get(ctx, r)
	}
	return filled[Job](), nil
}
func (s *script) Result(_ context.Context, r GetRequest) (Result, error) {
	s.heard(r)
	return filled[Result](), nil
}
func (s *script) Output(_ context.Context, r OutputRequest) (Output, error) {
	s.heard(r)
	return filled[Output](), nil
}
func (s *script) Cancel(_ context.Context, r CancelRequest) (Job, error) {
	s.heard(r)
	return filled[Job](), nil
}
func (s *script) Delivered(_ context.Context, r DeliveredRequest) error { s.heard(r); return nil }
func (s *script) Ask(_ context.Context, r AskRequest) (Answer, error) {
	s.heard(r)
	return filled[Answer](), nil
}
func (s *script) Await(_ context.Context, r AwaitRequest) (Answer, error) {
	s.heard(r)
	return filled[Answer](), nil
}
func (s *script) Answer(_ context.Context, r AnswerRequest) (AnswerReply, error) {
	s.heard(r)
	return filled[AnswerReply](), nil
}
func (s *script) Progress(_ context.Context, r ProgressRequest) error   { s.heard(r); return nil }
func (s *script) SetResult(_ context.Context, r SetResultRequest) error { s.heard(r); return nil }
func (s *script) Session(_ context.Context, r SessionRequest) (ListReply, error) {
	s.heard(r)
	return filled[ListReply](), nil
}
func (s *script) Tools(_ context.Context, r ToolsRequest) (ToolsReply, error) {
	s.heard(r)
	return filled[ToolsReply](), nil
}
func (s *script) Prune(_ context.Context, r PruneRequest) (PruneReply, error) {
	s.heard(r)
	return filled[PruneReply](), nil
}

// room is a directory with a short path for sockets.
func room(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "jobd-ipc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listen(t testing.TB, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	return l
}

// serve runs a server on the socket until the test ends or stop is called,
// which removes the socket.
func serve(t testing.TB, path string, h Handler, change ...func(*ServerOptions)) (s *Server, stop func()) {
	t.Helper()
	o := ServerOptions{Handler: h, Log: slog.New(slog.DiscardHandler), Version: "1.0"}
	for _, c := range change {
		c(&o)
	}
	s = NewServer(o)
	l := listen(t, path)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		os.Remove(path)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func dial(t testing.TB, path string, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Socket: path, Log: path + ".log", Version: "1.0"}
	for _, c := range change {
		c(&o)
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// soon bounds the calls of a test.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, fmt.Errorf("%s took longer than 20 s", t.Name()))
	t.Cleanup(cancel)
	return ctx
}

func TestEveryCallReachesTheHandlerAndBack(t *testing.T) {
	h := &script{}
	path := filepath.Join(room(t), "s")
	serve(t, path, h)
	c := dial(t, path)
	ctx := soon(t)
	empty := func(err error) (any, error) { return Empty{}, err }
	for _, test := range []struct {
		in, out any
		call    func(in any) (any, error)
	}{
		{nil, filled[Status](), func(any) (any, error) { return c.Status(ctx) }},
		{filled[StopRequest](), Empty{}, func(in any) (any, error) { return empty(c.Stop(ctx, in.(StopRequest))) }},
		{filled[SubmitRequest](), filled[SubmitReply](), func(in any) (any, error) { return c.Submit(ctx, "k", in.(SubmitRequest)) }},
		{filled[ListRequest](), filled[ListReply](), func(in any) (any, error) { return c.List(ctx, in.(ListRequest)) }},
		{filled[GetRequest](), filled[Job](), func(in any) (any, error) { return c.Get(ctx, in.(GetRequest)) }},
		{filled[GetRequest](), filled[Result](), func(in any) (any, error) { return c.Result(ctx, in.(GetRequest)) }},
		{filled[OutputRequest](), filled[Output](), func(in any) (any, error) { return c.Output(ctx, in.(OutputRequest)) }},
		{filled[CancelRequest](), filled[Job](), func(in any) (any, error) { return c.Cancel(ctx, in.(CancelRequest)) }},
		{filled[DeliveredRequest](), Empty{}, func(in any) (any, error) { return empty(c.Delivered(ctx, in.(DeliveredRequest))) }},
		{filled[AskRequest](), filled[Answer](), func(in any) (any, error) { return c.Ask(ctx, in.(AskRequest)) }},
		{filled[AwaitRequest](), filled[Answer](), func(in any) (any, error) { return c.Await(ctx, in.(AwaitRequest)) }},
		{filled[AnswerRequest](), filled[AnswerReply](), func(in any) (any, error) { return c.Answer(ctx, in.(AnswerRequest)) }},
		{filled[ProgressRequest](), Empty{}, func(in any) (any, error) { return empty(c.Progress(ctx, in.(ProgressRequest))) }},
		{filled[SetResultRequest](), Empty{}, func(in any) (any, error) { return empty(c.SetResult(ctx, in.(SetResultRequest))) }},
		{filled[SessionRequest](), filled[ListReply](), func(in any) (any, error) { return c.Session(ctx, in.(SessionRequest)) }},
		{filled[ToolsRequest](), filled[ToolsReply](), func(in any) (any, error) { return c.Tools(ctx, in.(ToolsRequest)) }},
		{filled[PruneRequest](), filled[PruneReply](), func(in any) (any, error) { return c.Prune(ctx, in.(PruneRequest)) }},
	} {
		out, err := test.call(test.in)
		if err != nil {
			t.Errorf("%T: %v", test.in, err)
		}
		if d := cmp.Diff(test.out, out); d != "" {
			t.Errorf("%T: reply (-want +got):\n%s", test.in, d)
		}
		if d := cmp.Diff(test.in, h.last()); d != "" {
			t.Errorf("%T: request (-want +got):\n%s", test.in, d)
		}
	}
	if len(routes) != reflect.TypeFor[Handler]().NumMethod() {
		t.Errorf("%d routes for %d methods", len(routes), reflect.TypeFor[Handler]().NumMethod())
	}
	if p, v := c.Peer(); p != Protocol || v != "1.0" {
		t.Errorf("peer: protocol %d, version %q", p, v)
	}
}

// BenchmarkSubmit is the time that the socket adds to a job's start.
func BenchmarkSubmit(b *testing.B) {
	h := &script{submit: func(context.Context, string, SubmitRequest) (SubmitReply, error) { return SubmitReply{}, nil }}
	path := filepath.Join(room(b), "s")
	serve(b, path, h)
	c := dial(b, path)
	r := SubmitRequest{Tool: "run_job", Command: "true", Environ: make([]byte, 4<<10)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Submit(context.Background(), "", r); err != nil {
			b.Fatal(err)
		}
		h.calls = h.calls[:0]
	}
}
