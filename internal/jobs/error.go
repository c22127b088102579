package jobs

import "errors"

// The kinds of error that callers tell apart. Everything else is internal.
var (
	// ErrNotFound: there is no such job or question.
	ErrNotFound = errors.New("not found")
	// ErrExpired: there was such a job; its retention is over.
	ErrExpired = errors.New("expired")
	// ErrAmbiguous: an id's prefix fits more than one job.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid: the request can never be carried out as it is.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: an idempotency key was used with other arguments.
	ErrConflict = errors.New("conflict")
	// ErrState: the job is not in a state that allows it.
	ErrState = errors.New("not possible now")
	// ErrRefused: the caller may not do this.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: the store or the machine cannot do it now; nothing was
	// changed.
	ErrUnavailable = errors.New("unavailable")
)

// An Error is a sentence for the person who reads it, with the kind that
// callers match by errors.Is.
type Error struct {
	Kind    error  // one of the Err values above
	Message string // what failed, with which value, what to do
	Err     error  // the cause, may be nil
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap lets errors.Is see the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
