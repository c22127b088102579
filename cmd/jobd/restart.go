package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/config"
	"jobd/internal/config/limits"
)

// restartWithin bounds the exchange of the daemon.
const restartWithin = 30 * time.Second

func newRestartCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "restart",
		Short: "Replace the daemon by one of this program",
		Long: `Asks the daemon to leave, of whatever version it is, and starts that of this
installation. Jobs are not touched, and those who wait for one wait on. Where no
daemon runs one is started.`,
		Example: `  jobd restart             # after an upgrade, or a change in config.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return restart(cmd.Context(), c) },
	}
}

func restart(ctx context.Context, c *cli) error {
	if err := outsideJob("restart"); err != nil {
		return err
	}
	p, err := config.Find()
	if err != nil {
		return err
	}
	// The daemon that runs is not to leave for one that cannot start.
	if _, err := limits.Load(p.ConfigFile); err != nil {
		return fmt.Errorf("%w\nnothing was restarted", err)
	}
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	before, berr := askStatus(ctx, p)
	d, err := client(p)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Restart(ctx); err != nil {
		return err
	}
	after, err := askStatus(ctx, p)
	if err != nil {
		return fmt.Errorf("asking the new daemon: %w", err)
	}
	if berr != nil {
		_, err = fmt.Fprintf(c.out, "jobd %s started, process %d\n", safeLine(after.Version), after.PID)
	} else {
		_, err = fmt.Fprintf(c.out, "jobd %s, process %d, made place for %s, process %d\n", safeLine(before.Version), before.PID, safeLine(after.Version), after.PID)
	}
	return err
}
