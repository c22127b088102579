package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// newProgressCommand returns "jobd progress".
func newProgressCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "progress [DONE[/TOTAL]] [TEXT…]",
		Short: "Report the progress of the job this runs in",
		Long: `Tells everyone who looks at the job how far it is: Claude Code, 'jobd status', and
whoever waits. At most one report a second is passed on, the newest wins.

A report that cannot be delivered because the daemon is away is dropped with a
note on standard error and exit code 0: progress is no reason for a job to fail.`,
		Example: `  jobd progress 3/10 "compiling"
  jobd progress 40% "uploading"
  jobd progress "waiting for the database"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || strings.Join(args, "") == "" {
				return usagef(cmd, "there is nothing to report; give DONE/TOTAL, a text, or both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return progress(cmd.Context(), c, args)
		},
	}
}

func progress(ctx context.Context, c *cli, args []string) error {
	job, err := insideJob(c, "progress")
	if err != nil {
		return err
	}
	r := parseProgress(args)
	r.Job = job
	d, err := c.connect(ctx, false)
	if err == nil {
		err = d.Progress(ctx, r)
	}
	if codeIs(err, ipc.CodeUnavailable) {
		_, err = fmt.Fprintf(c.err, "jobd: the progress was not reported: %s\n", safeLine(err.Error()))
	}
	return err
}

var progressCount = regexp.MustCompile(`^(\d+(?:\.\d+)?)(?:(%)|/(\d+(?:\.\d+)?))?$`)

// parseProgress reads the arguments: a count, if the first is one, and text.
func parseProgress(args []string) ipc.ProgressRequest {
	var r ipc.ProgressRequest
	if m := progressCount.FindStringSubmatch(args[0]); m != nil {
		// The pattern lets only numbers through; one that is too large is +Inf.
		r.Done, _ = strconv.ParseFloat(m[1], 64)
		switch {
		case m[2] != "":
			r.Total = 100
		case m[3] != "":
			r.Total, _ = strconv.ParseFloat(m[3], 64)
		}
		args = args[1:]
	}
	r.Text = strings.Join(args, " ")
	return r
}

// insideJob returns the id of the job that this process runs in.
func insideJob(c *cli, command string) (string, error) {
	if id := c.getenv("JOBD_JOB_ID"); id != "" {
		return id, nil
	}
	return "", fmt.Errorf("jobd %s works inside a job only, and JOBD_JOB_ID is not set; start one with: jobd run -- CMD", command)
}
