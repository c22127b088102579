package frontend

import (
	"context"
	"errors"

	"jobd/internal/ipc"
)

// A Daemon is what the front end asks of jobd; *ipc.Client is one. The methods
// mean what they mean in [ipc.Handler]. An error that is an [*ipc.Error] is a
// sentence for the model and the person; while the daemon cannot be reached it
// has the code [ipc.CodeUnavailable].
type Daemon interface {
	Submit(ctx context.Context, key string, r ipc.SubmitRequest) (ipc.SubmitReply, error)
	List(ctx context.Context, r ipc.ListRequest) (ipc.ListReply, error)
	Get(ctx context.Context, r ipc.GetRequest) (ipc.Job, error)
	Result(ctx context.Context, r ipc.GetRequest) (ipc.Result, error)
	Output(ctx context.Context, r ipc.OutputRequest) (ipc.Output, error)
	Cancel(ctx context.Context, r ipc.CancelRequest) (ipc.Job, error)
	Delivered(ctx context.Context, r ipc.DeliveredRequest) error
	Answer(ctx context.Context, r ipc.AnswerRequest) (ipc.AnswerReply, error)
	Tools(ctx context.Context, r ipc.ToolsRequest) (ipc.ToolsReply, error)
}

// code returns the code of an error of the daemon, [ipc.CodeInternal] for an
// error of another kind.
func code(err error) ipc.Code {
	var e *ipc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ipc.CodeInternal
}

// passing reports whether the same request may succeed in a moment, because
// the daemon is being started, replaced or cannot store anything now.
func passing(err error) bool { return code(err) == ipc.CodeUnavailable }

// until is a condition of [ipc.GetRequest].
const untilSettled = "settled"

// Broken returns a daemon that cannot be reached at all, because of err: every
// call fails with it.
func Broken(err error) Daemon {
	return broken{&ipc.Error{Code: ipc.CodeUnavailable, Message: "jobd cannot be reached: " + err.Error()}}
}

type broken struct{ err error }

func (b broken) Submit(context.Context, string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
	return ipc.SubmitReply{}, b.err
}

func (b broken) List(context.Context, ipc.ListRequest) (ipc.ListReply, error) {
	return ipc.ListReply{}, b.err
}
func (b broken) Get(context.Context, ipc.GetRequest) (ipc.Job, error) { return ipc.Job{}, b.err }

func (b broken) Result(context.Context, ipc.GetRequest) (ipc.Result, error) {
	return ipc.Result{}, b.err
}

func (b broken) Output(context.Context, ipc.OutputRequest) (ipc.Output, error) {
	return ipc.Output{}, b.err
}
func (b broken) Cancel(context.Context, ipc.CancelRequest) (ipc.Job, error) { return ipc.Job{}, b.err }
func (b broken) Delivered(context.Context, ipc.DeliveredRequest) error      { return b.err }

func (b broken) Answer(context.Context, ipc.AnswerRequest) (ipc.AnswerReply, error) {
	return ipc.AnswerReply{}, b.err
}

func (b broken) Tools(context.Context, ipc.ToolsRequest) (ipc.ToolsReply, error) {
	return ipc.ToolsReply{}, b.err
}
