package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"jobd/internal/jobs"
)

// stateNames lists the states of a job, for flags and completion.
func stateNames() []string {
	var names []string
	for _, s := range jobs.States() {
		names = append(names, string(s))
	}
	return names
}

// checkStates refuses a state that does not exist.
func checkStates(cmd *cobra.Command, states []string) error {
	for _, s := range states {
		if !slices.Contains(stateNames(), s) {
			return usagef(cmd, "--state cannot be %q; the states are %s", s, strings.Join(stateNames(), ", "))
		}
	}
	return nil
}
