package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newDoctorCommand returns "jobd doctor".
func newDoctorCommand(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and play the main job through it",
		Long: `Checks the installation: the programs and their versions, the state directory,
config.yaml, the socket (and a sandbox in front of it), the locks, PATH, and how
Claude Code knows jobd. Then it plays, with the real programs in a directory of
its own, what jobd is for: a job is started over MCP, the front end and the daemon
are killed, another front end gets the result, and the job has run once. Nothing
is left behind, and nothing of yours is changed.

It ends at the first step that fails, with code 1 and the remedy.`,
		Example: `  jobd doctor
  jobd doctor --json | jq '.steps[] | select(.ok | not)'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interrupted(cmd.Context())
			defer stop()
			return doctor(ctx, c, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with the steps")
	return cmd
}

// A step is one thing that the doctor looks at or does.
type step struct {
	name string
	// run returns a remark for the person. A *warning lets the next step go on,
	// any other error ends the examination.
	run func(ctx context.Context) (remark string, err error)
}

// A remedied is an error and what to do about it.
type remedied struct {
	err    error
	remedy string
	// warning: it does not keep jobd from working.
	warning bool
}

// Error implements error.
func (r *remedied) Error() string { return r.err.Error() }

// Unwrap returns the error itself.
func (r *remedied) Unwrap() error { return r.err }

// fault returns an error that ends the examination.
func fault(remedy, format string, args ...any) error {
	return &remedied{err: fmt.Errorf(format, args...), remedy: remedy}
}

// warning returns an error that does not.
func warning(remedy, format string, args ...any) error {
	return &remedied{err: fmt.Errorf(format, args...), remedy: remedy, warning: true}
}

// A finding is what came of a step, as --json prints it.
type finding struct {
	Step       string `json:"step"`
	OK         bool   `json:"ok"`
	Warning    bool   `json:"warning,omitempty"`
	Remark     string `json:"remark,omitempty"`
	Error      string `json:"error,omitempty"`
	Remedy     string `json:"remedy,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

func doctor(ctx context.Context, c *cli, asJSON bool) error {
	p := &play{getenv: c.getenv}
	steps := append(checks(c), p.steps()...)
	report := struct {
		OK    bool      `json:"ok"`
		Steps []finding `json:"steps"`
	}{OK: true}
	for _, s := range steps {
		f := examine(ctx, s)
		report.Steps = append(report.Steps, f)
		report.OK = f.OK
		if !asJSON {
			printFinding(c, f)
		}
		if !f.OK {
			break
		}
	}
	// The last step has done it where all went well.
	if err := p.clear(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintf(c.err, "jobd: clearing up: %s\n", safeLine(err.Error()))
	}
	if asJSON {
		if err := printJSON(c.out, report); err != nil {
			return err
		}
	}
	if !report.OK {
		return withCode(exitError, nil)
	}
	return nil
}

func examine(ctx context.Context, s step) finding {
	began := time.Now()
	remark, err := s.run(ctx)
	f := finding{Step: s.name, OK: true, Remark: remark, DurationMS: time.Since(began).Milliseconds()}
	if err == nil {
		return f
	}
	var r *remedied
	f.Error = err.Error()
	if errors.As(err, &r) {
		f.Remedy, f.Warning = r.remedy, r.warning
	}
	f.OK = f.Warning
	return f
}

func printFinding(c *cli, f finding) {
	mark := c.screen.paint(green, "ok  ")
	text := f.Remark
	switch {
	case !f.OK:
		mark, text = c.screen.paint(red, "FAIL"), f.Error
	case f.Warning:
		mark, text = c.screen.paint(yellow, "note"), f.Error
	}
	fmt.Fprintf(c.out, "%s  %-28s %6d ms  %s\n", mark, f.Step, f.DurationMS, safeLine(text))
	if f.Remedy != "" {
		for line := range strings.SplitSeq(f.Remedy, "\n") {
			fmt.Fprintf(c.out, "      %s\n", safeLine(line))
		}
	}
}
