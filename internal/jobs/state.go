package jobs

import "fmt"

// A State is where a job is in its life. docs/states.md is generated from the
// table below.
type State string

// The live states.
const (
	// Queued: accepted and durable; nothing has been started.
	Queued State = "queued"
	// Starting: the intent to launch is recorded; the command may run already.
	Starting State = "starting"
	// Running: the command runs, and no question is open.
	Running State = "running"
	// Waiting: the command runs, and at least one question is open.
	Waiting State = "waiting"
	// Stopping: the job is being ended; it stays here until its last process
	// is gone.
	Stopping State = "stopping"
)

// The final states. A job in one of them never changes its state again.
const (
	// Succeeded: the command ended with exit code 0.
	Succeeded State = "succeeded"
	// Failed: another exit code, a signal, or it could not be started.
	Failed State = "failed"
	// TimedOut: it was ended because its run time was used up.
	TimedOut State = "timed_out"
	// Unanswered: it was ended because a question's deadline passed.
	Unanswered State = "unanswered"
	// Cancelled: it was ended at a client's wish.
	Cancelled State = "cancelled"
	// Errored: the job itself raised a protocol error.
	Errored State = "errored"
	// Lost: the outcome cannot be known.
	Lost State = "lost"
)

// States lists every state, live ones first, in the order of a life.
func States() []State {
	return []State{Queued, Starting, Running, Waiting, Stopping,
		Succeeded, Failed, TimedOut, Unanswered, Cancelled, Errored, Lost}
}

// Final reports whether a job in state s has ended.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, TimedOut, Unanswered, Cancelled, Errored, Lost:
		return true
	case Queued, Starting, Running, Waiting, Stopping:
		return false
	}
	return false
}

// Valid reports whether s is a state at all.
func (s State) Valid() bool {
	switch s {
	case Queued, Starting, Running, Waiting, Stopping,
		Succeeded, Failed, TimedOut, Unanswered, Cancelled, Errored, Lost:
		return true
	}
	return false
}

// An Event is something that happened to a job, or was decided about it.
type Event string

// The events.
const (
	// EventLaunch: the supervisor is about to start the job's shim.
	EventLaunch Event = "launch"
	// EventRequeue: recovery found that a launch never began.
	EventRequeue Event = "requeue"
	// EventStarted: the command runs.
	EventStarted Event = "started"
	// EventNotStarted: the command could not be started; nothing ran.
	EventNotStarted Event = "not_started"
	// EventAsked: a question was opened.
	EventAsked Event = "asked"
	// EventClosed: a question was closed, and another one is still open.
	EventClosed Event = "closed"
	// EventResumed: the last open question was closed.
	EventResumed Event = "resumed"
	// EventStop: the job is to be ended, for the cause in its Stop field.
	EventStop Event = "stop"
	// EventSucceeded: the command ended by itself with exit code 0.
	EventSucceeded Event = "succeeded"
	// EventFailed: the command ended by itself otherwise.
	EventFailed Event = "failed"
	// EventErrored: the command ended after it had raised a protocol error.
	EventErrored Event = "errored"
	// EventTimedOut: the stop for the run timeout is complete.
	EventTimedOut Event = "timed_out"
	// EventUnanswered: the stop for an unanswered question is complete.
	EventUnanswered Event = "unanswered"
	// EventCancelled: the stop at a client's wish is complete.
	EventCancelled Event = "cancelled"
	// EventLost: the shim is gone and left no exit record.
	EventLost Event = "lost"
)

// Events lists every event.
func Events() []Event {
	return []Event{EventLaunch, EventRequeue, EventStarted, EventNotStarted, EventAsked, EventClosed, EventResumed,
		EventStop, EventSucceeded, EventFailed, EventErrored, EventTimedOut, EventUnanswered, EventCancelled, EventLost}
}

// table is the state machine: what is not in it cannot happen. Final states
// have no row, so they never change.
var table = map[State]map[Event]State{
	Queued: {
		EventLaunch:     Starting,
		EventNotStarted: Failed,
		EventCancelled:  Cancelled,
	},
	Starting: {
		EventRequeue:    Queued,
		EventStarted:    Running,
		EventNotStarted: Failed,
		EventStop:       Stopping,
		EventLost:       Lost,
	},
	Running: {
		EventAsked:     Waiting,
		EventStop:      Stopping,
		EventSucceeded: Succeeded,
		EventFailed:    Failed,
		EventErrored:   Errored,
		EventLost:      Lost,
	},
	Waiting: {
		EventAsked:     Waiting,
		EventClosed:    Waiting,
		EventResumed:   Running,
		EventStop:      Stopping,
		EventSucceeded: Succeeded,
		EventFailed:    Failed,
		EventErrored:   Errored,
		EventLost:      Lost,
	},
	Stopping: {
		EventStarted:    Stopping, // the stop came while the launch was under way
		EventNotStarted: Failed,
		EventSucceeded:  Succeeded, // it ended by itself before the signal
		EventFailed:     Failed,
		EventErrored:    Errored,
		EventTimedOut:   TimedOut,
		EventUnanswered: Unanswered,
		EventCancelled:  Cancelled,
		EventLost:       Lost,
	},
}

// A TransitionError says that an event cannot happen in a state.
type TransitionError struct {
	State State
	Event Event
}

// Error implements error.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("event %q cannot happen to a job that is %s", e.Event, e.State)
}

// Next returns the state that follows s at event e. An event that cannot
// happen in s gives a [*TransitionError]. It is the only place that decides a
// state.
func Next(s State, e Event) (State, error) {
	next, ok := table[s][e]
	if !ok {
		return s, &TransitionError{State: s, Event: e}
	}
	return next, nil
}
