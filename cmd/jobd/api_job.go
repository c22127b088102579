package main

import (
	"context"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/jobs"
)

// wireJobs converts jobs for the wire.
func (a *api) wireJobs(ctx context.Context, found []jobs.Job) []ipc.Job {
	out := make([]ipc.Job, len(found))
	for i := range found {
		out[i] = a.wireJob(ctx, &found[i])
	}
	return out
}

// wireJob converts a job for the wire.
func (a *api) wireJob(ctx context.Context, j *jobs.Job) ipc.Job {
	now := a.sup.Now()
	w := ipc.Job{
		ID: j.ID, Name: j.Spec.Name, Tool: j.Spec.Tool, State: string(j.State()), TaskStatus: taskStatus(j.State()),
		Reason: jobs.OneLine(j.Reason, 500), Project: j.Spec.Project, Session: j.Spec.Session, Cwd: j.Spec.Dir, Command: j.Spec.Argv,
		Key: j.Keys.Idempotency, PID: j.PID,
		CreatedAt: j.Created.Wall.UTC(), StartedAt: when(j.Started), EndedAt: when(j.Ended), UpdatedAt: j.Updated.Wall.UTC(), DeliveredAt: when(j.Delivered),
		DurationMS: j.RunTime(now).Milliseconds(), Questions: []ipc.Question{},
		OutputBytes: j.OutputBytes, OutputDropped: j.OutputDropped,
		Revision: j.Revision(), Final: j.State().Final(), Shell: j.Spec.Shell, Unfollowed: j.Unfollowed, AnswerBy: string(j.Spec.AnswerBy),
		ResultKind: string(j.ResultKind), PollIntervalMS: jobs.PollInterval(j.Created, now).Milliseconds(),
		AnswerWithinMS: j.Spec.AnswerWithin.Milliseconds(), TimeoutMS: j.Spec.Timeout.Milliseconds(), QuestionCount: len(j.Questions),
	}
	last := ""
	if !j.State().Final() && j.State() != jobs.Queued {
		if size, err := a.sup.Runner().Output(ctx, j.ID); err == nil {
			w.OutputBytes, w.OutputDropped = size.Total, size.Dropped
		}
		if j.Progress == nil {
			last = a.lastOutputLine(ctx, j.ID)
		}
	}
	w.StatusMessage = j.Message(last, a.sup.Place(j.ID))
	if e := j.Exit; e != nil && e.NotStarted == "" {
		if e.Signal != 0 {
			name := e.SignalName
			w.Signal = &name
		} else {
			code := e.Code
			w.ExitCode = &code
		}
	}
	if p := j.Progress; p != nil {
		w.Progress = &ipc.Progress{Done: p.Done, Total: p.Total, Text: p.Text, At: p.At.Wall.UTC()}
	}
	for _, q := range j.Open() {
		w.Questions = append(w.Questions, a.wireQuestion(j, &q, now))
	}
	if ttl, ok := a.sup.TTL(j); ok {
		w.TTLMS = &ttl
	}
	return w
}

// wireQuestion converts a question for the wire.
func (a *api) wireQuestion(j *jobs.Job, q *jobs.Question, now jobs.Instant) ipc.Question {
	w := ipc.Question{ID: q.ID, Key: q.Key, Mode: ipc.ModeForm, Message: q.Message, Schema: q.Schema, Fault: q.Fault, Hidden: q.Hidden(),
		Consented: q.Consented, AskedAt: q.Asked.Wall.UTC(), LeftMS: max(q.Left(now).Milliseconds(), 0), OnTimeout: string(q.OnTimeout), State: string(q.State)}
	if q.Secret {
		w.Mode, w.URL = ipc.ModeURL, a.page(j.ID, q.ID)
	}
	return w
}

// taskStatus is a job's status as an MCP task, for a client that can show every
// open question.
func taskStatus(s jobs.State) string {
	switch s {
	case jobs.Queued, jobs.Starting, jobs.Running, jobs.Stopping:
		return "working"
	case jobs.Waiting:
		return "input_required"
	case jobs.Cancelled:
		return "cancelled"
	case jobs.Errored:
		return "failed"
	case jobs.Succeeded, jobs.Failed, jobs.TimedOut, jobs.Unanswered, jobs.Lost:
		return "completed"
	}
	return "working"
}

// when returns an instant's time of day, nil if it was never set.
func when(t jobs.Instant) *time.Time {
	if t.IsZero() {
		return nil
	}
	w := t.Wall.UTC()
	return &w
}

// wireOutput converts a piece of output for the wire.
func wireOutput(c jobs.Chunk, final bool) ipc.Output {
	return ipc.Output{Offset: c.Offset, Data: c.Data, Next: c.Next, Gap: c.Gap, Total: c.Size.Total, Dropped: c.Size.Dropped,
		End: final && c.Next >= c.Size.Total}
}
