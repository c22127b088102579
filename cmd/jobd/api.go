package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/jobfile"
	"jobd/internal/jobs"
)

// api serves the socket's protocol from the supervisor. It and its files
// api_*.go are the one place where the words of the wire and those of the
// domain meet.
type api struct {
	sup *jobs.Supervisor
	log *slog.Logger
	// defaults are what a job gets that does not say.
	defaults jobDefaults
	// status is what never changes while the daemon lives.
	status ipc.Status
	// leave ends the daemon, after the reply to the request was written.
	leave func(handOver bool) error
	// page returns the address of the page that takes a secret.
	page func(job, ask string) string
	// files are the job files.
	files *jobfile.Catalog
	// sessions are those that clients' processes are in and were in.
	sessions sessionFiles
	// bundles is the directory of the jobs' bundles.
	bundles string
	// step is told when something is about to be shown to a client, for tests
	// that end the daemon there. It may be nil.
	step func(name string)
	// places for the environment of jobs
	socket, home, binDir string
}

// jobDefaults are the limits that the configuration gives to every job.
type jobDefaults struct {
	Timeout         time.Duration
	QuestionTimeout time.Duration
	AnswerWithin    time.Duration
	OutputLimit     int64
	Unattended      jobs.Unattended
	RunJob          bool
}

// outputPoll is how often a reader that waits for output has the log looked at.
const outputPoll = 100 * time.Millisecond

// The sizes of pieces of output.
const (
	outputMost = 1 << 20
	resultTail = 64 << 10
	lastLine   = 512
)

var _ ipc.Handler = (*api)(nil)

// Status implements [ipc.Handler].
func (a *api) Status(context.Context) (ipc.Status, error) {
	st := a.status
	st.LiveJobs, st.OpenAsks = a.sup.Live()
	return st, nil
}

// Stop implements [ipc.Handler].
func (a *api) Stop(ctx context.Context, r ipc.StopRequest) error {
	if r.KillJobs {
		if err := a.sup.CancelAll(ctx, "jobd was stopped with --kill-jobs"); err != nil {
			return wireError(fmt.Errorf("ending the jobs: %w", err))
		}
	}
	return wireError(a.leave(r.HandOver))
}

// List implements [ipc.Handler].
func (a *api) List(ctx context.Context, r ipc.ListRequest) (ipc.ListReply, error) {
	f := jobs.Filter{Project: r.Project, Session: r.Session, Key: r.Key, Text: r.Text, Pending: r.Pending, Limit: r.Limit}
	for _, s := range r.States {
		if !jobs.State(s).Valid() {
			return ipc.ListReply{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("there is no state %q", s), Hint: fmt.Sprintf("use one of %v", jobs.States())}
		}
		f.States = append(f.States, jobs.State(s))
	}
	found, err := a.sup.Jobs(ctx, f)
	if err != nil {
		return ipc.ListReply{}, wireError(err)
	}
	return ipc.ListReply{Jobs: a.wireJobs(ctx, found)}, nil
}

// Get implements [ipc.Handler].
func (a *api) Get(ctx context.Context, r ipc.GetRequest) (ipc.Job, error) {
	j, err := a.wait(ctx, r)
	if err != nil {
		return ipc.Job{}, wireError(err)
	}
	if a.step != nil && len(j.Open()) > 0 {
		a.step("question shown")
	}
	return a.wireJob(ctx, &j), nil
}

// find returns the job that a request names.
func (a *api) find(ctx context.Context, id string, exact bool) (jobs.Job, error) {
	if id == "" {
		return jobs.Job{}, &jobs.Error{Kind: jobs.ErrInvalid, Message: "the request names no job"}
	}
	if exact {
		return a.sup.Job(ctx, id)
	}
	return a.sup.FindJob(ctx, id)
}

