package jobs

import "context"

// A Runner starts and finds the processes of jobs. Each job has a bundle, a
// directory named by its id, which outlives the daemon.
type Runner interface {
	// Prepare lays out the bundle of a job that is about to be stored. environ
	// is the whole environment of the command as NAME=VALUE, and is on disk only
	// until the launch.
	Prepare(ctx context.Context, id string, spec Spec, environ []string) error
	// Discard removes a bundle and all that is in it. A bundle that is not
	// there is no error.
	Discard(ctx context.Context, id string) error

	// Start starts the shim of a prepared job and returns once the command
	// runs or could not be started. In the second case the error is an
	// [*Error] of kind [ErrInvalid] whose message says why. Any other error says
	// that no shim was started and nothing ran.
	// The process belongs to the shim, not to ctx or the caller.
	Start(ctx context.Context, id string) (Process, error)
	// Attach returns the process of a job whose shim is alive. Its error wraps
	// [ErrNotFound] if the shim is gone.
	Attach(ctx context.Context, id string) (Process, error)
	// Inspect reads what a job's bundle tells. It never guesses from process ids.
	Inspect(ctx context.Context, id string) (Remains, error)
	// Sweep ends what is left of a job whose shim is gone, and returns how many
	// processes it signalled. It returns when they are gone.
	Sweep(ctx context.Context, id string) (int, error)
	// Bundles lists the ids that have a bundle.
	Bundles(ctx context.Context) ([]string, error)
	// Spec reads back the spec of a bundle, for rebuilding a damaged store.
	Spec(ctx context.Context, id string) (Spec, error)
	// Created returns when a job was prepared.
	Created(ctx context.Context, id string) (Instant, error)

	// Output returns what is known of a job's output.
	Output(ctx context.Context, id string) (OutputSize, error)
	// ReadOutput returns a piece of the output that starts at offset or, where
	// that was dropped, at the next byte kept. limit bounds its size.
	ReadOutput(ctx context.Context, id string, offset int64, limit int) (Chunk, error)
	// TailOutput returns the last lines of the output, at most limit bytes.
	// lines 0 = as much as limit allows.
	TailOutput(ctx context.Context, id string, lines, limit int) (Chunk, error)
}

// A Process is a job's shim, and by it the job.
type Process interface {
	// PID is the process id of the command, 0 if it is not known.
	PID() int
	// Stop asks the shim to end the job for this cause. It returns when the
	// wish is durable and the shim signalled; the end comes by Wait. More than
	// once is no error.
	Stop(ctx context.Context, cause Cause) error
	// Wait returns when the shim is gone, with the exit record. The error wraps
	// [ErrNotFound] if there is none: the outcome cannot be known.
	// ctx ends the waiting only.
	Wait(ctx context.Context) (Exit, error)
}

// Remains are what a bundle tells of a job.
type Remains struct {
	// Held: the shim is alive, by the lock that the kernel holds for it.
	Held bool
	// Launched: the shim was about to run the command; it may have run.
	Launched bool
	// PID and Started are set when the command is known to have started.
	PID     int
	Started Instant
	// Exit is the shim's last word; nil = there is none.
	Exit *Exit
	// EnvIntact: the environment is there and whole.
	EnvIntact bool
	// StopAsked is the cause of a stop that was asked of the shim, "" = none.
	StopAsked Cause
}

// OutputSize is how much a job printed.
type OutputSize struct {
	Total   int64 // bytes written by the job
	Dropped int64 // of them, not kept
}

// A Chunk is a piece of output.
type Chunk struct {
	Offset int64 // of the first byte in Data
	Data   []byte
	Next   int64 // where to read on
	// Gap counts the dropped bytes between the offset asked for and Offset.
	Gap  int64
	Size OutputSize
}
