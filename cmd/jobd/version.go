package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// version is set by the linker: -X main.version=1.2.3.
var version string

// buildVersion names this build, for people. It decides nothing: the protocol
// number does.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// versions is what version --json prints. Daemon is null where none runs.
type versions struct {
	Version  string         `json:"version"`
	Protocol int            `json:"protocol"`
	Daemon   *daemonVersion `json:"daemon"`
}

type daemonVersion struct {
	Version    string    `json:"version"`
	Protocol   int       `json:"protocol"`
	PID        int       `json:"pid"`
	Executable string    `json:"executable"`
	StartedAt  time.Time `json:"started_at"`
}

func newVersionCommand(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The versions of this program and of the daemon",
		Long: `Prints the version of this program, and of the daemon if one runs; none is
started for it. After an upgrade "jobd restart" makes them the same.`,
		Example: `  jobd version
  jobd version --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersions(cmd.Context(), c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printVersions(ctx context.Context, c *cli, asJSON bool) error {
	v := versions{Version: buildVersion(), Protocol: ipc.Protocol}
	if p, err := config.Find(); err == nil {
		if s, err := askStatus(ctx, p); err == nil {
			v.Daemon = &daemonVersion{Version: s.Version, Protocol: s.Protocol, PID: s.PID, Executable: s.Executable, StartedAt: s.StartedAt}
		}
	}
	if asJSON {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	if _, err := fmt.Fprintf(c.out, "jobd %s (protocol %d)\n", v.Version, v.Protocol); err != nil {
		return err
	}
	if d := v.Daemon; d != nil {
		_, err := fmt.Fprintf(c.out, "daemon %s (protocol %d), process %d, %s\n", safeLine(d.Version), d.Protocol, d.PID, safeLine(d.Executable))
		return err
	}
	return nil
}
