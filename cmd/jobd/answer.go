package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// answerFlags are the flags of "jobd answer".
type answerFlags struct {
	question               string
	decline, stdin, asJSON bool
}

// newAnswerCommand returns "jobd answer".
func newAnswerCommand(c *cli) *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use:   "answer ID [FIELD=VALUE…]",
		Short: "Answer a question of a job",
		Long: `Answers a question that a job asks. On a terminal it asks for field after field;
with FIELD=VALUE it asks nothing: fields that are not given have their defaults,
several choices are parted by commas. A secret is typed without echo, or read with
--stdin; it is never given as FIELD=VALUE, which others could see in ps.

A question is the person's: under Claude Code it is refused, unless the job was
started with --answer-by anyone.`,
		Example: `  jobd answer 3f2a9c1d
  jobd answer 3f2a env=staging confirm=yes
  jobd answer 3f2a --question q2 --decline
  pass show registry | jobd answer 3f2a --stdin`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return oneID(cmd, args)
			}
			for _, arg := range args[1:] {
				if name, _, ok := strings.Cut(arg, "="); !ok || name == "" {
					return usagef(cmd, "%q is no answer; write FIELD=VALUE", arg)
				}
			}
			return checkID(cmd, args[0])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeJobs(c, func(job ipc.Job) bool { return len(job.Questions) > 0 })(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if (f.decline && (len(args) > 1 || f.stdin)) || (f.stdin && len(args) > 1) {
				return usagef(cmd, "--decline, --stdin and FIELD=VALUE exclude each other")
			}
			return answer(cmd.Context(), c, f, args[0], args[1:])
		},
	}
	cmd.Flags().StringVarP(&f.question, "question", "q", "", "the question with this `KEY`, where several are open")
	cmd.Flags().BoolVar(&f.decline, "decline", false, "say no")
	cmd.Flags().BoolVar(&f.stdin, "stdin", false, "read the answer from standard input: a secret as it is, any other as JSON")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print a JSON object that says whether the answer was taken")
	return cmd
}

func answer(ctx context.Context, c *cli, f answerFlags, id string, values []string) error {
	d, err := c.reach(ctx)
	if err != nil {
		return err
	}
	job, err := find(ctx, d, id)
	if err != nil {
		return err
	}
	questions, err := chooseQuestions(job, f, c.asks && len(values) == 0 && !f.decline && !f.stdin)
	if err != nil {
		return err
	}
	p := &prompter{in: bufio.NewReader(c.in), out: c.err, screen: screenOfErr(c), readSecret: c.readSecret}
	for _, q := range questions {
		if err := answerOne(ctx, c, d, p, f, job, q, values); err != nil {
			return err
		}
	}
	return nil
}

// chooseQuestions returns the questions to answer: the one that is named, the
// only one, or on a terminal all in turn.
func chooseQuestions(job ipc.Job, f answerFlags, all bool) ([]ipc.Question, error) {
	id := shortID(job.ID)
	if f.question != "" {
		i := slices.IndexFunc(job.Questions, func(q ipc.Question) bool { return q.Key == f.question || q.ID == f.question })
		if i < 0 {
			return nil, fmt.Errorf("job %s has no open question %q; its open questions: %s", id, f.question, keys(job))
		}
		return job.Questions[i : i+1], nil
	}
	switch {
	case len(job.Questions) == 0 && job.Final:
		return nil, fmt.Errorf("job %s asks nothing: it has ended (%s)", id, job.State)
	case len(job.Questions) == 0:
		return nil, fmt.Errorf("job %s asks nothing at the moment; it is %s", id, job.State)
	case len(job.Questions) > 1 && !all:
		return nil, fmt.Errorf("job %s asks %d questions; name one of them with --question: %s", id, len(job.Questions), keys(job))
	}
	return job.Questions, nil
}

// keys lists the open questions of a job.
func keys(job ipc.Job) string {
	if len(job.Questions) == 0 {
		return "none"
	}
	var list []string
	for _, q := range job.Questions {
		list = append(list, fmt.Sprintf("%s (%s)", q.Key, q.Message))
	}
	return strings.Join(list, ", ")
}

