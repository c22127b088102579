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
	s, err := askStatus(ctx, p)
	if err != nil && notRunning(p, err) {
		if !killJobs {
			return stopNothing(c, p)
		}
		used, err := started()
		if err != nil || !used {
			return errors.Join(err, stopNothing(c, p))
		}
		// Only a daemon knows the jobs and how to end them.
		bounded, cancel := context.WithTimeout(ctx, stopWithin)
		defer cancel()
		if s, _, err = begin(bounded, p); err != nil {
			return fmt.Errorf("starting jobd to end the jobs: %w", err)
		}
	} else if err != nil {
		return silent(p, err)
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

// begin starts a daemon as a step of another command.
func begin(ctx context.Context, p config.Places) (ipc.Status, bool, error) {
	return start(ctx, p, startOptions{})
}

// notRunning reports whether err means that there is no daemon, and none holds
// the claim without answering.
func notRunning(p config.Places, err error) bool {
	if !codeIs(err, ipc.CodeUnavailable) {
		return false
	}
	_, serr := os.Lstat(p.AliveLock)
	if errors.Is(serr, fs.ErrNotExist) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	return awaitEnd(ctx, p) == nil
}

// stopNothing records the wish, so that no shim brings back a daemon that died.
func stopNothing(c *cli, p config.Places) error {
	if _, err := os.Lstat(p.StateDir); err == nil {
		if err := markStopped(p); err != nil {
			return fmt.Errorf("recording that jobd is stopped: %w", err)
		}
	}
	_, err := fmt.Fprintln(c.out, "jobd is not running")
	return err
}
