// Package ipc is the protocol between jobd's processes: frozen wire types, the
// client that dials (and starts) the daemon, and the server. It knows nothing
// of what a job means; package jobs and this one meet in one file of cmd/jobd.
//
// The transport is HTTP/1.1 with JSON on the Unix socket beside the database.
// Every request carries the header Jobd-Protocol with a protocol number, every
// reply the daemon's. GET /status and POST /stop are frozen for ever: any
// client can ask and stop any daemon.
//
// An old front end outlives a new daemon, so a field is never renamed, removed
// or given another meaning; new ones are optional. Golden files hold each
// message.
package ipc

import (
	"context"
	"encoding/json"
	"time"
)

// Protocol is the number of the newest protocol that this build speaks. A
// daemon serves every older one.
const Protocol = 1

// The headers of requests and replies.
const (
	HeaderProtocol = "Jobd-Protocol"
	HeaderVersion  = "Jobd-Version"
	// HeaderKey identifies a creating call across its retries.
	HeaderKey = "Idempotency-Key"
)

// Status is the frozen answer to GET /status: the daemon itself, not its jobs.
type Status struct {
	Protocol   int       `json:"protocol"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	Executable string    `json:"executable"`
	StateDir   string    `json:"state_dir"`
	LiveJobs   int       `json:"live_jobs"`
	OpenAsks   int       `json:"open_questions"`
}

// StopRequest is the frozen body of POST /stop. The reply is an empty object,
// written before the daemon ends; the socket is gone when it has.
type StopRequest struct {
	// KillJobs ends every job first.
	KillJobs bool `json:"kill_jobs,omitempty"`
	// HandOver: another daemon follows at once, so the file "stopped", which
	// keeps shims from starting one, is not written.
	HandOver bool `json:"hand_over,omitempty"`
}

// Job is a job as every client sees it. It is also what status --json prints.
type Job struct {
	ID            string     `json:"id"`
	Name          string     `json:"name"`
	Tool          string     `json:"tool"`
	State         string     `json:"state"`
	TaskStatus    string     `json:"task_status"`    // for a client that can show every open question
	StatusMessage string     `json:"status_message"` // one line, at most 200 characters, no control characters
	Reason        string     `json:"reason"`         // why a final state was reached, one line
	Project       string     `json:"project"`
	Session       string     `json:"session"`
	Cwd           string     `json:"cwd"`
	Command       []string   `json:"command"`
	Key           string     `json:"key,omitempty"`
	PID           int        `json:"pid,omitempty"`
	ExitCode      *int       `json:"exit_code"`
	Signal        *string    `json:"signal"` // "SIGTERM"
	CreatedAt     time.Time  `json:"created_at"`
	StartedAt     *time.Time `json:"started_at"`
	EndedAt       *time.Time `json:"ended_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
	DeliveredAt   *time.Time `json:"delivered_at"`
	DurationMS    int64      `json:"duration_ms"` // run time so far, or in all
	Progress      *Progress  `json:"progress"`
	Questions     []Question `json:"questions"` // the open ones, oldest first
	OutputBytes   int64      `json:"output_bytes"`
	OutputDropped int64      `json:"output_dropped"`

	Revision       int64  `json:"revision"`
	Final          bool   `json:"final"`
	Shell          bool   `json:"shell,omitempty"`
	Unfollowed     bool   `json:"unfollowed,omitempty"`
	AnswerBy       string `json:"answer_by,omitempty"` // "person" or "anyone"
	ResultKind     string `json:"result_kind,omitempty"`
	TTLMS          *int64 `json:"ttl_ms"` // null while live
	PollIntervalMS int64  `json:"poll_interval_ms"`
	AnswerWithinMS int64  `json:"answer_within_ms"`
	TimeoutMS      int64  `json:"timeout_ms"` // 0 = none
	QuestionCount  int    `json:"question_count,omitempty"`
}

// Progress is what a job last reported of itself.
type Progress struct {
	Done  float64   `json:"done"`
	Total float64   `json:"total,omitempty"`
	Text  string    `json:"text,omitempty"`
	At    time.Time `json:"at"`
}

