package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// stopWithin is how long a daemon that was told to stop may take to end.
const stopWithin = 20 * time.Second

func newStopCommand(c *cli) *cobra.Command {
	var killJobs bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon; jobs go on",
		Long: `Stops the daemon and returns when it is gone. Jobs go on without it; their
output and exit codes are kept and taken up by the next daemon, which starts as
soon as somebody needs it. With --kill-jobs all jobs are ended first.`,
		Example: `  jobd stop                # stop the daemon and leave the jobs alone
  jobd stop --kill-jobs    # end everything`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stop(cmd.Context(), c, killJobs)
		},
	}
	cmd.Flags().BoolVar(&killJobs, "kill-jobs", false, "end all jobs first")
	return cmd
}

func stop(ctx context.Context, c *cli, killJobs bool) error {
	p, err := config.Find()
	if err != nil {
		return err
	}
	s, running, err := look(ctx, p)
	if err != nil {
		return err
	}
	if !running {
		used, err := started()
		if err != nil {
			return err
		}
		if killJobs && used {
			// Only a daemon knows the jobs and how to end them.
			bounded, cancel := context.WithTimeout(ctx, stopWithin)
			defer cancel()
			if s, _, err = start(bounded, p, serveOptions{}); err != nil {
				return fmt.Errorf("starting jobd to end the jobs: %w", err)
			}
		} else {
			if err := markWithoutDaemon(p); err != nil {
				return err
			}
			// One that started meanwhile may not have seen the mark.
			if s, running, err = look(ctx, p); err != nil {
				return err
			}
			if !running {
				_, err := fmt.Fprintln(c.out, "jobd is not running")
				return err
			}
		}
	}
	d := ipc.New(ipc.Options{Socket: p.Socket, Log: p.Log, Stopped: p.Stopped, Version: buildVersion()})
	defer d.Close()
	if err := d.Stop(ctx, ipc.StopRequest{KillJobs: killJobs}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := awaitEnd(bounded, p); err != nil {
		return fmt.Errorf("jobd, process %d, was told to stop and still runs: %w", s.PID, err)
	}
	_, err = fmt.Fprintf(c.out, "jobd stopped, process %d\n", s.PID)
	return err
}

// look reports whether a daemon runs. One that is about to start or to leave is
// waited for; one that holds its lock and does not answer is an error.
func look(ctx context.Context, p config.Places) (s ipc.Status, running bool, err error) {
	for end := time.Now().Add(statusWithin); ; {
		if s, err = askStatus(ctx, p); err == nil {
			return s, true, nil
		}
		bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		alive := awaitEnd(bounded, p)
		cancel()
		if alive == nil && codeIs(err, ipc.CodeUnavailable) {
			return ipc.Status{}, false, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return ipc.Status{}, false, silent(p, err)
		}
	}
}

// markWithoutDaemon records the stop where no daemon can, so that no shim brings
// back one that died.
func markWithoutDaemon(p config.Places) error {
	if _, err := os.Lstat(p.StateDir); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever started here
	}
	if err := markStopped(p); err != nil {
		return fmt.Errorf("recording that jobd is stopped: %w", err)
	}
	return nil
}
