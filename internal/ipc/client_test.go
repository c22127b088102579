package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lossy serves like a daemon that dies after it has carried out a call and
// before it has answered, the first n times.
func lossy(t *testing.T, path string, h Handler, n int32) {
	t.Helper()
	s := NewServer(ServerOptions{Handler: h, Log: slog.New(slog.DiscardHandler)})
	var left atomic.Int32
	left.Store(n)
	inner := s.http.Handler
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left.Add(-1) < 0 {
			inner.ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(&discard{ResponseWriter: w, header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
	l := listen(t, path)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.http.Close(); <-done })
}

type discard struct {
	http.ResponseWriter
	header http.Header
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func TestALostReplyIsAskedForAgainUnderTheSameKey(t *testing.T) {
	var mu sync.Mutex
	keys := map[string]int{}
	h := &script{submit: func(_ context.Context, key string, _ SubmitRequest) (SubmitReply, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[key]++
		return SubmitReply{Job: Job{ID: key}}, nil
	}}
	path := filepath.Join(room(t), "s")
	lossy(t, path, h, 3)
	c := dial(t, path)
	for _, key := range []string{"mine", ""} {
		r, err := c.Submit(soon(t), key, SubmitRequest{Tool: "run_job"})
		if err != nil || r.Job.ID == "" || (key != "" && r.Job.ID != key) {
			t.Errorf("key %q: %+v, %v", key, r, err)
		}
	}
	if keys["mine"] != 4 || len(keys) != 2 {
		t.Errorf("calls by key: %v", keys)
	}
}

func TestEveryCallButStopIsRepeated(t *testing.T) {
	for _, test := range []struct {
		name string
		call func(c *Client, ctx context.Context) error
		want int
	}{
		{"get", func(c *Client, ctx context.Context) error { _, err := c.Get(ctx, GetRequest{}); return err }, 2},
		{"status", func(c *Client, ctx context.Context) error { _, err := c.Status(ctx); return err }, 2},
		{"progress", func(c *Client, ctx context.Context) error { return c.Progress(ctx, ProgressRequest{}) }, 2},
		{"stop", func(c *Client, ctx context.Context) error { return c.Stop(ctx, StopRequest{}) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &script{}
			path := filepath.Join(room(t), "s")
			lossy(t, path, h, 1)
			err := test.call(dial(t, path), soon(t))
			if (err == nil) != (test.want == 2) || len(h.all()) != test.want {
				t.Errorf("%v after %d calls, want %d", err, len(h.all()), test.want)
			}
		})
	}
}

func TestRepeatingEnds(t *testing.T) {
	t.Parallel() // it takes the time for which calls are repeated
	h := &script{}
	path := filepath.Join(room(t), "s")
	lossy(t, path, h, 1<<30)
	began := time.Now()
	_, err := dial(t, path).List(soon(t), ListRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeUnavailable || !strings.Contains(err.Error(), path+".log") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took < retryFor-time.Second || took > retryFor+3*time.Second || len(h.all()) > 100 {
		t.Errorf("%d calls in %v", len(h.all()), took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	if _, err := dial(t, path).List(ctx, ListRequest{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("with a context: %v after %v", err, time.Since(began))
	}
}

func TestAPollSurvivesARestartAndWaitsNoLonger(t *testing.T) {
	path := filepath.Join(room(t), "s")
	waits := func(ctx context.Context, _ GetRequest) (Job, error) {
		<-ctx.Done()
		return Job{}, context.Cause(ctx)
	}
	old := &script{get: waits}
	_, stop := serve(t, path, old)
	c := dial(t, path)
	got := make(chan Job, 1)
	go func() {
		j, err := c.Get(soon(t), GetRequest{ID: "x", WaitMS: 60_000, Revision: 3})
		if err != nil {
			t.Error(err)
		}
		got <- j
	}()
	eventually(t, func() bool { return old.last() != nil })
	time.Sleep(100 * time.Millisecond) // of the wait
	stop()
	time.Sleep(100 * time.Millisecond) // nobody is there
	young := &script{get: func(context.Context, GetRequest) (Job, error) { return Job{ID: "x", Revision: 4}, nil }}
	serve(t, path, young)
	if j := <-got; j.Revision != 4 {
		t.Errorf("got %+v", j)
	}
	if r, _ := young.last().(GetRequest); r.WaitMS > 59_950 || r.WaitMS < 50_000 || r.Revision != 3 {
		t.Errorf("asked again: %+v", r)
	}
}

func TestAPollOfADaemonThatWasStoppedEnds(t *testing.T) {
	dir := room(t)
	path, stopped := filepath.Join(dir, "s"), filepath.Join(dir, "stopped")
	h := &script{get: func(ctx context.Context, _ GetRequest) (Job, error) {
		<-ctx.Done()
		return Job{}, context.Cause(ctx)
	}}
	_, stop := serve(t, path, h)
	starts, exe := program(t, dir, "exit 1")
	c := dial(t, path, func(o *Options) {
		o.Stopped, o.Executable, o.StartLock = stopped, exe, filepath.Join(dir, "start.lock")
	})
	got := make(chan error, 1)
	go func() {
		_, err := c.Get(soon(t), GetRequest{WaitMS: 60_000})
		got <- err
	}()
	eventually(t, func() bool { return h.last() != nil })
	if err := os.WriteFile(stopped, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-got; err == nil || !strings.Contains(err.Error(), "jobd was stopped") {
		t.Errorf("got %v", err)
	}
	if n := starts(); n != 0 {
		t.Errorf("the daemon was started %d times", n)
	}
}

// program makes a stand-in for "jobd start" and returns how often it was run.
func program(t *testing.T, dir, script string) (runs func() int, path string) {
	t.Helper()
	path = filepath.Join(dir, "jobd")
	count := filepath.Join(dir, "runs")
	text := fmt.Sprintf("#!/bin/sh\necho \"$0 $*\" >> %s\n%s\n", count, script)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() int {
		b, _ := os.ReadFile(count)
		return strings.Count(string(b), "start --within")
	}, path
}

func TestAStartThatFailsIsTriedOnceAndRemembered(t *testing.T) {
	dir := room(t)
	runs, exe := program(t, dir, `sleep 0.2; echo "jobd: the config is wrong" >&2; exit 1`)
	c := dial(t, filepath.Join(dir, "s"), func(o *Options) { o.Executable, o.StartLock = exe, filepath.Join(dir, "start.lock") })
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			_, err := c.List(soon(t), ListRequest{})
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeUnavailable || e.Message != "jobd cannot be started: the config is wrong" {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if n := runs(); n != 1 {
		t.Errorf("%d starts for a burst of calls", n)
	}
	time.Sleep(startMemory)
	c.List(soon(t), ListRequest{})
	if n := runs(); n != 2 {
		t.Errorf("%d starts after a while", n)
	}
}

func TestStartsThatCannotBeAreToldFromEachOther(t *testing.T) {
	t.Parallel() // one of them hangs
	for _, test := range []struct {
		name, script string
		change       func(dir string, o *Options)
		says         string
		runs         int
	}{
		{"says nothing", "exit 7", nil, "exit status 7; its log may say why", 1},
		{"says too much", "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", nil, "xxxx", 1},
		{"hangs", "echo still reading >&2; exec sleep 60", nil, "did not start within 4.5s: still reading", 1},
		{"keeps the pipe", "sleep 60 & exit 1", nil, "exit status 1", 1},
		{"starts nothing", "exit 0", nil, "started three times and ended again", 3},
		{"is missing", "", func(dir string, o *Options) { o.Executable = filepath.Join(dir, "none") }, "none is missing; install jobd again", 0},
		{"unusable directory", "exit 0", func(_ string, o *Options) { o.Prepare = func() error { return errors.New("the directory is a link") } }, "the directory is a link", 0},
		{"no lock", "exit 0", func(_ string, o *Options) { o.StartLock = "/proc/nothing/start.lock" }, "start lock cannot be used", 0},
		{"never", "exit 0", func(_ string, o *Options) { o.Executable = "" }, "jobd is not running", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := room(t)
			runs, exe := program(t, dir, test.script)
			c := dial(t, filepath.Join(dir, "s"), func(o *Options) {
				o.Executable, o.StartLock = exe, filepath.Join(dir, "start.lock")
				o.Env = []string{"PATH=/usr/bin:/bin"}
				if test.change != nil {
					test.change(dir, o)
				}
			})
			began := time.Now()
			_, err := c.List(soon(t), ListRequest{})
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeUnavailable || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 5<<10 || time.Since(began) > 5*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if n := runs(); n != test.runs {
				t.Errorf("%d starts", n)
			}
			if _, err := c.Passive().List(soon(t), ListRequest{}); err == nil || runs() != test.runs {
				t.Errorf("a passive client: %v, %d starts", err, runs())
			}
		})
	}
}

func TestASandboxIsNamed(t *testing.T) {
	if runtime.GOOS == "darwin" {
		err := forbidden("/tmp/jobd-1/x.sock", syscall.EPERM)
		if !strings.Contains(err.Error(), `"/private/tmp/jobd-1/x.sock"`) {
			t.Errorf("got %v", err)
		}
	}
	dir := room(t)
	path := filepath.Join(dir, "s")
	serve(t, path, &script{})
	runs, exe := program(t, dir, "exit 0")
	// The kernel refuses a socket whose permissions do: for root, that of a user
	// without any.
	if err := errors.Join(os.Chmod(path, 0), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestHelperAsksOnce$", "-test.v")
	cmd.Env = []string{"IPC_TEST_SOCKET=" + path, "IPC_TEST_EXE=" + exe, "IPC_TEST_LOCK=" + filepath.Join(dir, "start.lock")}
	cmd.Dir = dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"sandbox", "socket " + path, "allowUnixSockets: [\"" + path + "\", \"/private" + path + "\"]", "permission denied"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the error lacks %q: %s", want, out)
		}
	}
	if runs() != 0 {
		t.Error("a start was tried")
	}
}

// TestHelperAsksOnce is the other process of the test above.
func TestHelperAsksOnce(t *testing.T) {
	path := os.Getenv("IPC_TEST_SOCKET")
	if path == "" {
		return
	}
	c := New(Options{Socket: path, Executable: os.Getenv("IPC_TEST_EXE"), StartLock: os.Getenv("IPC_TEST_LOCK")})
	defer c.Close()
	_, err := c.List(soon(t), ListRequest{})
	fmt.Println(err)
}

func TestSomebodyElsesDaemonIsNotSpokenTo(t *testing.T) {
	path := filepath.Join(room(t), "s")
	h := &script{}
	serve(t, path, h)
	other := os.Getuid() + 1
	_, err := dial(t, path, func(o *Options) { o.UID = &other }).List(soon(t), ListRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeRefused || len(h.all()) != 0 {
		t.Errorf("%v, %d calls", err, len(h.all()))
	}
}

func TestWhatIsNoDaemonIsNamed(t *testing.T) {
	path := filepath.Join(room(t), "s")
	l := listen(t, path)
	srv := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	_, err := dial(t, path).List(soon(t), ListRequest{})
	if err == nil || !strings.Contains(err.Error(), "is not jobd") {
		t.Errorf("got %v", err)
	}
}

func TestALongPathIsNamed(t *testing.T) {
	_, err := dial(t, "/tmp/"+strings.Repeat("x", 200)).List(soon(t), ListRequest{})
	if err == nil || !strings.Contains(err.Error(), "has 205 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestANewerClientReplacesAnOlderDaemon(t *testing.T) {
	dir := room(t)
	path := filepath.Join(dir, "s")
	newer := func(o *Options) { o.Protocol, o.Version, o.StartLock = 2, "2.0", filepath.Join(dir, "start.lock") }

	// The older daemon leaves when it is asked to, and "jobd start" of the newer
	// client makes a newer one answer.
	old := &script{status: func(context.Context) (Status, error) { return Status{Protocol: 1, Version: "1.0", PID: 1}, nil }}
	var leave func()
	left := make(chan StopRequest, 1)
	old.stop = func(r StopRequest) error {
		left <- r
		go leave()
		return nil
	}
	_, leave = serve(t, path, old)
	mark := filepath.Join(dir, "started")
	runs, exe := program(t, dir, fmt.Sprintf("touch %s; while [ -e %s ]; do sleep 0.01; done", mark, mark))
	go func() {
		eventually(t, func() bool { _, err := os.Stat(mark); return err == nil })
		serve(t, path, &script{}, func(o *ServerOptions) { o.Protocol, o.Version = 2, "2.0" })
		os.Remove(mark)
	}()
	c := dial(t, path, newer, func(o *Options) { o.Executable = exe; o.Env = []string{"PATH=/usr/bin:/bin"} })
	if _, err := c.List(soon(t), ListRequest{Text: "x"}); err != nil {
		t.Fatal(err)
	}
	if r := <-left; !r.HandOver || r.KillJobs {
		t.Errorf("asked to leave by %+v", r)
	}
	if p, v := c.Peer(); p != 2 || v != "2.0" || runs() != 1 {
		t.Errorf("now served by protocol %d, version %s, after %d starts", p, v, runs())
	}
	for _, call := range old.all() {
		if _, ok := call.(ListRequest); ok {
			t.Error("the older daemon carried out the call")
		}
	}
	// An older client is served by the newer daemon as it is.
	if _, err := dial(t, path).List(soon(t), ListRequest{}); err != nil {
		t.Errorf("an older client: %v", err)
	}
}

func TestWhereNoneCanBeStartedAnOlderDaemonIsNamed(t *testing.T) {
	dir := room(t)
	path := filepath.Join(dir, "s")
	h := &script{}
	serve(t, path, h)
	for _, inJob := range []bool{true, false} {
		c := dial(t, path, func(o *Options) { o.Protocol, o.Version, o.InJob = 2, "2.0", inJob })
		_, err := c.List(soon(t), ListRequest{})
		want := "the daemon is jobd 1.0 (protocol 1), older than this program, 2.0 (protocol 2); run: jobd restart"
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeVersion || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	if len(h.all()) != 0 {
		t.Errorf("calls: %v", h.all())
	}
}

func TestACallEndsWithItsContextWhileAStartIsUnderWay(t *testing.T) {
	dir := room(t)
	_, exe := program(t, dir, "exec sleep 60")
	c := dial(t, filepath.Join(dir, "s"), func(o *Options) {
		o.Executable, o.StartLock, o.Env = exe, filepath.Join(dir, "start.lock"), []string{"PATH=/usr/bin:/bin"}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := c.List(ctx, ListRequest{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	began = time.Now()
	c.Close() // ends the start
	if time.Since(began) > 2*time.Second {
		t.Errorf("closed after %v", time.Since(began))
	}
	if _, err := c.List(soon(t), ListRequest{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}

func TestADaemonThatHangsUpAtOnceIsRetried(t *testing.T) {
	path := filepath.Join(room(t), "s")
	l := listen(t, path)
	go func() {
		for range 3 {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}
		l.Close()
		os.Remove(path)
		serve(t, path, &script{})
	}()
	if _, err := dial(t, path).List(soon(t), ListRequest{}); err != nil {
		t.Error(err)
	}
}

// FuzzReply holds that whatever answers on the socket, a call returns what it
// asked for or an error that says what is wrong.
func FuzzReply(f *testing.F) {
	for _, m := range messages() {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(200, "1", "", b)
		f.Add(409, "1", "", b)
	}
	f.Add(503, "1", "1", []byte(`{"code":"unavailable","message":"jobd is stopping"}`))
	f.Add(426, "2", "", []byte(`{"code":"version","message":"m","hint":"h"}`))
	f.Add(200, "", "", []byte(`<html>`))
	f.Add(500, "x", "", []byte(`{`))
	f.Fuzz(func(t *testing.T, status int, protocol, leaving string, body []byte) {
		c := New(Options{Socket: "unused"})
		defer c.Close()
		c.http = &http.Client{Transport: replies(func(*http.Request) *http.Response {
			h := http.Header{}
			h.Set(HeaderProtocol, protocol)
			h.Set(headerLeaving, leaving)
			return &http.Response{StatusCode: status, Status: "status", Header: h, Body: io.NopCloser(bytes.NewReader(body))}
		})}
		var job Job
		err := c.send(t.Context(), routes[pathGet], "", GetRequest{ID: "a"}, &job)
		var e *Error
		switch {
		case err == nil && status != http.StatusOK:
			t.Errorf("status %d is no error", status)
		case err != nil && (!errors.As(err, &e) || e.Message == ""):
			t.Errorf("the error is %v", err)
		}
	})
}

// replies answers requests without a connection.
type replies func(*http.Request) *http.Response

// RoundTrip implements [http.RoundTripper].
func (r replies) RoundTrip(req *http.Request) (*http.Response, error) { return r(req), nil }