// Question is a question to the person.
type Question struct {
	ID      string          `json:"id"`  // the asker's
	Key     string          `json:"key"` // what answers name; never used twice
	Mode    string          `json:"mode"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"`
	URL     string          `json:"url,omitempty"` // mode "url"
	Fault   string          `json:"fault,omitempty"`
	// Hidden: not shown to Claude Code, which takes 16 keys for one task.
	Hidden bool `json:"hidden,omitempty"`
	// Consented: the person agreed to open the URL; no client shows it again.
	Consented bool      `json:"consented,omitempty"`
	AskedAt   time.Time `json:"asked_at"`
	LeftMS    int64     `json:"left_ms"`
	OnTimeout string    `json:"on_timeout"`
	State     string    `json:"state"`
}

// The modes of a question.
const (
	ModeForm = "form"
	ModeURL  = "url"
)

// SubmitRequest is the body of POST /v1/jobs. The header Idempotency-Key
// carries the request key, which is required.
type SubmitRequest struct {
	Tool    string   `json:"tool"` // "run_job", "shell", or a job file's tool
	Name    string   `json:"name,omitempty"`
	Argv    []string `json:"argv,omitempty"`    // either this
	Command string   `json:"command,omitempty"` // or a shell text
	Dir     string   `json:"dir,omitempty"`     // absolute; default: the project
	Project string   `json:"project"`
	Session string   `json:"session"`
	// Client names the process of the client for as long as it lives. The
	// session-start hook knows it too, and so replaces a Session that is stale.
	Client string `json:"client,omitempty"`
	// Arguments of a job file's tool.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Answers to a job file's ask_first, like arguments.
	Answers json.RawMessage `json:"answers,omitempty"`

	// Environ is the caller's environment: NAME=VALUE, each ended by a NUL byte.
	Environ []byte `json:"environ"`
	// Env is the env argument, on top of it.
	Env       map[string]string `json:"env,omitempty"`
	Umask     uint32            `json:"umask"`
	NoFile    uint64            `json:"no_file,omitempty"`
	NoFileMax uint64            `json:"no_file_max,omitempty"`

	TimeoutMS         *int64 `json:"timeout_ms,omitempty"` // 0 = none
	QuestionTimeoutMS *int64 `json:"question_timeout_ms,omitempty"`
	OnTimeout         string `json:"on_timeout,omitempty"`
	AnswerBy          string `json:"answer_by,omitempty"`
	Unattended        string `json:"unattended,omitempty"`
	Group             string `json:"group,omitempty"`

	Key         string `json:"key,omitempty"` // the caller's idempotency key
	Shell       bool   `json:"shell,omitempty"`
	Interactive bool   `json:"interactive,omitempty"`
}

// SubmitReply answers a SubmitRequest.
type SubmitReply struct {
	Job Job `json:"job"`
	// Joined says that no job was created, and by which of its keys the call
	// found this one: "", "request", "key" or "session".
	Joined string `json:"joined,omitempty"`
}

// ListRequest selects jobs; empty conditions always hold.
type ListRequest struct {
	Project string   `json:"project,omitempty"`
	Session string   `json:"session,omitempty"`
	States  []string `json:"states,omitempty"`
	Key     string   `json:"key,omitempty"`
	Text    string   `json:"text,omitempty"`
	// Pending: live, waiting or not delivered.
	Pending bool `json:"pending,omitempty"`
	Limit   int  `json:"limit,omitempty"` // 0 = all
}

// ListReply holds jobs, newest first.
type ListReply struct {
	Jobs []Job `json:"jobs"`
}

// GetRequest asks for a job, at once or when it changes.
type GetRequest struct {
	ID string `json:"id"` // or a unique prefix
	// Exact: ID is a whole id, no prefix.
	Exact bool `json:"exact,omitempty"`
	// WaitMS > 0: wait so long at most, until Revision is passed and, with
	// Until, the job fits it.
	WaitMS   int64 `json:"wait_ms,omitempty"`
	Revision int64 `json:"revision,omitempty"`
	// Until: "final", "settled" (final, or a question is open), or "" (any
	// newer revision).
	Until string `json:"until,omitempty"`
}

// Result is a final job with all that its result is made of. For a live job it
// holds what there is so far.
type Result struct {
	Job Job `json:"job"`
	// Body is what the job set; its form is Job.ResultKind.
	Body []byte `json:"body,omitempty"`
	// Tail is the end of the output.
	Tail Output `json:"tail"`
	// Unanswered is the question that ended a job as unanswered.
	Unanswered *Question `json:"unanswered,omitempty"`
}

