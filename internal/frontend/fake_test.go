package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"jobd/internal/ipc"
)

// fakeDaemon is a daemon whose jobs do what a test says.
type fakeDaemon struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	jobs    []*ipc.Job    // oldest first
	results map[string]ipc.Result
	keys    map[string]string // request key → id

	// down is what every call fails with; nil = the daemon is there.
	down error
	// onSubmit makes or finds the job of a call; nil = a new running one.
	onSubmit func(key string, r ipc.SubmitRequest) (ipc.SubmitReply, error)
	// holdSubmit, if set, keeps Submit from returning until it is closed.
	holdSubmit chan struct{}
	onAnswer   func(r ipc.AnswerRequest) (ipc.AnswerReply, error)
	onCancel   func(j *ipc.Job, r ipc.CancelRequest)
	tools      ipc.ToolsReply
	holdTools  chan struct{}

	submits   []ipc.SubmitRequest
	reqKeys   []string
	cancels   []ipc.CancelRequest
	answered  []ipc.AnswerRequest
	delivered []ipc.DeliveredRequest
	toolCalls []ipc.ToolsRequest
	lists     []ipc.ListRequest
	outputs   []ipc.OutputRequest
}

var errDown = &ipc.Error{Code: ipc.CodeUnavailable, Message: "jobd is not running, and its start is blocked", Hint: "end that process, and try again"}

func newFakeDaemon() *fakeDaemon {
	return &fakeDaemon{changed: make(chan struct{}), results: map[string]ipc.Result{}, keys: map[string]string{},
		tools: ipc.ToolsReply{Version: "1", RunJob: true}}
}

// change locks the daemon for f and wakes who waits.
func (d *fakeDaemon) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// job changes a job.
func (d *fakeDaemon) job(id string, f func(*ipc.Job)) {
	d.change(func() {
		j := d.find(id)
		j.Revision++
		j.UpdatedAt = time.Now()
		f(j)
	})
}

// finish ends a job.
func (d *fakeDaemon) finish(id, state, printed string, f func(*ipc.Job, *ipc.Result)) {
	d.job(id, func(j *ipc.Job) {
		now := time.Now()
		j.State, j.Final, j.EndedAt, j.Questions, j.OutputBytes = state, true, &now, nil, int64(len(printed))
		j.DurationMS = now.Sub(j.CreatedAt).Milliseconds()
		j.TTLMS = pointer(j.DurationMS + 30*24*3600*1000)
		switch state {
		case stateSucceeded:
			j.ExitCode = pointer(0)
		case stateFailed:
			j.ExitCode, j.Reason = pointer(1), "exit code 1"
		}
		r := ipc.Result{Tail: output(printed)}
		if f != nil {
			f(j, &r)
		}
		d.results[id] = r
	})
}

// ask opens a question.
func (d *fakeDaemon) ask(id string, questions ...ipc.Question) {
	d.job(id, func(j *ipc.Job) { j.State, j.Questions = stateWaiting, append(j.Questions, questions...) })
}

// add adds a running job.
func (d *fakeDaemon) add(j ipc.Job) *ipc.Job {
	now := time.Now()
	if j.ID == "" {
		j.ID = fmt.Sprintf("%032x", 0xa000+len(d.jobs))
	}
	if j.State == "" {
		j.State = stateRunning
	}
	j.Revision, j.CreatedAt, j.StartedAt, j.UpdatedAt = 1, now, &now, now
	j.PollIntervalMS, j.StatusMessage = 500, "running"
	d.jobs = append(d.jobs, &j)
	return &j
}

func (d *fakeDaemon) find(id string) *ipc.Job {
	for _, j := range d.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// lookup finds a job by id or prefix.
func (d *fakeDaemon) lookup(id string, exact bool) (*ipc.Job, error) {
	if d.down != nil {
		return nil, d.down
	}
	var found *ipc.Job
	for _, j := range d.jobs {
		if j.ID == id || !exact && id != "" && strings.HasPrefix(j.ID, id) {
			if found != nil {
				return nil, &ipc.Error{Code: ipc.CodeAmbiguous, Message: fmt.Sprintf("%q fits more than one job", id)}
			}
			found = j
		}
	}
	if found == nil {
		if id == strings.Repeat("e", 32) {
			return nil, &ipc.Error{Code: ipc.CodeExpired, Message: "the job has expired"}
		}
		return nil, &ipc.Error{Code: ipc.CodeNotFound, Message: fmt.Sprintf("there is no job %q", id)}
	}
	return found, nil
}

func (d *fakeDaemon) Submit(ctx context.Context, key string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
	d.mu.Lock()
	hold := d.holdSubmit
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ipc.SubmitReply{}, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		return ipc.SubmitReply{}, d.down
	}
	d.submits, d.reqKeys = append(d.submits, r), append(d.reqKeys, key)
	if d.onSubmit != nil {
		return d.onSubmit(key, r)
	}
	if id := d.keys[key]; id != "" {
		return ipc.SubmitReply{Job: *d.find(id), Joined: "request"}, nil
	}
	name := r.Name
	if name == "" {
		name = r.Command + strings.Join(r.Argv, " ")
	}
	j := d.add(ipc.Job{Name: name, Tool: r.Tool, Project: r.Project, Session: r.Session, Cwd: r.Dir, AnswerWithinMS: 1000})
	d.keys[key] = j.ID
	return ipc.SubmitReply{Job: *j}, nil
}

