package jobs

import (
	"encoding/json"
	"fmt"
	"time"
)

// settle applies how the command ended. raised is the message of a protocol
// error that the job had raised, "" = none.
func (j *Job) settle(exit Exit, raised string, now Instant) error {
	// A boot's clocks cannot be compared with another's: an end read after a
	// reboot is told by its own instant.
	at := exit.At
	if at.IsZero() {
		at = now
	}
	if j.state == Starting && exit.NotStarted == "" {
		if err := j.Apply(EventStarted, at, "found after it had ended"); err != nil {
			return err
		}
	}
	j.Exit = &exit
	event, reason := outcome(j.Stop, exit, raised)
	j.Reason = reason
	return j.Apply(event, at, reason)
}

// outcome decides what the end of a command means. The stop's cause decides
// only where the shim had signalled before the command ended; else the job's
// own end wins.
func outcome(stop *Stop, exit Exit, raised string) (Event, string) {
	if exit.StopFirst && stop != nil {
		switch stop.Cause {
		case CauseCancel:
			return EventCancelled, stop.Reason
		case CauseTimeout:
			return EventTimedOut, stop.Reason
		case CauseUnanswered:
			return EventUnanswered, stop.Reason
		}
	}
	switch {
	case exit.NotStarted != "":
		return EventNotStarted, "could not be started: " + exit.NotStarted
	case raised != "":
		return EventErrored, "it raised an error: " + raised
	case exit.Signal != 0:
		return EventFailed, fmt.Sprintf("killed by %s", signalName(exit))
	case exit.Code != 0:
		return EventFailed, fmt.Sprintf("exit code %d", exit.Code)
	}
	return EventSucceeded, "exit code 0"
}

func signalName(e Exit) string {
	if e.SignalName != "" {
		return e.SignalName
	}
	return fmt.Sprintf("signal %d", e.Signal)
}

// A RaisedError is the protocol error that a job raised.
type RaisedError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func raisedMessage(body []byte) string {
	var r RaisedError
	if json.Unmarshal(body, &r) != nil || r.Message == "" {
		return "a protocol error"
	}
	return clip(r.Message, 500)
}

// ago puts a duration in words for a reason.
func ago(d time.Duration) string { return d.Round(time.Second).String() }
