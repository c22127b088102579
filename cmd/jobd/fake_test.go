package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"jobd/internal/ipc"
)

// A fakeDaemon answers what a test lets it answer. A call that the test does
// not expect is a nil function, and panics.
type fakeDaemon struct {
	ipc.Handler

	submit func(ipc.SubmitRequest) (ipc.SubmitReply, error)
	list   func(ipc.ListRequest) (ipc.ListReply, error)
	get    func(ipc.GetRequest) (ipc.Job, error)
	result func(ipc.GetRequest) (ipc.Result, error)
	output func(ipc.OutputRequest) (ipc.Output, error)
	cancel func(ipc.CancelRequest) (ipc.Job, error)
	ask    func(ipc.AskRequest) (ipc.Answer, error)
	await  func(context.Context, ipc.AwaitRequest) (ipc.Answer, error)
	answer func(ipc.AnswerRequest) (ipc.AnswerReply, error)
	prune  func(ipc.PruneRequest) (ipc.PruneReply, error)

	mu        sync.Mutex
	delivered []string
	progress  []ipc.ProgressRequest
	results   []ipc.SetResultRequest
	fault     error // of progress and results
}

func (f *fakeDaemon) Submit(_ context.Context, key string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
	if key == "" {
		return ipc.SubmitReply{}, &ipc.Error{Code: ipc.CodeInvalid, Message: "no request key"}
	}
	return f.submit(r)
}

func (f *fakeDaemon) List(_ context.Context, r ipc.ListRequest) (ipc.ListReply, error) {
	return f.list(r)
}
func (f *fakeDaemon) Get(_ context.Context, r ipc.GetRequest) (ipc.Job, error) { return f.get(r) }
func (f *fakeDaemon) Result(_ context.Context, r ipc.GetRequest) (ipc.Result, error) {
	return f.result(r)
}
func (f *fakeDaemon) Output(_ context.Context, r ipc.OutputRequest) (ipc.Output, error) {
	return f.output(r)
}
func (f *fakeDaemon) Cancel(_ context.Context, r ipc.CancelRequest) (ipc.Job, error) {
	return f.cancel(r)
}
func (f *fakeDaemon) Ask(_ context.Context, r ipc.AskRequest) (ipc.Answer, error) { return f.ask(r) }
func (f *fakeDaemon) Await(ctx context.Context, r ipc.AwaitRequest) (ipc.Answer, error) {
	return f.await(ctx, r)
}
func (f *fakeDaemon) Answer(_ context.Context, r ipc.AnswerRequest) (ipc.AnswerReply, error) {
	return f.answer(r)
}
func (f *fakeDaemon) Prune(_ context.Context, r ipc.PruneRequest) (ipc.PruneReply, error) {
	return f.prune(r)
}

func (f *fakeDaemon) Delivered(_ context.Context, r ipc.DeliveredRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = append(f.delivered, r.ID)
	return nil
}

func (f *fakeDaemon) Progress(_ context.Context, r ipc.ProgressRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progress = append(f.progress, r)
	return f.fault
}

func (f *fakeDaemon) SetResult(_ context.Context, r ipc.SetResultRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results = append(f.results, r)
	return f.fault
}

// An outcome is what a command line left.
type outcome struct {
	code     int
	out, err string
}

// An invocation is the surroundings of a command in a test.
type invocation struct {
	daemon ipc.Handler
	env    map[string]string
	in     string
	// terminal: a person sits in front of a terminal of 80 columns.
	terminal bool
	secret   string
	unused   bool // jobd was never used here
}

// call runs a command line in this process.
func (c invocation) call(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	cl := &cli{
		in: strings.NewReader(c.in), out: &out, err: &err,
		asks:       c.terminal,
		readSecret: func() (string, error) { return c.secret, nil },
		getenv:     func(name string) string { return c.env[name] },
		now:        func() time.Time { return testNow },
		connect: func(context.Context, bool) (ipc.Handler, error) {
			if c.daemon == nil {
				t.Error("the daemon was asked")
			}
			return c.daemon, nil
		},
		started: func() (bool, error) { return !c.unused, nil },
	}
	if c.terminal {
		cl.screen = screen{terminal: true, width: 80}
	}
	code := run(t.Context(), cl, args)
	return outcome{code, out.String(), err.String()}
}

var testNow = time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)

// The ids of the jobs in tests.
const (
	idA = "3f2a9c1d0000000000000000000000aa"
	idB = "9b01c2d30000000000000000000000bb"
)

func ptr[T any](v T) *T { return &v }

// ofJobs is a daemon that has these jobs, and their output.
func ofJobs(output map[string]string, jobs ...ipc.Job) *fakeDaemon {
	one := func(id string) (ipc.Job, error) {
		for _, job := range jobs {
			if strings.HasPrefix(job.ID, id) {
				return job, nil
			}
		}
		return ipc.Job{}, &ipc.Error{Code: ipc.CodeNotFound, Message: "there is no job " + id}
	}
	return &fakeDaemon{
		list: func(ipc.ListRequest) (ipc.ListReply, error) { return ipc.ListReply{Jobs: jobs}, nil },
		get:  func(r ipc.GetRequest) (ipc.Job, error) { return one(r.ID) },
		output: func(r ipc.OutputRequest) (ipc.Output, error) {
			job, err := one(r.ID)
			text := output[job.ID]
			n := int64(len(text))
			return ipc.Output{Offset: r.Offset, Data: []byte(text[min(r.Offset, n):]), Next: n, Total: n, End: job.Final}, err
		},
	}
}

func finished(id, state string) ipc.Job {
	job := ipc.Job{ID: id, Name: "job", Tool: "shell", State: state, Final: true, Shell: true, CreatedAt: testNow.Add(-time.Minute)}
	if state == "succeeded" {
		job.ExitCode = ptr(0)
	}
	return job
}

func asJSON[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q is not the JSON that was expected: %v", s, err)
	}
	return v
}
