package main

import (
	"context"
	"fmt"
	"io"
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
		Example: `  eval "$(jobd completion bash)"      # in ~/.bashrc
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
				if err := root.GenBashCompletionV2(c.out, true); err != nil {
					return err
				}
				_, err := io.WriteString(c.out, bashWords)
				return err
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			}
			return usagef(cmd, "there is no completion for %q; name bash, zsh or fish", args[0])
		},
	}
}

// bashWords lets the script for bash do without the package bash-completion,
// which is not everywhere: it replaces the one function that needs it. Words
// are not to be parted at "=", as bash itself does.
const bashWords = `
__jobd_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i word
    words=()
    cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $word == = || ${COMP_WORDS[i-1]} == = ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        ((i != COMP_CWORD)) || cword=$((${#words[@]} - 1))
    done
    cur=${words[cword]}
    prev=
    ((cword == 0)) || prev=${words[cword-1]}
}
`

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
