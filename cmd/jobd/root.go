package main

import (
	"context"
	"errors"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run executes one command line and returns the exit code.
func run(ctx context.Context, c *cli, args []string) int {
	root := newRootCommand(c)
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	return report(c.err, root.ExecuteContext(ctx))
}

// The groups of subcommands in the help.
const (
	groupJobs   = "jobs"
	groupInside = "inside"
	groupFiles  = "files"
	groupDaemon = "daemon"
)

// newRootCommand returns the program with all its subcommands.
func newRootCommand(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "jobd",
		Short: "Durable jobs for Claude Code and the shell",
		Long: `jobd runs commands as jobs that outlive whoever started them: the shell, Claude
Code, and jobd's own daemon, which starts by itself when it is needed.`,
		Example: `  jobd run --name tests -- make test     # start a job; it goes on without you
  jobd status                            # what runs, and what waits for you
  jobd logs -f 3f2a9c1d                  # follow its output
  jobd answer 3f2a9c1d                   # answer the question it asks`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              noCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupJobs, Title: "Jobs:"},
		&cobra.Group{ID: groupInside, Title: "Inside a job:"},
		&cobra.Group{ID: groupFiles, Title: "Job files:"},
		&cobra.Group{ID: groupDaemon, Title: "jobd itself:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupJobs, newStatusCommand(c), newRunCommand(c), newLogsCommand(c), newWaitCommand(c), newResultCommand(c),
		newCancelCommand(c), newAnswerCommand(c), newPruneCommand(c))
	add(groupInside, newAskCommand(c), newProgressCommand(c))
	add(groupDaemon, newDoctorCommand(c), newStartCommand(c), newStopCommand(c), newRestartCommand(c), newDaemonCommand(c), newVersionCommand(c),
		newCompletionCommand(c), newHookCommand(c))
	add(groupFiles, newTrustCommand(c), newValidateCommand(c), newSchemaCommand(c))
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "The exit codes of all commands", Long: exitHelp})
	root.SetHelpCommandGroupID(groupDaemon)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Example = "  jobd help run"
	}
	return root
}

// noCommand refuses what is not a subcommand, and names the nearest ones.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		return usagef(nil, "unknown command %q; did you mean %s?", args[0], strings.Join(names, " or "))
	}
	return usagef(nil, "unknown command %q; 'jobd help' lists all commands", args[0])
}

// flagError turns an error of the flag parser into a sentence with a
// suggestion.
func flagError(cmd *cobra.Command, err error) error {
	if before := cmd.Flags().Args(); !cmd.HasParent() && len(before) > 0 {
		// A mistyped subcommand with flags of its own.
		return noCommand(cmd, before)
	}
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return usagef(cmd, "unknown flag -%s", name)
		}
		if near := nearestFlag(cmd, name); near != "" {
			return usagef(nil, "unknown flag --%s; did you mean --%s?", name, near)
		}
		return usagef(cmd, "unknown flag --%s", name)
	case errors.As(err, &invalid):
		return usagef(cmd, "--%s cannot be %q: %w", invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(invalid))
	case errors.As(err, &missing):
		return usagef(cmd, "--%s needs a value: %s", missing.GetFlag().Name, missing.GetFlag().Usage)
	}
	return usagef(cmd, "%w", err)
}

// nearestFlag returns the flag of cmd that name was likely meant to be, or "".
func nearestFlag(cmd *cobra.Command, name string) string {
	best, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := levenshtein.ComputeDistance(name, f.Name)
		if d < distance || (len(name) > 2 && strings.HasPrefix(f.Name, name) && d < len(f.Name)) {
			best, distance = f.Name, min(d, distance)
		}
	})
	return best
}
