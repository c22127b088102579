package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// newWaitCommand returns "jobd wait".
func newWaitCommand(c *cli) *cobra.Command {
	var timeout span
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait for a job, and end with its exit code",
		Long: `Waits until a job has ended and ends with its exit code; 'jobd help exit-codes'
lists those of jobs that ended otherwise. It outlives a restart of the daemon. A
question that the job asks meanwhile is told on standard error.`,
		Example: `  jobd wait 3f2a9c1d && echo done
  jobd wait --timeout 10m 3f2a; [ $? = 11 ] && echo "still running"
  id=$(jobd run -- make test); jobd wait "$id"; jobd result "$id"`,
		Args:              oneID,
		ValidArgsFunction: completeJobs(c, live),
		RunE: func(cmd *cobra.Command, args []string) error {
			return waitFailed(waitJob(cmd.Context(), c, args[0], timeout, asJSON))
		},
	}
	cmd.Flags().Var(&timeout, "timeout", "wait no longer than this, then end with code 11; 0 = wait for ever")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the job as JSON when it has ended")
	return cmd
}

func waitJob(ctx context.Context, c *cli, id string, timeout span, asJSON bool) error {
	// Before anything is asked: a signal that comes early ends the wait as a late
	// one does.
	waiting, stop := interrupted(ctx)
	defer stop()
	d, err := c.reach(waiting)
	if err != nil {
		return err
	}
	job, err := find(waiting, d, id)
	if err != nil {
		return err
	}
	if timeout.Duration > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, timeout.Duration)
		defer cancel()
	}
	tell := reporter(c.err, screenOfErr(c))
	tell(job)
	job, err = c.awaitFinal(waiting, d, job, tell)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		why := ""
		if errors.Is(waiting.Err(), context.DeadlineExceeded) {
			why = " after " + longSpan(timeout.Duration)
		}
		fmt.Fprintf(c.err, "jobd: job %s is still %s%s; it goes on\n", shortID(job.ID), job.State, why)
		return withCode(exitLive, nil)
	}
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(c.out, filled(job)); err != nil {
			return err
		}
	}
	return ended(ctx, c, d, job)
}

// live selects jobs that have not ended.
func live(job ipc.Job) bool { return !job.Final }

// final selects jobs that have ended.
func final(job ipc.Job) bool { return job.Final }

// quick bounds requests that must not keep a person waiting.
const quick = 2 * time.Second
