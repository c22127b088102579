package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// The exit codes of every subcommand. A job's own exit code, 0 to 255, and 128
// plus the number of the signal that ended it, are passed on as they are by
// "run --wait" and "wait"; the codes above 120 are those that timeout(1),
// env(1) and shells use for the same.
const (
	exitOK    = 0
	exitError = 1 // the command could not do what it was asked for
	exitUsage = 2 // it was asked in a way it does not understand

	exitRunning = 3 // daemon: another one runs

	exitDeclined   = 10 // ask: the person said no
	exitLive       = 11 // the job goes on: the wait was bounded or interrupted
	exitUnanswered = 12 // nobody answered a question before its deadline
	exitErrored    = 13 // the job raised a protocol error
	exitLost       = 14 // the job's outcome cannot be known

	exitTimedOut    = 124 // the job used up its run time
	exitWaitFailed  = 125 // "run --wait" and "wait" failed, not the job
	exitNotRunnable = 126 // the command could not be started
	exitNotFound    = 127 // the command does not exist
	exitSignal      = 128 // plus the signal's number
	exitCancelled   = 130 // the job was cancelled
)

// exitHelp is the one place that documents the codes to users.
const exitHelp = `Every command ends with one of these codes.

  0    done; for run --wait and wait: the job succeeded
  1    it could not be done; the reason is on standard error
  2    wrong usage: an unknown command, flag or value

jobd daemon:
  3    another one runs already

jobd ask, inside a job:
  0    answered; the answer is on standard output
  10   declined
  12   nobody answered in time, and the job goes on (--on-timeout continue)
  1    anything else

jobd run --wait and jobd wait end with the job's own exit code, 0 to 255, and
  128+N  a signal ended the job: 137 = SIGKILL, 143 = SIGTERM
  11     the job goes on: wait --timeout is over, or Ctrl-C left it running
  12     a question of the job was not answered in time, so it was ended
  13     the job raised a protocol error
  14     the outcome of the job cannot be known
  124    the job used up its run time
  125    jobd itself failed; the job may go on
  126    the command could not be started
  127    the command was not found
  130    the job was cancelled

A job can itself end with any of these codes. "jobd status ID --json" tells them
apart: its state, exit_code and signal are exact.

Examples:
  jobd run --wait -- make test; echo "it ended with $?"
  jobd wait --timeout 10m 3f2a; [ $? = 11 ] && echo "still running"`

// An exitCodeError ends the program with a code. Its error may be nil: then
// nothing is printed.
type exitCodeError struct {
	code int
	err  error
}

// Error implements error.
func (e *exitCodeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error that is printed, if any.
func (e *exitCodeError) Unwrap() error { return e.err }

// withCode makes err end the program with code. A nil err ends it silently; a
// nil err with code 0 is no error at all.
func withCode(code int, err error) error {
	if code == exitOK && err == nil {
		return nil
	}
	return &exitCodeError{code: code, err: err}
}

// usagef returns an error about the way a command was called. cmd may be nil.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if cmd != nil {
		err = fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
	}
	return &exitCodeError{code: exitUsage, err: err}
}

// report prints err to w as "jobd: sentence; hint" and returns the exit code.
// The text of an error may stem from a job, so it passes the filter.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitError
	var coded *exitCodeError
	if errors.As(err, &coded) {
		code = coded.code
		if coded.err == nil {
			return code
		}
	}
	if errors.Is(err, syscall.EPIPE) {
		// Whoever read our output has had enough of it.
		return exitSignal + int(syscall.SIGPIPE)
	}
	for i, line := range strings.Split(strings.TrimRight(err.Error(), "\n"), "\n") {
		if i == 0 {
			line = "jobd: " + line
		}
		fmt.Fprintln(w, safeLine(line))
	}
	return code
}

// waitFailed marks an error of jobd itself, so that it is not taken for the
// end of the job that was waited for.
func waitFailed(err error) error {
	var coded *exitCodeError
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return withCode(exitWaitFailed, err)
}

// exitCodeOf returns the code that "wait" ends with for a job.
func exitCodeOf(job ipc.Job) int {
	switch job.State {
	case "succeeded":
		return exitOK
	case "timed_out":
		return exitTimedOut
	case "unanswered":
		return exitUnanswered
	case "cancelled":
		return exitCancelled
	case "errored":
		return exitErrored
	case "lost":
		return exitLost
	case "failed":
		return failedCode(job)
	}
	return exitLive
}

func failedCode(job ipc.Job) int {
	switch {
	case job.Signal != nil:
		if n := signalNumber(*job.Signal); n > 0 {
			return exitSignal + n
		}
		return exitError
	case job.ExitCode != nil && *job.ExitCode > 0:
		return *job.ExitCode
	case strings.Contains(job.Reason, "not found") || strings.Contains(job.Reason, "no such file"):
		return exitNotFound
	case job.ExitCode == nil:
		return exitNotRunnable
	}
	return exitError
}
