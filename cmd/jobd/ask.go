package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/form"
	"jobd/internal/ipc"
)

// askFlags are the flags of "jobd ask".
type askFlags struct {
	fields              []string
	schema, onTimeout   string
	key                 string
	timeout             span
	secret, raw, asJSON bool
}

// newAskCommand returns "jobd ask".
func newAskCommand(c *cli) *cobra.Command {
	var f askFlags
	cmd := &cobra.Command{
		Use:   "ask MESSAGE",
		Short: "Ask the person a question and wait for the answer",
		Long: `Asks the person a question from inside a job and waits for the answer, which
comes from Claude Code's form, from 'jobd answer' in a shell, or from wherever else
jobd shows it. It outlives a restart of the daemon.

Standard output is the answer as a JSON object; with --raw the bare value of the
only field, a list with one choice a line; with --json the answer with how it came
about. Exit codes: 0 accepted, 10 declined, 12 nobody answered in time, 1 error.
A question that is not answered in time ends the job, unless --on-timeout says
otherwise; 12 is then seen with --on-timeout continue only.

Without --field and --schema the question has one text field called "answer".

` + fieldHelp + `

A form must not ask for a password, token, key or card number. --secret asks for
one text in a way that keeps it out of the conversation: on a page of this machine,
or without echo by 'jobd answer'.`,
		Example: `  jobd ask "Deploy to production?" --field confirm:boolean --timeout 30m
  env=$(jobd ask "Where to?" --field 'env:choice,enum=staging|production' --raw)
  jobd ask "Go on?" --field 'go:boolean,default=true' --timeout 5m --on-timeout default
  token=$(jobd ask "API token for the registry" --secret --raw)
  jobd ask "Review the plan" --schema plan.schema.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && strings.TrimSpace(args[0]) != "":
				return nil
			case len(args) > 1:
				return usagef(cmd, "the question is one argument; put it in quotes")
			}
			return usagef(cmd, "there is no question; for example: jobd ask 'Go on?' --field go:boolean")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			fm, schema, err := askSchema(cmd, c, f)
			if err != nil {
				return err
			}
			return ask(cmd.Context(), c, f, fm, ipc.AskRequest{Key: f.key, Message: args[0], Schema: schema, Secret: f.secret, OnTimeout: f.onTimeout})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.fields, "field", "f", nil, "ask for `NAME:TYPE`; may be repeated")
	flags.StringVar(&f.schema, "schema", "", "the fields as JSON Schema, from `FILE` (- is standard input)")
	flags.StringVar(&f.key, "key", "", "call the question `NAME`, for jobd answer --question (default: q1, q2, …)")
	flags.Var(&f.timeout, "timeout", "how long to wait (default: the job's question timeout, 1h)")
	flags.StringVar(&f.onTimeout, "on-timeout", "", "then `fail` the job, take the default values, or continue the job (default: fail)")
	flags.BoolVar(&f.secret, "secret", false, "the answer is a secret")
	flags.BoolVar(&f.raw, "raw", false, "print the bare value of the only field")
	flags.BoolVar(&f.asJSON, "json", false, "print an object with state, content and by (who answered)")
	register(cmd, "on-timeout", []string{"fail", "default", "continue"})
	return cmd
}

// askSchema makes the schema of a question of the flags, and checks it.
func askSchema(cmd *cobra.Command, c *cli, f askFlags) (*questionForm, json.RawMessage, error) {
	switch {
	case f.schema != "" && len(f.fields) > 0:
		return nil, nil, usagef(cmd, "--schema and --field exclude each other")
	case f.raw && f.asJSON:
		return nil, nil, usagef(cmd, "--raw and --json exclude each other")
	case f.timeout.set && f.timeout.Duration == 0:
		return nil, nil, usagef(cmd, "--timeout cannot be 0: every question has a deadline")
	case f.onTimeout != "" && f.onTimeout != "fail" && f.onTimeout != "default" && f.onTimeout != "continue":
		return nil, nil, usagef(cmd, "--on-timeout cannot be %q; use fail, default or continue", f.onTimeout)
	}
	var fm *questionForm
	var schema json.RawMessage
	switch {
	case f.schema != "":
		in := c.in
		if f.schema != "-" {
			file, err := os.Open(f.schema)
			if err != nil {
				return nil, nil, fmt.Errorf("reading the schema: %w", err)
			}
			defer file.Close()
			in = file
		}
		b, err := readAll(in, f.schema)
		if err != nil {
			return nil, nil, err
		}
		schema = b
	default:
		fm = &questionForm{}
		for _, text := range f.fields {
			fl, err := parseFieldFlag(text)
			if err != nil {
				return nil, nil, usagef(cmd, "--field: %w", err)
			}
			if fm.field(fl.name) != nil {
				return nil, nil, usagef(cmd, "--field: the field %q is there twice", fl.name)
			}
			fm.fields = append(fm.fields, fl)
		}
		if len(fm.fields) == 0 {
			name := "answer"
			if f.secret {
				name = "value"
			}
			fm.fields = []field{{name: name, kind: kindString, required: true}}
		}
		schema = fm.schema()
	}
	if err := (form.Forms{}).Check(schema, f.secret); err != nil {
		return nil, nil, err
	}
	if fm == nil {
		var err error
		if fm, err = parseForm(schema); err != nil {
			return nil, nil, err
		}
	}
	if f.raw && len(fm.fields) != 1 {
		return nil, nil, usagef(cmd, "--raw prints one value, and the question has %s", count(len(fm.fields), "field"))
	}
	return fm, schema, nil
}

// withdrawFor bounds how long an asker that leaves waits for the daemon.
const withdrawFor = 2 * time.Second

func ask(ctx context.Context, c *cli, f askFlags, fm *questionForm, r ipc.AskRequest) error {
	job, err := insideJob(c, "ask")
	if err != nil {
		return err
	}
	d, err := c.connect(ctx, false)
	if err != nil {
		return err
	}
	r.Job, r.ID = job, strings.ToLower(rand.Text())
	if ms := f.timeout.milliseconds(); ms != nil {
		r.TimeoutMS = *ms
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		answer ipc.Answer
		err    error
	}
	ends := make(chan end, 1)
	go func() {
		a, err := awaitAnswer(waiting, d, r)
		ends <- end{a, err}
	}()
	select {
	case e := <-ends:
		if e.err != nil {
			return e.err
		}
		return printAnswer(c, f, fm, e.answer)
	case sig := <-signals:
		cancel()
		<-ends
		leaving, cancel := context.WithTimeout(ctx, withdrawFor)
		defer cancel()
		_, err := d.Await(leaving, ipc.AwaitRequest{Job: r.Job, ID: r.ID, Withdraw: true})
		code := exitSignal
		if s, ok := sig.(syscall.Signal); ok {
			code += int(s)
		}
		if err != nil {
			return withCode(code, fmt.Errorf("withdrawing the question: %w", err))
		}
		return withCode(code, errors.New("interrupted; the question is closed"))
	}
}

// awaitAnswer asks, and waits until the question is closed. Both may be
// repeated: the asker's id makes it the same question.
func awaitAnswer(ctx context.Context, d ipc.Handler, r ipc.AskRequest) (ipc.Answer, error) {
	var p patient
	a, err := d.Ask(ctx, r)
	for p.again(ctx, err) {
		a, err = d.Ask(ctx, r)
	}
	for err == nil && a.State == "open" {
		wait := ipc.AwaitRequest{Job: r.Job, ID: r.ID, WaitMS: pollFor.Milliseconds()}
		a, err = d.Await(ctx, wait)
		for p.again(ctx, err) {
			a, err = d.Await(ctx, wait)
		}
	}
	if err != nil || !r.Secret || a.State != "answered" {
		return a, err
	}
	// A secret is nowhere but here and in the daemon's memory: only now may the
	// daemon forget it.
	received := ipc.AwaitRequest{Job: r.Job, ID: r.ID, Received: true}
	_, rerr := d.Await(ctx, received)
	for p.again(ctx, rerr) {
		_, rerr = d.Await(ctx, received)
	}
	return a, nil
}

// printAnswer prints what became of a question, and gives the exit code.
func printAnswer(c *cli, f askFlags, fm *questionForm, a ipc.Answer) error {
	if a.State == "answered" && len(a.Content) == 0 {
		a.Content = json.RawMessage("{}")
	}
	if f.asJSON {
		if err := printJSON(c.out, a); err != nil {
			return err
		}
	}
	switch a.State {
	case "answered":
		if f.asJSON {
			return nil
		}
		if f.raw {
			return printBare(c, fm, a.Content)
		}
		_, err := fmt.Fprintf(c.out, "%s\n", a.Content)
		return err
	case "declined":
		return withCode(exitDeclined, nil)
	case "unanswered":
		return withCode(exitUnanswered, nil)
	}
	return fmt.Errorf("the question was %s before anybody answered", a.State)
}

func printBare(c *cli, fm *questionForm, content json.RawMessage) error {
	names, values, err := orderedObject(content)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	for i, name := range names {
		if name == fm.fields[0].name {
			_, err := fmt.Fprintln(c.out, bare(values[i]))
			return err
		}
	}
	_, err = fmt.Fprintln(c.out) // left empty
	return err
}