// wait returns a job at once or when it fits the request.
func (a *api) wait(ctx context.Context, r ipc.GetRequest) (jobs.Job, error) {
	j, err := a.find(ctx, r.ID, r.Exact)
	if err != nil || r.WaitMS <= 0 {
		return j, err
	}
	var fits func(*jobs.Job) bool
	switch r.Until {
	case "":
		fits = func(j *jobs.Job) bool { return j.Revision() > r.Revision }
	case "settled":
		fits = func(j *jobs.Job) bool { return j.Revision() > r.Revision && (j.State().Final() || len(j.Open()) > 0) }
	case "final":
		fits = func(j *jobs.Job) bool { return j.State().Final() }
	default:
		return j, &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("a request can wait until %q or %q, not %q", "final", "settled", r.Until)}
	}
	wait, cancel := context.WithTimeout(ctx, time.Duration(r.WaitMS)*time.Millisecond)
	defer cancel()
	got, err := a.sup.Wait(wait, j.ID, fits)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return a.sup.Job(ctx, j.ID)
	}
	return got, err
}

// Result implements [ipc.Handler].
func (a *api) Result(ctx context.Context, r ipc.GetRequest) (ipc.Result, error) {
	j, err := a.wait(ctx, r)
	if err != nil {
		return ipc.Result{}, wireError(err)
	}
	body, err := a.sup.Result(ctx, j.ID)
	if err != nil {
		return ipc.Result{}, wireError(err)
	}
	tail, err := a.sup.Runner().TailOutput(ctx, j.ID, 0, resultTail)
	if err != nil {
		return ipc.Result{}, wireError(err)
	}
	res := ipc.Result{Job: a.wireJob(ctx, &j), Body: body, Tail: wireOutput(tail, j.State().Final())}
	if q := j.Fatal(); q != nil && j.State() == jobs.Unanswered {
		w := a.wireQuestion(&j, q, a.sup.Now())
		res.Unanswered = &w
	}
	return res, nil
}

// Output implements [ipc.Handler].
func (a *api) Output(ctx context.Context, r ipc.OutputRequest) (ipc.Output, error) {
	j, err := a.find(ctx, r.ID, false)
	if err != nil {
		return ipc.Output{}, wireError(err)
	}
	limit := r.Limit
	if limit <= 0 || limit > outputMost {
		limit = outputMost
	}
	if r.Offset < 0 || r.Lines < 0 {
		return ipc.Output{}, &ipc.Error{Code: ipc.CodeInvalid, Message: "offset and tail_lines cannot be negative"}
	}
	if r.Lines > 0 {
		c, err := a.sup.Runner().TailOutput(ctx, j.ID, r.Lines, limit)
		return wireOutput(c, j.State().Final()), wireError(err)
	}
	deadline := time.Now().Add(time.Duration(r.WaitMS) * time.Millisecond)
	for {
		// The state is read before the output: what a job wrote before it ended
		// is then there.
		j, err = a.sup.Job(ctx, j.ID)
		if err != nil {
			return ipc.Output{}, wireError(err)
		}
		c, err := a.sup.Runner().ReadOutput(ctx, j.ID, r.Offset, limit)
		if err != nil {
			return ipc.Output{}, wireError(err)
		}
		if len(c.Data) > 0 || j.State().Final() || !time.Now().Before(deadline) {
			return wireOutput(c, j.State().Final()), nil
		}
		select {
		case <-ctx.Done():
			return ipc.Output{}, ctx.Err()
		case <-time.After(outputPoll):
		}
	}
}

// Cancel implements [ipc.Handler].
func (a *api) Cancel(ctx context.Context, r ipc.CancelRequest) (ipc.Job, error) {
	j, err := a.find(ctx, r.ID, false)
	if err != nil {
		return ipc.Job{}, wireError(err)
	}
	by, err := a.reader(r.Client, r.Session, r.Shell)
	if err != nil {
		return ipc.Job{}, err
	}
	j, err = a.sup.Cancel(ctx, j.ID, jobs.Cancel{Reason: r.Reason, Headless: r.Headless, Unanswered: r.Unanswered, By: by})
	if err != nil {
		return ipc.Job{}, wireError(err)
	}
	return a.wireJob(ctx, &j), nil
}

// Delivered implements [ipc.Handler].
func (a *api) Delivered(ctx context.Context, r ipc.DeliveredRequest) error {
	j, err := a.find(ctx, r.ID, false)
	if err != nil {
		return wireError(err)
	}
	by, err := a.reader(r.Client, r.Session, r.Shell)
	if err != nil {
		return err
	}
	return wireError(a.sup.Deliver(ctx, j.ID, by))
}

