package main

import (
	"github.com/spf13/cobra"

	"jobd/internal/jobfile"
)

// newSchemaCommand returns "jobd schema".
func newSchemaCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of job files, for editors",
		Long: `Prints a JSON Schema (draft 2020-12) of job files. An editor that knows YAML
schemas then completes keys, explains them and marks mistakes.`,
		Example: `  mkdir -p ~/.config/jobd && jobd schema > ~/.config/jobd/jobs.schema.json

  # then, as the first line of a job file, for the YAML language server:
  # yaml-language-server: $schema=/home/me/.config/jobd/jobs.schema.json`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := c.out.Write(jobfile.Schema())
			return err
		},
	}
}