func answerOne(ctx context.Context, c *cli, d ipc.Handler, p *prompter, f answerFlags, job ipc.Job, q ipc.Question, values []string) error {
	fm, err := parseForm(q.Schema)
	if err != nil {
		return err
	}
	r := ipc.AnswerRequest{Job: job.ID, Question: q.Key, Action: "accept", By: "shell", Model: c.getenv("CLAUDECODE") != ""}
	secret := q.Mode == ipc.ModeURL
	if secret {
		// A secret is handed to the asker itself, and under its own name.
		r.Question, r.Secret = q.ID, true
	}
	switch {
	case f.decline:
		r.Action, r.Question, r.Secret = "decline", q.Key, false
	case secret:
		r.Content, err = c.unlessInterrupted(func() (json.RawMessage, error) { return secretContent(c, p, f, fm, job, q, values) })
	case f.stdin:
		r.Content, err = readAll(c.in, "standard input")
	case len(values) > 0:
		r.Content, err = contentOf(fm, values)
	case c.asks:
		r.Content, err = c.unlessInterrupted(func() (json.RawMessage, error) { return p.fill(job, q, fm) })
	default:
		err = fmt.Errorf("the question %q needs an answer, and standard input is no terminal; give it as %s", q.Message, example(job, q, fm))
	}
	if errors.Is(err, errLeft) || errors.Is(err, errInterrupted) {
		code := exitError
		if errors.Is(err, errInterrupted) {
			code = exitSignal + int(syscall.SIGINT)
		}
		return withCode(code, fmt.Errorf("nothing was answered; the question stays open for %s", shortSpan(millis(q.LeftMS))))
	}
	if err != nil {
		return err
	}
	reply, err := d.Answer(ctx, r)
	if err != nil {
		return err
	}
	if f.asJSON {
		if err := printJSON(c.out, reply); err != nil {
			return err
		}
	}
	if !reply.Taken {
		return fmt.Errorf("the answer was not taken: %s", reply.Fault)
	}
	if !f.asJSON {
		done := "answered"
		if f.decline {
			done = "declined"
		}
		_, err = fmt.Fprintf(c.err, "%s %s\n", done, safeLine(q.Message))
	}
	return err
}

// example shows how a question is answered without a terminal.
func example(job ipc.Job, q ipc.Question, fm *questionForm) string {
	s := answerCommand(job, q)
	for _, fl := range fm.fields {
		s += " " + fl.name + "=" + strings.ToUpper(string(fl.kind))
	}
	return s
}

