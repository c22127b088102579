package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// newCancelCommand returns "jobd cancel".
func newCancelCommand(c *cli) *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel ID…",
		Short: "End jobs",
		Long: `Asks for the end of jobs and returns at once. Each gets SIGTERM and, after 10
seconds, SIGKILL, and so does every process that it has started; until the last is
gone its state is "stopping". Whoever waits for the job is told that it was
cancelled.`,
		Example: `  jobd cancel 3f2a9c1d
  jobd cancel 3f2a 9b01 --reason "wrong branch"
  jobd cancel 3f2a; jobd wait 3f2a`,
		Args:              manyIDs,
		ValidArgsFunction: completeJobs(c, live),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cancelJobs(cmd.Context(), c, args, reason, asJSON)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "cancelled in a shell", "a sentence that tells others `why`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of the jobs")
	return cmd
}

func cancelJobs(ctx context.Context, c *cli, ids []string, reason string, asJSON bool) error {
	d, err := c.reach(ctx)
	if err != nil {
		return err
	}
	var faults []error
	cancelled := []ipc.Job{}
	for _, id := range ids {
		job, err := d.Cancel(ctx, ipc.CancelRequest{ID: id, Reason: reason, Shell: true})
		if err != nil {
			faults = append(faults, err)
			continue
		}
		cancelled = append(cancelled, filled(job))
		if asJSON {
			continue
		}
		what := job.State
		if job.Final && job.State != "cancelled" {
			what = "had ended already: " + job.State
		}
		if _, err := fmt.Fprintf(c.out, "%s  %s\n", shortID(job.ID), what); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(c.out, cancelled); err != nil {
			return err
		}
	}
	return errors.Join(faults...)
}