// OutputRequest asks for a piece of output.
type OutputRequest struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset,omitempty"`
	Limit  int    `json:"limit,omitempty"`      // bytes, default and at most 1 MiB
	Lines  int    `json:"tail_lines,omitempty"` // > 0: the last lines instead of Offset
	// WaitMS > 0: if there is nothing at Offset yet, wait so long at most.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Output is a piece of a job's output.
type Output struct {
	Offset  int64  `json:"offset"` // of the first byte of Data
	Data    []byte `json:"data"`
	Next    int64  `json:"next"`
	Gap     int64  `json:"gap,omitempty"` // bytes dropped before Offset
	Total   int64  `json:"total"`
	Dropped int64  `json:"dropped"`
	// End: the job is final and Next is the end.
	End bool `json:"end"`
}

// CancelRequest asks for the end of a job.
type CancelRequest struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"` // a sentence, shown as why
	// Headless: from a client that shows no forms; with unattended "wait" and a
	// question open the job goes on, unfollowed.
	Headless bool `json:"headless,omitempty"`
	// Unanswered: the person cannot be asked; a job with an open question ends
	// as unanswered.
	Unanswered bool `json:"unanswered,omitempty"`
	// Session, Client and Shell are who asks, as in DeliveredRequest: an owner
	// need not be told of the end again.
	Session string `json:"session,omitempty"`
	Client  string `json:"client,omitempty"`
	Shell   bool   `json:"shell,omitempty"`
}

// DeliveredRequest says that the final result reached a reader.
type DeliveredRequest struct {
	ID      string `json:"id"`
	Session string `json:"session,omitempty"` // the reader; must own the job
	Client  string `json:"client,omitempty"`  // as in SubmitRequest
	Shell   bool   `json:"shell,omitempty"`   // a shell: counts for jobs of shells
}

// AskRequest opens a question, or finds the one that was opened with its ID.
type AskRequest struct {
	Job       string          `json:"job"`
	ID        string          `json:"id"`            // made by the asker, random
	Key       string          `json:"key,omitempty"` // what answers name; "" = q1, q2, …
	Message   string          `json:"message"`
	Schema    json.RawMessage `json:"schema,omitempty"`
	Secret    bool            `json:"secret,omitempty"`
	TimeoutMS int64           `json:"timeout_ms,omitempty"` // 0 = the job's
	OnTimeout string          `json:"on_timeout,omitempty"`
	// WaitMS > 0: wait so long for the answer, as in AwaitRequest.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// AwaitRequest waits for a question's answer. The asker repeats it; a question
// for which nobody waits is withdrawn in time.
type AwaitRequest struct {
	Job    string `json:"job"`
	ID     string `json:"id"`
	WaitMS int64  `json:"wait_ms,omitempty"`
	// Withdraw: the asker is leaving.
	Withdraw bool `json:"withdraw,omitempty"`
	// Received: the asker has the answer. It must be said of a secret's answer,
	// which is given out but not recorded until then.
	Received bool `json:"received,omitempty"`
}

// Answer is the state of a question, for its asker.
type Answer struct {
	State   string          `json:"state"` // open, answered, declined, unanswered, withdrawn
	Content json.RawMessage `json:"content,omitempty"`
	By      string          `json:"by,omitempty"`
}

// AnswerRequest answers a question.
type AnswerRequest struct {
	Job string `json:"job"`
	// Question is a key, an asker's id, or "" for the only open question.
	Question string          `json:"question,omitempty"`
	Action   string          `json:"action"` // accept, decline, cancel
	Content  json.RawMessage `json:"content,omitempty"`
	By       string          `json:"by"` // form, shell, tool
	// Model: asked by a model on the person's behalf.
	Model bool `json:"model,omitempty"`
	// Secret: Content is a secret typed without echo, for the question whose
	// asker's id is Question. It is handed to the asker and never stored.
	Secret bool `json:"secret,omitempty"`
}

// AnswerReply says what became of an answer.
type AnswerReply struct {
	// Taken: it was delivered. Otherwise Fault says why not: it came late, or
	// the content breaks the schema and the question was reopened.
	Taken bool   `json:"taken"`
	Fault string `json:"fault,omitempty"`
}

// ProgressRequest reports a job's progress.
type ProgressRequest struct {
	Job   string  `json:"job"`
	Done  float64 `json:"done,omitempty"`
	Total float64 `json:"total,omitempty"`
	Text  string  `json:"text,omitempty"`
}

// SetResultRequest sets a job's result.
type SetResultRequest struct {
	Job  string `json:"job"`
	Kind string `json:"kind"` // text, json, mcp, error
	Body []byte `json:"body"`
}

// SessionRequest comes from the session-start hook.
type SessionRequest struct {
	// Client is the client's process, as in SubmitRequest; "" = not known.
	Client string `json:"client,omitempty"`
	// Current is what its conversation is called now.
	Current string `json:"current"`
	Project string `json:"project"`
	// Announce: reply with the jobs that a session is to be told of, and mark
	// them as announced.
	Announce bool `json:"announce,omitempty"`
}

// ToolsRequest asks for the tools of a project's and the user's job files.
type ToolsRequest struct {
	Project string `json:"project"`
	// Version is what the asker has; with WaitMS > 0 the reply waits for another.
	Version string `json:"version,omitempty"`
	WaitMS  int64  `json:"wait_ms,omitempty"`
}

// ToolsReply holds tools as MCP lists them, and what is wrong with files.
type ToolsReply struct {
	Version string `json:"version"`
	// RunJob: the tool run_job is offered.
	RunJob bool   `json:"run_job"`
	Tools  []Tool `json:"tools"`
	// Faults are sentences about files that could not be used.
	Faults []string `json:"faults,omitempty"`
}

// Tool is a job file's tool.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Task        string          `json:"task"`                // optional, required, never
	AskFirst    json.RawMessage `json:"ask_first,omitempty"` // a form's schema
	AnswerBy    string          `json:"answer_by,omitempty"` // "anyone": the model may answer its jobs
}

