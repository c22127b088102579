package mcptasks

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ExtensionID is the name under which clients and servers declare the
// extension.
const ExtensionID = "io.modelcontextprotocol/tasks"

// A Status is where a task is in its life, as clients know it.
type Status string

// The statuses of SEP-2663. The last three are final: a task never leaves them.
const (
	StatusWorking       Status = "working"
	StatusInputRequired Status = "input_required"
	StatusCompleted     Status = "completed" // Result is set, also where the tool failed (isError)
	StatusCancelled     Status = "cancelled"
	StatusFailed        Status = "failed" // Error is set: a protocol error, not a tool's
)

// Final reports whether a task of this status never changes again.
func (s Status) Final() bool {
	return s == StatusCompleted || s == StatusCancelled || s == StatusFailed
}

// A Task is a snapshot of one task, as one client may see it.
type Task struct {
	// ID is 1 to 1024 printable ASCII characters without blanks.
	ID string
	// Status decides which of InputRequests, Result and Error is sent.
	Status Status
	// StatusMessage is one line for people; "" = left out.
	StatusMessage string
	// CreatedAt and LastUpdatedAt are sent in UTC, to the millisecond.
	CreatedAt, LastUpdatedAt time.Time
	// TTL counts from CreatedAt: how long the task is kept. nil = not limited,
	// which is sent as null.
	TTL *time.Duration
	// PollInterval is how often a client should ask; rounded up to milliseconds.
	// 0 = left out.
	PollInterval time.Duration

	// InputRequests are the open questions, by key, where Status is
	// input_required. A key must never be used twice in the life of a task:
	// clients show each key once.
	InputRequests InputRequests
	// Result is set where Status is completed. It is sent with
	// resultType "complete". It is not changed after it was given here.
	Result *mcp.CallToolResult
	// Error is set where Status is failed.
	Error *jsonrpc.Error
	// Meta is sent as _meta; nil = left out.
	Meta map[string]any
}

// Errors that a [Store] returns for an id it cannot serve. Both reach the
// client as -32602.
var (
	// ErrUnknownTask: there is no such task for this client. A store must not
	// tell a task of somebody else from one that does not exist.
	ErrUnknownTask = errors.New("there is no such task")
	// ErrExpiredTask: there was such a task; it was kept for its ttl and is gone.
	ErrExpiredTask = errors.New("the task has expired: its ttl is over and its result was removed")
)

// A Store has the tasks. Its methods are called from many goroutines at once.
//
// Each is told which [Client] asks, and decides by it what that client may see:
// the store should report input_required only to a client that can be asked
// every open question ([Client.Allows]), and working, with a StatusMessage that
// says where to answer, to any other. As a safeguard the extension removes
// questions that the client does not allow, and reports working if none is
// left.
//
// Errors: [ErrUnknownTask], [ErrExpiredTask] or errors that wrap them;
// a [*jsonrpc.Error] is sent as it is; anything else becomes -32603 with its
// text.
type Store interface {
	// Get returns the present snapshot of a task.
	Get(ctx context.Context, c *Client, id string) (Task, error)
	// Update hands over answers by key. Keys that are not open are ignored, as
	// is an answer that comes too late: that is no error. An answer that does
	// not fit its question is the store's to deal with; the reply says nothing
	// of it. The change need not be visible when Update returns.
	Update(ctx context.Context, c *Client, id string, answers InputResponses) error
	// Cancel asks for the task's end. A final task stays as it is: that is no
	// error. The task need not have ended when Cancel returns.
	Cancel(ctx context.Context, c *Client, id string) error
	// Watch calls changed with the present snapshot and then with a new one after
	// each change that clients are told of, in order; it may leave out
	// snapshots that were overtaken. How often is the store's to bound (at most
	// once a second beside changes of status is the extension's advice). It
	// returns nil once a final snapshot was passed, ctx's error when ctx ends,
	// and changed's error when that fails. Before the first call it returns
	// [ErrUnknownTask] for a task that this client may not see.
	Watch(ctx context.Context, c *Client, id string, changed func(Task) error) error
}

// A Lister is a [Store] that can list tasks. tasks/list exists only in the
// experimental 2025-11-25 tasks and is offered only where the store is one.
type Lister interface {
	Store
	// List returns a page of the tasks that the client's own session made,
	// newest first, and the cursor of the next page ("" = this was the last).
	// They may lack Result and Error; but a completed task is listed as failed,
	// as that revision wants it, only where its Result is there and has IsError.
	// cursor is "" for the first page; for one that it did not give out the
	// store returns a [*jsonrpc.Error] with -32602.
	List(ctx context.Context, c *Client, cursor string) (tasks []Task, next string, err error)
}
