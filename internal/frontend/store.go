package frontend

import (
	"context"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// store gives jobs as tasks. An id is unguessable, so knowing one is enough to
// ask for it; only the session that owns a job can have it delivered, which the
// daemon decides.
type store struct{ f *Frontend }

var _ mcptasks.Lister = (*store)(nil)

// Get implements [mcptasks.Store].
func (s *store) Get(ctx context.Context, c *mcptasks.Client, id string) (mcptasks.Task, error) {
	job, err := s.f.daemon.Get(ctx, ipc.GetRequest{ID: id, Exact: true})
	if err != nil {
		return mcptasks.Task{}, taskError(err)
	}
	s.f.catalog.daemonSeen()
	s.f.catalog.answers(job)
	t, err := s.f.task(ctx, job, c)
	if err == nil && t.Status.Final() {
		s.f.deliveries.onWrite(c, job)
	}
	return t, err
}

// Update implements [mcptasks.Store].
func (s *store) Update(ctx context.Context, _ *mcptasks.Client, id string, answers mcptasks.InputResponses) error {
	job, err := s.f.daemon.Get(ctx, ipc.GetRequest{ID: id, Exact: true})
	if err != nil {
		return taskError(err)
	}
	closed := false
	for _, key := range sortedKeys(answers) {
		if key == "" {
			continue // would mean the only open question
		}
		no, err := s.f.give(ctx, job.ID, key, answers[key])
		if err != nil {
			return taskError(err)
		}
		closed = closed || no
	}
	if closed && len(open(job)) > 0 {
		if err := s.f.noAnswer(ctx, job.ID); err != nil {
			return taskError(err)
		}
	}
	return nil
}

// Cancel implements [mcptasks.Store].
func (s *store) Cancel(ctx context.Context, _ *mcptasks.Client, id string) error {
	job, err := s.f.daemon.Get(ctx, ipc.GetRequest{ID: id, Exact: true})
	if err != nil {
		return taskError(err)
	}
	r := s.f.cancelRequest(job.ID, "cancelled by the client of the session that follows it")
	r.Headless = s.f.caller.Headless
	_, err = s.f.daemon.Cancel(ctx, r)
	if err != nil {
		return taskError(err)
	}
	return nil
}

// watchFor is how long one request waits for a change.
const watchFor = 5 * time.Minute

// Watch implements [mcptasks.Store].
func (s *store) Watch(ctx context.Context, c *mcptasks.Client, id string, changed func(mcptasks.Task) error) error {
	job, err := s.f.daemon.Get(ctx, ipc.GetRequest{ID: id, Exact: true})
	if err != nil {
		return taskError(err)
	}
	var last ipc.Job
	wait := int64(0)
	for {
		if last.ID == "" || !job.UpdatedAt.Equal(last.UpdatedAt) || job.State != last.State {
			t, err := s.f.task(ctx, job, c)
			switch {
			case err == nil:
				if err := changed(t); err != nil {
					return err
				}
				if t.Status.Final() {
					if job.DeliveredAt == nil {
						s.f.deliveries.written(job.ID)
					}
					return nil
				}
				last, wait = job, watchFor.Milliseconds()
			case !pause(ctx, retryEvery): // its result cannot be had now
				return ctx.Err()
			default:
				wait = 0
			}
		}
		newer, err := s.f.daemon.Get(ctx, ipc.GetRequest{ID: id, Exact: true, WaitMS: wait, Revision: job.Revision})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			// A change of state or of the questions is told at once; reported
			// progress comes from the daemon at most once a second.
			job = newer
		case !passing(err):
			return taskError(err)
		case !pause(ctx, retryEvery):
			return ctx.Err()
		}
	}
}

// listPage is how many tasks one page of a list has.
const listPage = 50

// List implements [mcptasks.Lister]. The tasks carry no results; a client that
// wants one asks for it.
func (s *store) List(ctx context.Context, c *mcptasks.Client, cursor string) ([]mcptasks.Task, string, error) {
	reply, err := s.f.daemon.List(ctx, ipc.ListRequest{Session: s.f.caller.Session})
	if err != nil {
		return nil, "", taskError(err)
	}
	jobs := reply.Jobs
	if cursor != "" {
		at := -1
		for i, job := range jobs {
			if job.ID == cursor {
				at = i
			}
		}
		if at < 0 {
			return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one that this list gave out, or its job was removed; start again without one"}
		}
		jobs = jobs[at+1:]
	}
	next := ""
	if len(jobs) > listPage {
		jobs = jobs[:listPage]
		next = jobs[listPage-1].ID
	}
	tasks := make([]mcptasks.Task, len(jobs))
	for i, job := range jobs {
		tasks[i] = s.f.snapshot(job, c)
	}
	return tasks, next, nil
}

// task is a job as this client sees it, with its result once it is final.
func (f *Frontend) task(ctx context.Context, job ipc.Job, c *mcptasks.Client) (mcptasks.Task, error) {
	t := f.snapshot(job, c)
	if t.Status != mcptasks.StatusCompleted && t.Status != mcptasks.StatusFailed {
		return t, nil
	}
	r, err := f.daemon.Result(ctx, ipc.GetRequest{ID: job.ID, Exact: true})
	if err != nil {
		return mcptasks.Task{}, taskError(err)
	}
	if t.Status == mcptasks.StatusFailed {
		t.Error = protocolError(r)
	} else {
		t.Result = render(r)
	}
	return t, nil
}

// snapshot is a job as this client sees it, without its result.
func (f *Frontend) snapshot(job ipc.Job, c *mcptasks.Client) mcptasks.Task {
	t := mcptasks.Task{
		ID: job.ID, Status: mcptasks.StatusWorking, StatusMessage: oneLine(job.StatusMessage, 200),
		CreatedAt: job.CreatedAt, LastUpdatedAt: job.UpdatedAt,
		PollInterval: time.Duration(job.PollIntervalMS) * time.Millisecond,
	}
	if job.TTLMS != nil {
		ttl := time.Duration(*job.TTLMS) * time.Millisecond
		t.TTL = &ttl
	}
	switch job.State {
	case stateWaiting:
		if t.InputRequests = askable(job, c); t.InputRequests != nil {
			t.Status = mcptasks.StatusInputRequired
		} else if len(open(job)) > 0 && !strings.Contains(t.StatusMessage, "jobd answer ") {
			t.StatusMessage = oneLine("answer it in a shell: jobd answer "+short(job.ID)+" — "+t.StatusMessage, 200)
		}
	case stateSucceeded, stateFailed, stateTimedOut, stateUnanswered, stateLost:
		t.Status = mcptasks.StatusCompleted
	case stateCancelled:
		t.Status = mcptasks.StatusCancelled
	case stateErrored:
		t.Status = mcptasks.StatusFailed
	}
	if t.StatusMessage == "" {
		t.StatusMessage = job.State
	}
	return t
}

// taskError is a daemon's error as the methods of tasks answer it.
func taskError(err error) error {
	switch code(err) {
	case ipc.CodeNotFound, ipc.CodeAmbiguous, ipc.CodeInvalid:
		return mcptasks.ErrUnknownTask
	case ipc.CodeExpired:
		return mcptasks.ErrExpiredTask
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: oneLine(sentence(err), 1_000)}
}