// PruneRequest removes final jobs.
type PruneRequest struct {
	// OlderThanMS: ended so long ago; 0 = the configured retention.
	OlderThanMS int64 `json:"older_than_ms,omitempty"`
	// Undelivered: also those that nobody has read.
	Undelivered bool `json:"undelivered,omitempty"`
	DryRun      bool `json:"dry_run,omitempty"`
}

// PruneReply names what was removed.
type PruneReply struct {
	IDs []string `json:"ids"`
}

// Empty is the reply of calls that return nothing.
type Empty struct{}

// A Handler serves the protocol. ctx ends with the request. An error should
// be an [*Error]; any other becomes an internal one and is logged.
type Handler interface {
	Status(ctx context.Context) (Status, error)
	Stop(ctx context.Context, r StopRequest) error

	Submit(ctx context.Context, key string, r SubmitRequest) (SubmitReply, error)
	List(ctx context.Context, r ListRequest) (ListReply, error)
	Get(ctx context.Context, r GetRequest) (Job, error)
	Result(ctx context.Context, r GetRequest) (Result, error)
	Output(ctx context.Context, r OutputRequest) (Output, error)
	Cancel(ctx context.Context, r CancelRequest) (Job, error)
	Delivered(ctx context.Context, r DeliveredRequest) error

	Ask(ctx context.Context, r AskRequest) (Answer, error)
	Await(ctx context.Context, r AwaitRequest) (Answer, error)
	Answer(ctx context.Context, r AnswerRequest) (AnswerReply, error)
	Progress(ctx context.Context, r ProgressRequest) error
	SetResult(ctx context.Context, r SetResultRequest) error

	Session(ctx context.Context, r SessionRequest) (ListReply, error)
	Tools(ctx context.Context, r ToolsRequest) (ToolsReply, error)
	Prune(ctx context.Context, r PruneRequest) (PruneReply, error)
}

// An Error crosses the socket as it is.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // what failed, with which value
	Hint    string `json:"hint,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + "; " + e.Hint
	}
	return e.Message
}

// A Code is the kind of an Error.
type Code string

// The codes. A client treats one it does not know as CodeInternal.
const (
	CodeNotFound    Code = "not_found"
	CodeExpired     Code = "expired"
	CodeAmbiguous   Code = "ambiguous"
	CodeInvalid     Code = "invalid"
	CodeConflict    Code = "conflict"
	CodeState       Code = "state"
	CodeRefused     Code = "refused"
	CodeUnavailable Code = "unavailable" // the daemon, its store or its socket cannot be had now
	CodeVersion     Code = "version"
	CodeInternal    Code = "internal"
	// CodeAnswers: the tool's ask_first fields are missing and no live job is
	// joined, so nothing was created. The client asks the person and submits
	// again with Answers; the message names the arguments to pass instead.
	CodeAnswers Code = "answers_needed"
)
