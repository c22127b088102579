package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// logFlags are the flags of "jobd logs".
type logFlags struct {
	follow, raw bool
	tail        int
	offset      int64
}

// newLogsCommand returns "jobd logs".
func newLogsCommand(c *cli) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show the output of a job",
		Long: `Shows what a job wrote to its standard output and standard error, in the order in
which it wrote it. Of a very long output the beginning and the end are kept;
standard error says where bytes are missing.

On a terminal the text is made safe: colours pass, other control sequences are
dropped, control characters and characters that reverse the direction of writing
are made visible (^[ is ESC), and a lone carriage return starts a new line. A
pipe or file gets the bytes as they are, and so does a terminal with --raw.`,
		Example: `  jobd logs 3f2a9c1d
  jobd logs -f --tail 20 3f2a
  jobd logs 3f2a > build.log
  jobd logs --offset 1048576 3f2a | head -c 4096`,
		Args:              oneID,
		ValidArgsFunction: completeJobs(c, func(ipc.Job) bool { return true }),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.tail < -1:
				return usagef(cmd, "--tail cannot be %d; give a number of lines", f.tail)
			case f.offset < 0:
				return usagef(cmd, "--offset cannot be %d; give a number of bytes", f.offset)
			case f.tail >= 0 && cmd.Flags().Changed("offset"):
				return usagef(cmd, "--tail and --offset exclude each other")
			}
			return showLogs(cmd.Context(), c, args[0], f)
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on until the job has ended, also across restarts of the daemon")
	cmd.Flags().IntVarP(&f.tail, "tail", "n", -1, "only the last `N` lines")
	cmd.Flags().Int64Var(&f.offset, "offset", 0, "begin at byte `N`")
	cmd.Flags().BoolVar(&f.raw, "raw", false, "show the bytes as they are, also on a terminal")
	return cmd
}

func showLogs(ctx context.Context, c *cli, id string, f logFlags) error {
	d, err := c.reach(ctx)
	if err != nil {
		return err
	}
	job, err := find(ctx, d, id)
	if err != nil {
		return err
	}
	out := newSafeWriter(c.out, c.screen, f.raw)
	offset, err := tailOffset(ctx, d, job, f, out)
	if err == nil {
		if f.follow {
			_, err = c.follow(ctx, d, job.ID, offset, out)
		} else {
			err = copyOutput(ctx, d, job.ID, offset, out, c.err)
		}
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil || !f.follow {
		return err
	}
	if job, err = find(ctx, d, job.ID); err == nil {
		delivered(ctx, d, job)
	}
	return err
}

// tailOffset writes the last lines, if they are asked for, and returns where
// to read on.
func tailOffset(ctx context.Context, d ipc.Handler, job ipc.Job, f logFlags, out io.Writer) (int64, error) {
	if f.tail < 0 {
		return f.offset, nil
	}
	o, err := d.Output(ctx, ipc.OutputRequest{ID: job.ID, Lines: max(f.tail, 1)})
	if err != nil {
		return 0, err
	}
	if f.tail > 0 {
		_, err = out.Write(o.Data)
	}
	return o.Next, err
}

// copyOutput copies what a job has written up to now, from offset on. A job
// that goes on writing does not keep it busy for ever.
func copyOutput(ctx context.Context, d ipc.Handler, id string, offset int64, out, notes io.Writer) error {
	total := int64(-1)
	for {
		o, err := d.Output(ctx, ipc.OutputRequest{ID: id, Offset: offset})
		if err != nil {
			return err
		}
		if total < 0 {
			total = o.Total
		}
		noteGap(notes, o)
		if _, err := out.Write(o.Data); err != nil {
			return err
		}
		if offset = o.Next; len(o.Data) == 0 || offset >= total {
			return nil
		}
	}
}