func (d *fakeDaemon) List(_ context.Context, r ipc.ListRequest) (ipc.ListReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		return ipc.ListReply{}, d.down
	}
	d.lists = append(d.lists, r)
	var reply ipc.ListReply
	for _, j := range slices.Backward(d.jobs) {
		if (r.Project == "" || r.Project == j.Project) && (r.Session == "" || r.Session == j.Session) && (r.States == nil || slices.Contains(r.States, j.State)) {
			reply.Jobs = append(reply.Jobs, *j)
		}
	}
	if r.Limit > 0 && len(reply.Jobs) > r.Limit {
		reply.Jobs = reply.Jobs[:r.Limit]
	}
	return reply, nil
}

func (d *fakeDaemon) Get(ctx context.Context, r ipc.GetRequest) (ipc.Job, error) {
	end := time.After(time.Duration(r.WaitMS) * time.Millisecond)
	for {
		d.mu.Lock()
		j, err := d.lookup(r.ID, r.Exact)
		if err != nil {
			d.mu.Unlock()
			return ipc.Job{}, err
		}
		job, changed := *j, d.changed
		job.Questions = slices.Clone(j.Questions)
		d.mu.Unlock()
		fits := job.Revision > r.Revision && (r.Until != untilSettled || job.Final || job.State == stateWaiting)
		if fits || r.WaitMS == 0 || job.Final {
			return job, nil
		}
		select {
		case <-changed:
		case <-end:
			return job, nil
		case <-ctx.Done():
			return ipc.Job{}, ctx.Err()
		}
	}
}

func (d *fakeDaemon) Result(ctx context.Context, r ipc.GetRequest) (ipc.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.lookup(r.ID, r.Exact)
	if err != nil {
		return ipc.Result{}, err
	}
	result := d.results[j.ID]
	result.Job = *j
	return result, nil
}

func (d *fakeDaemon) Output(_ context.Context, r ipc.OutputRequest) (ipc.Output, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outputs = append(d.outputs, r)
	j, err := d.lookup(r.ID, false)
	if err != nil {
		return ipc.Output{}, err
	}
	all := d.results[j.ID].Tail.Data
	out := ipc.Output{Total: int64(len(all)), Offset: min(r.Offset, int64(len(all)))}
	if r.Lines > 0 {
		out.Offset = max(int64(len(all)-r.Limit), 0)
	}
	out.Data = all[out.Offset:min(int(out.Offset)+r.Limit, len(all))]
	out.Next = out.Offset + int64(len(out.Data))
	out.End = j.Final && out.Next == out.Total
	return out, nil
}

func (d *fakeDaemon) Cancel(_ context.Context, r ipc.CancelRequest) (ipc.Job, error) {
	var job ipc.Job
	var err error
	d.change(func() {
		var j *ipc.Job
		if j, err = d.lookup(r.ID, false); err != nil {
			return
		}
		d.cancels = append(d.cancels, r)
		if d.onCancel != nil {
			d.onCancel(j, r)
		} else if !j.Final {
			j.State, j.Questions = stateStopping, nil
			j.Revision++
		}
		job = *j
	})
	return job, err
}

func (d *fakeDaemon) Delivered(_ context.Context, r ipc.DeliveredRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != nil {
		return d.down
	}
	d.delivered = append(d.delivered, r)
	if j := d.find(r.ID); j.Session == "" || j.Session == r.Session {
		now := time.Now()
		j.DeliveredAt = &now
	}
	return nil
}

func (d *fakeDaemon) Answer(_ context.Context, r ipc.AnswerRequest) (ipc.AnswerReply, error) {
	var reply ipc.AnswerReply
	var err error
	d.change(func() {
		var j *ipc.Job
		if j, err = d.lookup(r.Job, false); err != nil {
			return
		}
		d.answered = append(d.answered, r)
		if d.onAnswer != nil {
			reply, err = d.onAnswer(r)
			return
		}
		at := slices.IndexFunc(j.Questions, func(q ipc.Question) bool { return q.Key == r.Question || r.Question == "" })
		if at < 0 {
			err = &ipc.Error{Code: ipc.CodeNotFound, Message: "there is no such question"}
			return
		}
		j.Questions = slices.Delete(slices.Clone(j.Questions), at, at+1)
		if len(j.Questions) == 0 {
			j.State = stateRunning
		}
		j.Revision++
		j.UpdatedAt = time.Now()
		reply.Taken = true
	})
	return reply, err
}

func (d *fakeDaemon) Tools(ctx context.Context, r ipc.ToolsRequest) (ipc.ToolsReply, error) {
	end := time.After(time.Duration(r.WaitMS) * time.Millisecond)
	d.mu.Lock()
	d.toolCalls = append(d.toolCalls, r)
	hold := d.holdTools
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ipc.ToolsReply{}, ctx.Err()
		}
	}
	for {
		d.mu.Lock()
		reply, changed, down := d.tools, d.changed, d.down
		d.mu.Unlock()
		if down != nil {
			return ipc.ToolsReply{}, down
		}
		if r.WaitMS == 0 || reply.Version != r.Version {
			return reply, nil
		}
		select {
		case <-changed:
		case <-end:
			return reply, nil
		case <-ctx.Done():
			return ipc.ToolsReply{}, ctx.Err()
		}
	}
}

// seen reads what the daemon was told.
func seen[T any](d *fakeDaemon, list *[]T) []T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(*list)
}

// confirm is a question with one field.
func confirm(key string) ipc.Question {
	return ipc.Question{ID: "asked-" + key, Key: key, Mode: ipc.ModeForm, Message: "Deploy to production?", State: "open", LeftMS: 48 * 60_000, OnTimeout: "fail",
		Schema: json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)}
}

// first is the id of the first job.
func (d *fakeDaemon) first() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.jobs[0].ID
}
