package jobs

import "context"

// A Store keeps jobs durably. Every method is one transaction; one that writes
// returns after the commit is on disk. Errors of a store that cannot work now
// (full, locked, read-only, damaged) wrap [ErrUnavailable] and change nothing.
// A store never reads a clock.
type Store interface {
	// CreateJob stores a new job. In the same transaction it first looks up
	// who holds j's keys and asks decide: a non-nil job is returned instead of
	// a new one, with created false; an error is returned as it is. decide may
	// be called again if the transaction is repeated, and must not call the
	// store. When a new job is stored, the holder of its join key loses it.
	CreateJob(ctx context.Context, j Job, decide func(Holders) (*Job, error)) (stored Job, created bool, err error)

	// UpdateJob reads a job with its questions, lets change decide, and stores
	// the outcome and its applied events. If change returns an error nothing is
	// stored and the error is returned as it is; [ErrUnchanged] means that there
	// is nothing to store, and gives the job and no error. change may be called
	// again if the transaction is repeated, and must not call the store.
	UpdateJob(ctx context.Context, id string, change func(*Job) error) (Job, error)

	// Job returns the job with this id, or an error of kind [ErrNotFound] or
	// [ErrExpired].
	Job(ctx context.Context, id string) (Job, error)
	// FindJob returns the job whose id starts with prefix, or an error of kind
	// [ErrNotFound], [ErrExpired] or [ErrAmbiguous].
	FindJob(ctx context.Context, prefix string) (Job, error)
	// Jobs returns the jobs that fit, newest first.
	Jobs(ctx context.Context, f Filter) ([]Job, error)
	// History returns the events applied to a job, oldest first.
	History(ctx context.Context, id string) ([]Applied, error)

	// SetResult stores the result that a job set and, in the same transaction,
	// does what UpdateJob does.
	SetResult(ctx context.Context, id string, body []byte, change func(*Job) error) (Job, error)
	// Result returns the body that SetResult stored last, nil if none.
	Result(ctx context.Context, id string) ([]byte, error)

	// RebuildJob replaces the record of a job that other methods cannot read,
	// which they tell by a [*DamagedError]. What is there is set aside first, for
	// a person to look at. rebuild is given what can still be read of it, as a
	// job without state, revision and questions whose unreadable fields are zero,
	// and returns the job to store under the same id; it may be called again, and
	// must not call the store. The history begins anew with one event at the
	// instant now, at a revision beyond every earlier one; a result stays. rebuilt
	// is false where the record can be read, and nothing is changed then.
	RebuildJob(ctx context.Context, id string, now Instant, rebuild func(salvaged Job) (Job, error)) (j Job, rebuilt bool, err error)

	// DeleteJobs removes final jobs, their questions, history and results, and
	// keeps their ids as expired ones. Live jobs and unknown ids are passed over.
	// It returns the ids that it removed.
	DeleteJobs(ctx context.Context, ids []string, now Instant) ([]string, error)

	// Setting returns a value that lives as long as the database, "" if unset.
	Setting(ctx context.Context, name string) (string, error)
	// SetSetting stores a value under a name. With onlyNew it leaves a value
	// that is there. It returns the value that is in force.
	SetSetting(ctx context.Context, name, value string, onlyNew bool) (string, error)
}

// ErrUnchanged is what a change function returns when there is nothing to
// store.
var ErrUnchanged = &Error{Kind: ErrState, Message: "nothing changed"}

// Holders are the jobs that hold the keys of a new one; nil = nobody.
type Holders struct {
	Request, Idempotency, Join *Job
}

// A Filter selects jobs. Every condition given must hold.
type Filter struct {
	Project  string  // real path
	Session  string  // owner
	States   []State // any of them
	Key      string  // idempotency key
	Text     string  // part of name, tool, command or directory, case-insensitive
	Live     bool    // not final
	Pending  bool    // live, or final and not delivered
	Unmarked bool    // not announced
	Before   int64   // Seq less than this; 0 = all
	Limit    int     // at most so many; 0 = all
}
