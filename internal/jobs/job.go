package jobs

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Spec says what to run and how. It is fixed when the job is accepted. The
// environment is not part of it: it goes to the bundle only.
type Spec struct {
	// Tool is the MCP tool that made the job, or "shell".
	Tool string `json:"tool"`
	// Name is for people; it need not be unique. Never empty.
	Name string `json:"name"`
	// Argv is the command, as whole arguments.
	Argv []string `json:"argv"`
	// Dir is the absolute working directory.
	Dir string `json:"dir"`
	// Project is the real path of the project it belongs to.
	Project string `json:"project"`
	// Session is the conversation that owns it.
	Session string `json:"session"`
	// Shell is true for a job started in a shell: it never joins, and reading
	// it in a shell delivers it.
	Shell bool `json:"shell,omitempty"`
	// Interactive is false for a front end whose Claude Code shows no forms
	// (an entry point other than "cli").
	Interactive bool `json:"interactive,omitempty"`

	// Args are the tool's arguments less the values of env, for showing and
	// comparing.
	Args json.RawMessage `json:"args,omitempty"`
	// EnvNames are the names in the env argument, sorted.
	EnvNames []string `json:"env_names,omitempty"`
	// Digest is a keyed hash of everything that makes two calls the same: tool,
	// arguments (the env argument's values included), directory, project.
	Digest string `json:"digest"`

	Umask       uint32 `json:"umask"`
	NoFile      uint64 `json:"no_file,omitempty"`      // soft limit of open files, 0 = leave
	NoFileMax   uint64 `json:"no_file_max,omitempty"`  // hard limit
	OutputLimit int64  `json:"output_limit,omitempty"` // bytes of output kept

	// Timeout bounds the run time; 0 = none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// QuestionTimeout is the deadline of a question that names none.
	QuestionTimeout time.Duration `json:"question_timeout,omitempty"`
	// OnTimeout is what happens when a question that does not say is not
	// answered.
	OnTimeout OnTimeout `json:"on_timeout,omitempty"`
	// Grace is the time between TERM and KILL.
	Grace time.Duration `json:"grace,omitempty"`
	// AnswerWithin is how long a call waits for the result before it is
	// answered with a handle.
	AnswerWithin time.Duration `json:"answer_within,omitempty"`
	// Unattended says what a headless cancel does while a question is open.
	Unattended Unattended `json:"unattended,omitempty"`
	// AnswerBy says who may answer.
	AnswerBy AnswerBy `json:"answer_by,omitempty"`
	// Group is the concurrency group; "" = none.
	Group string `json:"group,omitempty"`
	// RerunInterrupted: after a reboot a job that was interrupted is run again
	// as a new job.
	RerunInterrupted bool `json:"rerun_interrupted,omitempty"`
}

// OnTimeout is what an unanswered question does to its job.
type OnTimeout string

// The ways a question can end without an answer.
const (
	OnTimeoutFail     OnTimeout = "fail"     // the job ends as unanswered
	OnTimeoutDefault  OnTimeout = "default"  // the schema's defaults are the answer
	OnTimeoutContinue OnTimeout = "continue" // the asker is told there is none
)

// Unattended is what happens when a headless client cancels a job because of a
// question.
type Unattended string

// The two policies.
const (
	UnattendedCancel Unattended = "cancel" // the cancel is carried out
	UnattendedWait   Unattended = "wait"   // the job waits for another answer
)

// AnswerBy is who may answer a job's questions.
type AnswerBy string

// The two policies.
const (
	AnswerByPerson AnswerBy = "person"
	AnswerByAnyone AnswerBy = "anyone"
)

// Keys are what makes repeated calls one job. Each is "" where it does not
// apply. The store holds each unique.
type Keys struct {
	// Request identifies one call of a client, across its retries.
	Request string
	// Idempotency is the caller's own key, unique within the project.
	Idempotency string
	// Join is equal for identical calls of one session. It is given up when the
	// job is cancelled, delivered or unanswered.
	Join string
}

// A Cause is why a job is being ended.
type Cause string

// The causes of a stop.
const (
	CauseCancel     Cause = "cancel"     // a client's wish
	CauseTimeout    Cause = "timeout"    // run time used up
	CauseUnanswered Cause = "unanswered" // a question's deadline passed
)

// A Stop is the wish to end a job. The first one stays.
type Stop struct {
	Cause Cause
	// Reason is a sentence for the model and the person.
	Reason string
	At     Instant
	// ByOwner: whom the result is for asked for it.
	ByOwner bool
}

// An Exit is how a job's command ended, as its shim recorded it.
type Exit struct {
	// NotStarted says why the command never ran; "" = it ran.
	NotStarted string
	// Code is the exit code; -1 where a signal ended it or it never ran.
	Code int
	// Signal is the number of the signal that ended it; 0 = none.
	Signal int
	// SignalName is that signal's name on the machine it ran on ("SIGTERM").
	SignalName string
	// StopFirst is true where the shim had signalled the job, or read the stop
	// before the launch, before the command ended: only then does the stop's
	// cause decide.
	StopFirst bool
	// At is when the command was reaped.
	At Instant
}

// Progress is what the job last reported of itself.
type Progress struct {
	Done, Total float64 // Total 0 = unknown
	Text        string
	At          Instant
}

// A Job is one command and its life. Copies are independent but for the
// slices and pointers in them, which are not written to after creation.
type Job struct {
	Spec Spec
	Keys Keys

	// Seq is the row's number; newer jobs have greater ones. 0 = not stored.
	Seq int64
	// ID is 128 random bits in hexadecimal, the name of its bundle and of its
	// MCP task.
	ID string

	state    State
	revision int64
	applied  []Applied

	Created Instant
	// Launched is when the intent to launch was recorded (zero = never);
	// its BootID is the boot of the launch.
	Launched Instant
	// Started is when the command started; zero = it has not.
	Started Instant
	// Ended is when the final state was reached; zero = it is live.
	Ended Instant
	// Updated is the newest change that a client is told of: state, questions,
	// reported progress.
	Updated Instant

	// PID is the command's process id, for people; never used to signal.
	PID int
	// Exit is set when the command has ended and its shim recorded it.
	Exit *Exit
	// Stop is set when the job is to be ended.
	Stop *Stop
	// Reason says in a line why a final state was reached.
	Reason string

	// RunUsed is the run time used up in periods that are over; the present one
	// began at RunSince on the run clock of the boot in Launched.
	RunUsed  time.Duration
	RunSince time.Duration

	Progress *Progress
	// ResultKind is the kind of the result the job set, "" = none. The body is
	// in the store under [Store.Result].
	ResultKind ResultKind
	// OutputBytes and OutputDropped are final once the job has ended.
	OutputBytes, OutputDropped int64

	// Delivered is when the owning session was given the final result.
	Delivered Instant
	// Announced is when a session was told of it by the session-start hook.
	Announced Instant
	// Unfollowed: a headless client gave up on it while a question was open.
	Unfollowed bool

	// Questions are all of the job's questions, oldest first.
	Questions []Question
}

// An Applied event is one line of a job's history.
type Applied struct {
	Revision int64
	Event    Event
	State    State // the state after it
	At       Instant
	Note     string
}

// New returns a queued job that is not stored yet.
func New(id string, spec Spec, keys Keys, now Instant) Job {
	return Job{ID: id, Spec: spec, Keys: keys, state: Queued, revision: 1, Created: now, Updated: now,
		applied: []Applied{{Revision: 1, Event: "submit", State: Queued, At: now}}}
}

// Restore gives a job read from a store its state and revision. It is for
// implementations of [Store] only, and fails if the job breaks an invariant,
// which means that the row is damaged.
func Restore(j Job, state State, revision int64) (Job, error) {
	j.state, j.revision, j.applied = state, revision, nil
	switch {
	case !state.Valid():
		return Job{}, fmt.Errorf("job %s has the unknown state %q", j.ID, state)
	case revision < 1:
		return Job{}, fmt.Errorf("job %s has the revision %d", j.ID, revision)
	case state.Final() == j.Ended.IsZero():
		return Job{}, fmt.Errorf("job %s is %s, and its end is set: %t", j.ID, state, !j.Ended.IsZero())
	case state == Waiting && len(j.Open()) == 0:
		return Job{}, fmt.Errorf("job %s is waiting, and no question is open", j.ID)
	case state != Waiting && len(j.Open()) != 0:
		return Job{}, fmt.Errorf("job %s is %s, and a question is open", j.ID, state)
	case state == Stopping && j.Stop == nil:
		return Job{}, fmt.Errorf("job %s is stopping for no cause", j.ID)
	}
	return j, nil
}

// State returns the job's state.
func (j *Job) State() State { return j.state }

// Revision counts the changes of the job, from 1. A waiter that has seen
// revision n waits for a greater one.
func (j *Job) Revision() int64 { return j.revision }

// Applied returns the events applied since the job was created or read; a
// store appends them to the job's history.
func (j *Job) Applied() []Applied { return j.applied }

// Open returns the questions that are open.
func (j *Job) Open() []Question {
	var open []Question
	for _, q := range j.Questions {
		if q.State == QuestionOpen {
			open = append(open, q)
		}
	}
	return open
}

// Apply moves the job by event e at the instant now, with a note for its
// history. It sets the data that belongs to the move: times, run time, open
// questions that end with it, the join key. It returns a [*TransitionError]
// and changes nothing if e cannot happen now.
func (j *Job) Apply(e Event, now Instant, note string) error {
	next, err := Next(j.state, e)
	if err != nil {
		return err
	}
	from := j.state
	if from == Running && next != Running {
		j.RunUsed += max(now.Run-j.RunSince, 0)
	}
	if next == Running && from != Running {
		j.RunSince = now.Run
	}
	switch e {
	case EventLaunch:
		j.Launched = now
	case EventRequeue:
		j.Launched = Instant{}
	case EventStarted:
		j.Started = now
	}
	if next != Waiting {
		j.withdraw(now)
	}
	if next.Final() {
		j.Ended = now
	}
	if next == Cancelled && j.Stop != nil && j.Stop.ByOwner {
		j.Delivered = now
	}
	if next == Cancelled || next == Unanswered || (next == Stopping && j.Stop != nil && j.Stop.Cause != CauseTimeout) {
		j.Keys.Join = ""
	}
	j.state = next
	j.touch(now)
	j.applied = append(j.applied, Applied{Revision: j.revision, Event: e, State: next, At: now, Note: note})
	return nil
}

// touch counts a change that clients are told of.
func (j *Job) touch(now Instant) {
	j.revision++
	j.Updated = now
}

// mark counts a change that clients are not told of by lastUpdatedAt.
func (j *Job) mark() { j.revision++ }

// RunTime returns how long the command has run until now, without the time in
// which questions were open or the machine slept.
func (j *Job) RunTime(now Instant) time.Duration {
	if j.state == Running {
		return j.RunUsed + max(now.Run-j.RunSince, 0)
	}
	return j.RunUsed
}
