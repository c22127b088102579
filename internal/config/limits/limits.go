// Package limits reads config.yaml: the limits and habits that a user sets for
// all jobs. It is apart from package config, so that only the daemon links the
// YAML parser.
package limits

import (
	"runtime"
	"time"
)

// Limits are what config.yaml sets. The zero value is of no use: start from
// [Default] or [Load].
type Limits struct {
	// Timeout bounds a job's run time where the job names none; 0 = none.
	Timeout time.Duration
	// QuestionTimeout is the deadline of a question that names none, above 0.
	QuestionTimeout time.Duration
	// AnswerWithin is how long a call waits for a result before it is answered
	// with a handle; 0 = it never waits. At most 30 s.
	AnswerWithin time.Duration
	// MaxRunning is how many jobs run at once, at least 1.
	MaxRunning int
	// Retention is how long a final job is kept, above 0.
	Retention time.Duration
	// OutputLimit is how many bytes of a job's output are kept, at least 64 KiB.
	OutputLimit int64
	// Notify is the command that tells the person of a question, as whole
	// arguments; nil = none.
	Notify []string
	// Unattended is what a headless client's cancel does while a question is
	// open: "cancel" or "wait".
	Unattended string
	// RunJob is whether the tool run_job is offered.
	RunJob bool
}

// Default returns the limits that hold without a config.yaml.
func Default() Limits {
	return Limits{
		Timeout:         24 * time.Hour,
		QuestionTimeout: time.Hour,
		AnswerWithin:    time.Second,
		MaxRunning:      max(8, 4*runtime.NumCPU()),
		Retention:       30 * 24 * time.Hour,
		OutputLimit:     64 << 20,
		Unattended:      "cancel",
		RunJob:          true,
	}
}
