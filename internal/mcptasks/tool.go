package mcptasks

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TaskSupport says how a tool's calls may be answered.
type TaskSupport int

// The kinds of support.
const (
	// TaskOptional: a handle for clients that take one, a result for others.
	TaskOptional TaskSupport = iota
	// TaskRequired: a call that may not be answered with a handle is refused
	// before the handler is called, with -32021 (-32601 where the client could
	// have sent the "task" parameter of 2025-11-25).
	TaskRequired
	// TaskForbidden: always a result.
	TaskForbidden
)

// A Call is one tools/call, or, after [Ask], the next round of one.
type Call struct {
	Client *Client
	// Tool is the tool's name, Arguments the JSON object sent, or nil.
	// They are not checked against the tool's schema.
	Tool      string
	Arguments json.RawMessage
	// Round is 0 in the first call and grows by one with each [Ask].
	Round int
	// Answers are the answers to the questions of the round before, without
	// keys that were not asked; nil in round 0. A client may leave some out: then
	// the handler should ask for them again if it needs them.
	Answers InputResponses
	// State is what the round before passed to [Ask]; "" in round 0.
	State string
}

// A Handler answers calls of one tool. An error is sent as a protocol error:
// a [*jsonrpc.Error] as it is, anything else as -32603 with its text. What the
// model should read and act on is a result with IsError instead.
//
// ctx ends when the client cancels the request or the connection closes; its
// cause is a [CancelledError] where the client said why.
type Handler func(ctx context.Context, call *Call) (Answer, error)

// An Answer is what a [Handler] answers: made by [Result], [Handle] or [Ask].
type Answer interface{ answer() }

// Result answers a call with a tool's result.
func Result(r *mcp.CallToolResult) Answer { return resultAnswer{r} }

// Handle answers a call with a handle to a task that the [Store] knows already.
// note, if not "", is for the model to read at once
// (_meta["com.anthropic/agent-task"].modelImmediateResponse).
//
// It is a bug, sent as -32603, to answer so where [Client.Tasks] is false.
func Handle(t Task, note string) Answer { return handleAnswer{t, note} }

// Ask answers a call with questions; the handler is called again when they are
// answered, with state, which never leaves the server.
//
// A client of the 2026-07-28 revision gets an input_required result and sends
// the call again with the answers and a token that is good once, for this tool
// and these arguments (see [Tokens]). An older one is asked by requests of the
// server, one question after the other in the order of their keys, and the
// handler is called again within the same request, as often as it asks.
//
// It is a bug, sent as -32603, to ask nothing or what [Client.Allows] denies.
func Ask(questions InputRequests, state string) Answer { return askAnswer{questions, state} }

type (
	resultAnswer struct{ result *mcp.CallToolResult }
	handleAnswer struct {
		task Task
		note string
	}
	askAnswer struct {
		questions InputRequests
		state     string
	}
)

func (resultAnswer) answer() {}
func (handleAnswer) answer() {}
func (askAnswer) answer()    {}

// A CancelledError is the cause of a context whose request the client cancelled.
type CancelledError struct {
	// Reason is the client's own word, such as "user-cancel"; may be "".
	Reason string
}

// Error implements error.
func (e *CancelledError) Error() string {
	if e.Reason == "" {
		return "the client cancelled the request"
	}
	return "the client cancelled the request: " + e.Reason
}

// Is makes it a context.Canceled for errors.Is.
func (e *CancelledError) Is(target error) bool { return target == context.Canceled }
