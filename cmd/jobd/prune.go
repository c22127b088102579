package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// newPruneCommand returns "jobd prune".
func newPruneCommand(c *cli) *cobra.Command {
	var older span
	var undelivered, dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove jobs that ended long ago",
		Long: `Removes jobs that have ended, with their output, and prints their ids. jobd does
so by itself once a job's retention is over (30 days); this does it now. A job
that has not ended is never removed, and one whose result nobody has read only
with --undelivered.`,
		Example: `  jobd prune --dry-run
  jobd prune --older-than 7d
  jobd prune --older-than 0s --undelivered`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := ipc.PruneRequest{Undelivered: undelivered, DryRun: dry}
			if ms := older.milliseconds(); ms != nil {
				// 0 on the wire stands for the configured retention.
				r.OlderThanMS = max(*ms, 1)
			}
			return prune(cmd.Context(), c, r, asJSON)
		},
	}
	cmd.Flags().Var(&older, "older-than", "those that ended so long ago (default: the configured retention)")
	cmd.Flags().BoolVar(&undelivered, "undelivered", false, "also those whose result nobody has read")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say which")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with the ids")
	return cmd
}

func prune(ctx context.Context, c *cli, r ipc.PruneRequest, asJSON bool) error {
	used, err := c.used()
	if err != nil {
		return err
	}
	reply := ipc.PruneReply{}
	if used {
		d, err := c.connect(ctx, true)
		if err != nil {
			return err
		}
		if reply, err = d.Prune(ctx, r); err != nil {
			return err
		}
	}
	if reply.IDs == nil {
		reply.IDs = []string{}
	}
	if asJSON {
		return printJSON(c.out, struct {
			IDs    []string `json:"ids"`
			DryRun bool     `json:"dry_run"`
		}{reply.IDs, r.DryRun})
	}
	for _, id := range reply.IDs {
		if _, err := fmt.Fprintln(c.out, id); err != nil {
			return err
		}
	}
	verb := "removed"
	if r.DryRun {
		verb = "would be removed"
	}
	_, err = fmt.Fprintf(c.err, "%s %s\n", count(len(reply.IDs), "job"), verb)
	return err
}
