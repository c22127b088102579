package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// newCompletionCommand returns "jobd completion".
func newCompletionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `Prints a script that makes a shell complete commands, flags, states, and the ids
of jobs.`,
		Example: `  jobd completion bash > ~/.local/share/bash-completion/completions/jobd
  jobd completion zsh > "${fpath[1]}/_jobd"
  jobd completion fish > ~/.config/fish/completions/jobd.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "name one shell: bash, zsh or fish")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			}
			return usagef(cmd, "there is no completion for %q; name bash, zsh or fish", args[0])
		},
	}
}

// completeJobs completes the ids of jobs that fit, with their names and states.
// It never starts a daemon and never takes long: whoever presses Tab waits.
func completeJobs(c *cli, fits func(ipc.Job) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), quick)
		defer cancel()
		d, err := c.connect(ctx, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		reply, err := d.List(ctx, ipc.ListRequest{Limit: 200})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ids := make([]string, len(reply.Jobs))
		for i, job := range reply.Jobs {
			ids[i] = job.ID
		}
		short := shortIDs(ids)
		var found []cobra.Completion
		for _, job := range reply.Jobs {
			id := short[job.ID]
			if len(prefix) > len(id) {
				id = job.ID
			}
			named := false
			for _, arg := range args {
				named = named || strings.HasPrefix(job.ID, arg)
			}
			if !named && fits(job) && strings.HasPrefix(id, prefix) {
				found = append(found, cobra.CompletionWithDesc(id, fmt.Sprintf("%s, %s", safeLine(job.Name), job.State)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// register makes a flag complete fixed words.
func register(cmd *cobra.Command, flag string, words []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is not defined: a fault of this program
	}
}