// reader is who sent a request. A process that went on to another conversation
// follows the jobs of the one before, and keeps their results for it.
func (a *api) reader(client, session string, shell bool) (jobs.Reader, error) {
	recorded, err := a.sessions.of(client)
	if session != "" {
		recorded = append(recorded, session)
	}
	return jobs.Reader{Sessions: recorded, Shell: shell}, err
}

// session returns the conversation that a client's process is in: the one that
// was recorded last, else the one that its front end names.
func (a *api) session(client, named string) (string, error) {
	recorded, err := a.sessions.of(client)
	if len(recorded) > 0 {
		named = recorded[len(recorded)-1]
	}
	return named, err
}

// Prune implements [ipc.Handler].
func (a *api) Prune(ctx context.Context, r ipc.PruneRequest) (ipc.PruneReply, error) {
	p := jobs.Prune{OlderThan: time.Duration(r.OlderThanMS) * time.Millisecond, Undelivered: r.Undelivered, DryRun: r.DryRun}
	if r.OlderThanMS == 0 {
		p.OlderThan = a.sup.Retention()
	}
	ids, err := a.sup.Prune(ctx, p)
	return ipc.PruneReply{IDs: ids}, wireError(err)
}

// Progress implements [ipc.Handler].
func (a *api) Progress(ctx context.Context, r ipc.ProgressRequest) error {
	return wireError(a.sup.Progress(ctx, r.Job, jobs.Progress{Done: r.Done, Total: r.Total, Text: jobs.OneLine(r.Text, 200)}))
}

// SetResult implements [ipc.Handler].
func (a *api) SetResult(ctx context.Context, r ipc.SetResultRequest) error {
	return wireError(a.sup.SetResult(ctx, r.Job, jobs.ResultKind(r.Kind), r.Body))
}

// Session implements [ipc.Handler].
func (a *api) Session(ctx context.Context, r ipc.SessionRequest) (ipc.ListReply, error) {
	if err := a.sessions.add(r.Client, r.Current, a.sup.Now().Wall); err != nil {
		return ipc.ListReply{}, err
	}
	if !r.Announce {
		return ipc.ListReply{Jobs: []ipc.Job{}}, nil
	}
	found, err := a.sup.Announce(ctx, r.Project)
	if err != nil {
		return ipc.ListReply{}, wireError(err)
	}
	return ipc.ListReply{Jobs: a.wireJobs(ctx, found)}, nil
}

// wireError maps the domain's errors to those of the wire, in one place.
// Others go out as they are, and become internal ones.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	for _, k := range []struct {
		kind error
		code ipc.Code
	}{
		{jobs.ErrNotFound, ipc.CodeNotFound},
		{jobs.ErrExpired, ipc.CodeExpired},
		{jobs.ErrAmbiguous, ipc.CodeAmbiguous},
		{jobs.ErrInvalid, ipc.CodeInvalid},
		{jobs.ErrConflict, ipc.CodeConflict},
		{jobs.ErrState, ipc.CodeState},
		{jobs.ErrRefused, ipc.CodeRefused},
		{jobs.ErrUnavailable, ipc.CodeUnavailable},
	} {
		if errors.Is(err, k.kind) {
			return &ipc.Error{Code: k.code, Message: err.Error()}
		}
	}
	return err
}

// checkDir refuses a directory in which nothing can run.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("the directory %s does not exist", dir), Hint: "name one that does as cwd"}
	case err != nil:
		return &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("the directory %s cannot be used: %v", dir, err), Hint: "name another one as cwd"}
	case !info.IsDir():
		return &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("%s is not a directory", dir), Hint: "name one as cwd"}
	}
	return nil
}

// lastOutputLine returns the end of a job's output for its status message.
func (a *api) lastOutputLine(ctx context.Context, id string) string {
	c, err := a.sup.Runner().TailOutput(ctx, id, 1, lastLine)
	if err != nil {
		return ""
	}
	return string(bytes.TrimRight(c.Data, "\r\n"))
}
