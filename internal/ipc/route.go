package ipc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// The calls of the protocol. Bodies and replies are JSON; a reply that holds
// nothing is {}. GET /status and POST /stop are frozen.
//
//	GET  /status                      Status
//	POST /stop          StopRequest   Empty
//
//	POST /v1/jobs       SubmitRequest SubmitReply   with the header Idempotency-Key
//	POST /v1/list       ListRequest   ListReply
//	POST /v1/get        GetRequest    Job           may wait
//	POST /v1/result     GetRequest    Result        may wait
//	POST /v1/output     OutputRequest Output        may wait
//	POST /v1/cancel     CancelRequest Job
//	POST /v1/delivered  DeliveredRequest Empty
//	POST /v1/ask        AskRequest    Answer        may wait
//	POST /v1/await      AwaitRequest  Answer        may wait
//	POST /v1/answer     AnswerRequest AnswerReply
//	POST /v1/progress   ProgressRequest Empty
//	POST /v1/set-result SetResultRequest Empty
//	POST /v1/session    SessionRequest ListReply
//	POST /v1/tools      ToolsRequest  ToolsReply    may wait
//	POST /v1/prune      PruneRequest  PruneReply
//
// A job without jobd on its PATH can use them by hand; the host in the address
// does not matter, and no header is needed:
//
//	curl --unix-socket "$JOBD_SOCKET" http://jobd/v1/progress \
//	     -d "{\"job\":\"$JOBD_JOB_ID\",\"done\":3,\"total\":10}"
//
// An error has a status of 400 or above and an [Error] as its body.
const (
	pathStatus    = "/status"
	pathStop      = "/stop"
	pathSubmit    = "/v1/jobs"
	pathList      = "/v1/list"
	pathGet       = "/v1/get"
	pathResult    = "/v1/result"
	pathOutput    = "/v1/output"
	pathCancel    = "/v1/cancel"
	pathDelivered = "/v1/delivered"
	pathAsk       = "/v1/ask"
	pathAwait     = "/v1/await"
	pathAnswer    = "/v1/answer"
	pathProgress  = "/v1/progress"
	pathSetResult = "/v1/set-result"
	pathSession   = "/v1/session"
	pathTools     = "/v1/tools"
	pathPrune     = "/v1/prune"
)

// headerLeaving marks an error of a daemon that is about to end: another one
// can be asked.
const headerLeaving = "Jobd-Leaving"

// Bounds of bodies, in bytes.
const (
	maxBody       = 16 << 20
	maxResultBody = 32 << 20
	// maxReply is above what a result of maxResultBody makes in base64.
	maxReply = 64 << 20
)

// A route is one call as the server and the client know it.
type route struct {
	method string
	path   string
	// frozen: answered whatever protocol the client speaks.
	frozen bool
	// poll: it may wait for something to happen, and is ended when the daemon
	// leaves.
	poll bool
	// unbounded: it may take long without being a poll.
	unbounded bool
	// once: it is not sent again when its reply was lost.
	once  bool
	limit int64
	// serve decodes the body and calls the handler.
	serve func(ctx context.Context, h Handler, key string, body []byte) (any, error)
}

// routes are all calls, by path.
var routes = func() map[string]*route {
	table := map[string]*route{}
	for _, r := range []*route{
		{method: http.MethodGet, path: pathStatus, frozen: true, serve: func(ctx context.Context, h Handler, _ string, _ []byte) (any, error) {
			return h.Status(ctx)
		}},
		{path: pathStop, frozen: true, unbounded: true, once: true, serve: quiet(Handler.Stop)},
		{path: pathSubmit, serve: func(ctx context.Context, h Handler, key string, body []byte) (any, error) {
			if key == "" {
				return nil, &Error{Code: CodeInvalid, Message: "the header " + HeaderKey + " is missing",
					Hint: "send a value of your own that is new for each job and the same when you repeat the request"}
			}
			r, err := decode[SubmitRequest](body)
			if err != nil {
				return nil, err
			}
			return h.Submit(ctx, key, r)
		}},
		{path: pathList, serve: plain(Handler.List)},
		{path: pathGet, poll: true, serve: plain(Handler.Get)},
		{path: pathResult, poll: true, serve: plain(Handler.Result)},
		{path: pathOutput, poll: true, serve: plain(Handler.Output)},
		{path: pathCancel, serve: plain(Handler.Cancel)},
		{path: pathDelivered, serve: quiet(Handler.Delivered)},
		{path: pathAsk, poll: true, serve: plain(Handler.Ask)},
		{path: pathAwait, poll: true, serve: plain(Handler.Await)},
		{path: pathAnswer, serve: plain(Handler.Answer)},
		{path: pathProgress, serve: quiet(Handler.Progress)},
		{path: pathSetResult, limit: maxResultBody, serve: quiet(Handler.SetResult)},
		{path: pathSession, serve: plain(Handler.Session)},
		{path: pathTools, poll: true, serve: plain(Handler.Tools)},
		{path: pathPrune, unbounded: true, serve: plain(Handler.Prune)},
	} {
		if r.method == "" {
			r.method = http.MethodPost
		}
		if r.limit == 0 {
			r.limit = maxBody
		}
		table[r.path] = r
	}
	return table
}()

func plain[In, Out any](call func(Handler, context.Context, In) (Out, error)) func(context.Context, Handler, string, []byte) (any, error) {
	return func(ctx context.Context, h Handler, _ string, body []byte) (any, error) {
		in, err := decode[In](body)
		if err != nil {
			return nil, err
		}
		return call(h, ctx, in)
	}
}

func quiet[In any](call func(Handler, context.Context, In) error) func(context.Context, Handler, string, []byte) (any, error) {
	return plain(func(h Handler, ctx context.Context, in In) (Empty, error) {
		return Empty{}, call(h, ctx, in)
	})
}

// decode reads a request. Fields it does not know are passed over: they come
// from a newer client, and are optional. No body is an empty request.
func decode[In any](body []byte) (In, error) {
	var in In
	if len(bytes.TrimSpace(body)) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the body of the request is no valid JSON of its kind: %v", err)}
	}
	return in, nil
}

// waitOf returns how long a request may wait.
func waitOf(in any) time.Duration {
	var ms int64
	switch r := in.(type) {
	case GetRequest:
		ms = r.WaitMS
	case OutputRequest:
		ms = r.WaitMS
	case AskRequest:
		ms = r.WaitMS
	case AwaitRequest:
		ms = r.WaitMS
	case ToolsRequest:
		ms = r.WaitMS
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// waitLess returns a request that waits less, because it was sent before and
// that time has passed. A wait that is over becomes none.
func waitLess(in any, passed time.Duration) any {
	less := func(ms *int64) { *ms = max(*ms-passed.Milliseconds(), 0) }
	switch r := in.(type) {
	case GetRequest:
		less(&r.WaitMS)
		return r
	case OutputRequest:
		less(&r.WaitMS)
		return r
	case AskRequest:
		less(&r.WaitMS)
		return r
	case AwaitRequest:
		less(&r.WaitMS)
		return r
	case ToolsRequest:
		less(&r.WaitMS)
		return r
	}
	return in
}