// contentOf makes the content of an answer of FIELD=VALUE arguments, and of the
// defaults of the fields that are not given.
func contentOf(fm *questionForm, values []string) (json.RawMessage, error) {
	content := make(map[string]json.RawMessage)
	for _, arg := range values {
		name, text, _ := strings.Cut(arg, "=")
		fl := fm.field(name)
		if fl == nil {
			return nil, fm.unknown(name)
		}
		if _, ok := content[name]; ok {
			return nil, fmt.Errorf("the field %s is given twice", name)
		}
		value, err := fl.convert(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		content[name] = value
	}
	for _, fl := range fm.fields {
		if _, ok := content[fl.name]; ok {
			continue
		}
		switch {
		case fl.def != nil:
			content[fl.name] = fl.def
		case fl.required:
			return nil, fmt.Errorf("the field %s is missing; it must be %s", fl.name, fl.expected())
		}
	}
	return fm.encode(content), nil
}

// secretContent takes a secret from the terminal, without echo, or from
// standard input.
func secretContent(c *cli, p *prompter, f answerFlags, fm *questionForm, job ipc.Job, q ipc.Question, values []string) (json.RawMessage, error) {
	name := "value"
	if len(fm.fields) > 0 {
		name = fm.fields[0].name
	}
	var text string
	switch {
	case len(values) > 0:
		return nil, fmt.Errorf("the question %q asks for a secret, which others could see on a command line; leave it out to be asked for it, or use --stdin", q.Message)
	case f.stdin:
		b, err := readAll(c.in, "standard input")
		if err != nil {
			return nil, err
		}
		text = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	case c.asks:
		p.head(job, q)
		fmt.Fprintf(p.out, "  %s (not shown): ", safeLine(name))
		line, err := p.readSecret()
		fmt.Fprintln(p.out)
		if err != nil {
			return nil, errLeft
		}
		text = line
	default:
		return nil, errors.New("a secret is typed on a terminal, or read with --stdin")
	}
	if text == "" || !utf8.ValidString(text) {
		return nil, errors.New("the secret is empty or not UTF-8 text")
	}
	return json.RawMessage(`{` + string(mustJSON(name)) + `:` + string(mustJSON(text)) + `}`), nil
}

// How a person leaves a form: by the end of the input, or with Ctrl-C.
var (
	errLeft        = errors.New("the form was left")
	errInterrupted = errors.New("interrupted")
)

// unlessInterrupted runs f, which reads from the terminal, and gives up with
// errInterrupted when a signal comes. The terminal is then as it was before,
// also where it did not echo; f is left behind, and ends with the process.
func (c *cli) unlessInterrupted(f func() (json.RawMessage, error)) (json.RawMessage, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	type end struct {
		content json.RawMessage
		err     error
	}
	ends := make(chan end, 1)
	go func() {
		content, err := f()
		ends <- end{content, err}
	}()
	select {
	case e := <-ends:
		return e.content, e.err
	case <-signals:
		if c.mendTerminal != nil {
			c.mendTerminal()
		}
		fmt.Fprintln(c.err)
		return nil, errInterrupted
	}
}

// A prompter asks a person for the fields of a form, one after the other.
type prompter struct {
	in         *bufio.Reader
	out        io.Writer
	screen     screen
	readSecret func() (string, error)
}

// head says who asks what.
func (p *prompter) head(job ipc.Job, q ipc.Question) {
	fmt.Fprintf(p.out, "%s asks (%s):\n  %s\n", safeLine(job.Name), inTime(q), p.screen.paint(bold, safeLine(q.Message)))
	if q.Fault != "" {
		fmt.Fprintf(p.out, "  %s\n", p.screen.paint(red, "the last answer was not taken: "+safeLine(q.Fault)))
	}
	fmt.Fprintln(p.out, p.screen.paint(dim, "  (Ctrl-C answers later; jobd answer "+shortID(job.ID)+" --decline says no)"))
}

// fill asks for every field and returns the content.
func (p *prompter) fill(job ipc.Job, q ipc.Question, fm *questionForm) (json.RawMessage, error) {
	p.head(job, q)
	content := make(map[string]json.RawMessage)
	for i := range fm.fields {
		value, err := p.ask(&fm.fields[i])
		if err != nil {
			return nil, err
		}
		if value != nil {
			content[fm.fields[i].name] = value
		}
	}
	return fm.encode(content), nil
}

// ask asks for one field until the answer fits. It returns nil for a field that
// is left empty.
func (p *prompter) ask(f *field) (json.RawMessage, error) {
	if f.description != "" {
		fmt.Fprintf(p.out, "  %s\n", p.screen.paint(dim, safeLine(f.description)))
	}
	for i, c := range f.choices {
		title := ""
		if c.title != "" && c.title != c.value {
			title = "  " + safeLine(c.title)
		}
		fmt.Fprintf(p.out, "    %d) %s%s\n", i+1, safeLine(c.value), title)
	}
	for {
		fmt.Fprintf(p.out, "  %s%s: ", safeLine(f.label()), p.hint(f))
		line, err := p.in.ReadString('\n')
		if err != nil {
			fmt.Fprintln(p.out)
			return nil, errLeft
		}
		text := strings.TrimRight(line, "\r\n")
		if text == "" {
			switch {
			case f.def != nil:
				return f.def, nil
			case !f.required:
				return nil, nil
			case f.kind != kindString || f.min != nil:
				fmt.Fprintf(p.out, "  %s\n", p.screen.paint(red, "it must be "+safeLine(f.expected())))
				continue
			}
		}
		value, err := f.convert(p.byNumber(f, text))
		if err == nil {
			return value, nil
		}
		fmt.Fprintf(p.out, "  %s\n", p.screen.paint(red, safeLine(err.Error())))
	}
}

// hint says what may be typed, and what an empty line stands for.
func (p *prompter) hint(f *field) string {
	var s string
	switch f.kind {
	case kindBoolean:
		s = " (y/n)"
	case kindChoice:
		s = " (a number or value)"
	case kindChoices:
		s = " (numbers or values, parted by commas)"
	case kindInteger, kindNumber:
		s = " (" + f.expected() + ")"
	case kindString:
		if f.format != "" || f.min != nil || f.max != nil || f.pattern != "" {
			s = " (" + f.expected() + ")"
		}
	}
	switch {
	case f.kind == kindBoolean && string(f.def) == "true":
		s += " [y]"
	case f.kind == kindBoolean && f.def != nil:
		s += " [n]"
	case f.def != nil:
		s += " [" + strings.ReplaceAll(bare(f.def), "\n", ",") + "]"
	case !f.required:
		s += " [none]"
	}
	return safeLine(s)
}

// byNumber replaces the numbers of choices by their values, where no choice is
// itself called so.
func (p *prompter) byNumber(f *field, text string) string {
	if len(f.choices) == 0 {
		return text
	}
	parts := []string{text}
	if f.kind == kindChoices {
		parts = strings.Split(text, ",")
	}
	for i, part := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err == nil && !f.has(strings.TrimSpace(part)) && n >= 1 && n <= len(f.choices) {
			parts[i] = f.choices[n-1].value
		}
	}
	return strings.Join(parts, ",")
}
