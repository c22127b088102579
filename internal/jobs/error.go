package jobs

import (
	"errors"
	"fmt"
)

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

// A DamagedError says that the store holds a job and cannot read it. It is of
// kind [ErrUnavailable]; other jobs are not affected, and
// [Store.RebuildJob] mends it.
type DamagedError struct {
	ID string
	// Place is where the damage lies.
	Place string
	// Err says what is wrong.
	Err error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the record of job %s in %s is damaged (%v); other jobs are not affected, and its output is still in its bundle", e.ID, e.Place, e.Err)
}

// Unwrap lets errors.Is see the kind and the cause.
func (e *DamagedError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }
