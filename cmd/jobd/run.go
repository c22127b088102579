package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"jobd/internal/caller"
	"jobd/internal/ipc"
)

// runFlags are the flags of "jobd run".
type runFlags struct {
	wait, asJSON      bool
	name, key, group  string
	cwd, answerBy     string
	env               []string
	timeout, question span
}

// newRunCommand returns "jobd run".
func newRunCommand(c *cli) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Start a command as a job",
		Long: `Starts a command as a job and prints the job's id. The job has the environment,
umask and limits of this shell, no terminal, and an empty standard input. It goes
on when the shell ends.

The command is run as it is, without a shell in between: for pipes and variables
give one, as in the example.

With --wait the output appears as if the command ran here, and jobd ends with
the command's exit code (see 'jobd help exit-codes'). Ctrl-C asks whether to leave
the job running; where nobody can be asked, it is left running.`,
		Example: `  jobd run -- make -j4 test
  jobd run --wait --timeout 45m --name deploy -- ./deploy.sh staging
  jobd run --key nightly-2026-11-29 -- ./nightly.sh
  jobd run -- bash -c 'make 2>&1 | tee build.log'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "there is no command to run; write it after --, for example: jobd run -- make test")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runJob(cmd, c, f, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.BoolVarP(&f.wait, "wait", "w", false, "show the output, and end with the command's exit code")
	flags.StringVar(&f.name, "name", "", "call the job `NAME`; default: the command")
	flags.Var(&f.timeout, "timeout", "end the job when it has run so long; 0 = never (default 24h)")
	flags.Var(&f.question, "question-timeout", "how long its questions stay open (default 1h)")
	flags.StringVar(&f.key, "key", "", "start one job only for this `KEY` in the project, however often it is called")
	flags.StringVar(&f.cwd, "cwd", "", "run it in `DIR`; default: here")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` in its environment; may be repeated")
	flags.StringVar(&f.group, "group", "", "jobs of one `GROUP` run one at a time")
	flags.StringVar(&f.answerBy, "answer-by", "", "who may answer its questions: `person` (default) or anyone, which lets Claude")
	flags.BoolVar(&f.asJSON, "json", false, "print the job as JSON; with --wait, when it has ended, instead of the output")
	register(cmd, "answer-by", []string{"person", "anyone"})
	return cmd
}

func runJob(cmd *cobra.Command, c *cli, f runFlags, argv []string) error {
	ctx := cmd.Context()
	r, err := submission(c, cmd, f, argv)
	if err != nil {
		return err
	}
	d, err := c.connect(ctx, true)
	if err != nil {
		return runFailed(f, err)
	}
	reply, err := d.Submit(ctx, strings.ToLower(rand.Text()), r)
	if err != nil {
		return runFailed(f, err)
	}
	job := reply.Job
	if reply.Joined == "key" {
		fmt.Fprintf(c.err, "jobd: the key %q belongs to job %s (%s); nothing was started\n", f.key, shortID(job.ID), job.State)
	}
	if !f.wait {
		if f.asJSON {
			return printJSON(c.out, filled(job))
		}
		_, err := fmt.Fprintln(c.out, job.ID)
		return err
	}
	out := newSafeWriter(c.out, c.screen, false)
	if f.asJSON {
		out = rawWriter{io.Discard}
	}
	job, err = attend(ctx, c, d, job, out)
	if err != nil {
		return waitFailed(err)
	}
	if f.asJSON {
		if err := printJSON(c.out, filled(job)); err != nil {
			return waitFailed(err)
		}
	}
	return ended(ctx, c, d, job)
}

// runFailed gives an error of jobd a code that no command has, where the
// command's own is expected.
func runFailed(f runFlags, err error) error {
	if f.wait {
		return waitFailed(err)
	}
	return err
}

// shellSession is the session of every job that is started in a shell.
const shellSession = "shell"

// submission makes the request for a job of the command line.
func submission(c *cli, cmd *cobra.Command, f runFlags, argv []string) (ipc.SubmitRequest, error) {
	var r ipc.SubmitRequest
	dir, err := os.Getwd()
	if err != nil {
		return r, fmt.Errorf("finding the working directory: %w; go to one that exists, or name one with --cwd", err)
	}
	environ := os.Environ()
	if f.cwd != "" {
		if dir, err = filepath.Abs(f.cwd); err != nil {
			return r, fmt.Errorf("finding the directory %s: %w", f.cwd, err)
		}
		// The shell's PWD would name another directory than the job's.
		environ = append(withoutName(environ, "PWD"), "PWD="+dir)
	}
	if f.question.set && f.question.Duration == 0 {
		return r, usagef(cmd, "--question-timeout cannot be 0: every question has a deadline")
	}
	if f.answerBy != "" && f.answerBy != "person" && f.answerBy != "anyone" {
		return r, usagef(cmd, "--answer-by cannot be %q; use person or anyone", f.answerBy)
	}
	r = ipc.SubmitRequest{
		Tool: "shell", Name: f.name, Argv: argv, Dir: dir, Project: caller.Project(c.getenv("CLAUDE_PROJECT_DIR"), dir), Session: shellSession, Umask: caller.Umask(),
		Environ: caller.Environ(environ), TimeoutMS: f.timeout.milliseconds(), QuestionTimeoutMS: f.question.milliseconds(),
		AnswerBy: f.answerBy, Group: f.group, Key: f.key, Shell: true, Interactive: true,
	}
	r.NoFile, r.NoFileMax = caller.FileLimits()
	for _, kv := range f.env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return r, usagef(cmd, "--env cannot be %q; write NAME=VALUE", kv)
		}
		if r.Env == nil {
			r.Env = make(map[string]string)
		}
		r.Env[name] = value
	}
	return r, nil
}

// withoutName returns environ less the variable called name.
func withoutName(environ []string, name string) []string {
	var kept []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, name+"=") {
			kept = append(kept, kv)
		}
	}
	return kept
}

// attend shows a job's output until the job has ended, and tells of its
// questions. A signal ends the showing, never by itself the job.
func attend(ctx context.Context, c *cli, d ipc.Handler, job ipc.Job, out io.WriteCloser) (ipc.Job, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	tell := reporter(c.err, screenOfErr(c))
	offset := int64(0)
	var lines <-chan string
	for {
		var sig os.Signal
		var err error
		job, offset, sig, err = c.attendUntilSignal(ctx, d, job, offset, out, tell, signals)
		switch {
		case sig == nil:
			if cerr := out.Close(); err == nil {
				err = cerr
			}
			return job, err
		case sig != os.Interrupt || !c.asks:
			fmt.Fprintf(c.err, "jobd: job %s goes on; jobd wait %[1]s waits for it, jobd cancel %[1]s ends it\n", shortID(job.ID))
			return job, withCode(exitLive, nil)
		}
		if lines == nil {
			lines = typed(c.in)
		}
		switch askLeave(c, job, lines, signals) {
		case leaveCancel:
			if _, err := d.Cancel(ctx, ipc.CancelRequest{ID: job.ID, Reason: "cancelled with Ctrl-C in the shell that started it", Shell: true}); err != nil {
				return job, err
			}
		case leaveRunning:
			fmt.Fprintf(c.err, "jobd: job %s goes on; jobd wait %[1]s waits for it\n", shortID(job.ID))
			return job, withCode(exitLive, nil)
		case leaveWait:
		}
	}
}

// attendUntilSignal follows a job until it has ended or a signal came.
func (c *cli) attendUntilSignal(ctx context.Context, d ipc.Handler, job ipc.Job, offset int64, out io.Writer, tell func(ipc.Job),
	signals <-chan os.Signal) (ipc.Job, int64, os.Signal, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		job ipc.Job
		err error
	}
	ends := make(chan end, 1)
	go func() {
		tell(job)
		last, err := c.awaitFinal(ctx, d, job, tell)
		ends <- end{last, err}
	}()
	type read struct {
		offset int64
		err    error
	}
	reads := make(chan read, 1)
	go func() {
		next, err := c.follow(ctx, d, job.ID, offset, out)
		reads <- read{next, err}
	}()

	var sig os.Signal
	var r read
	select {
	case r = <-reads:
		if r.err != nil {
			cancel()
		}
	case sig = <-signals:
		cancel()
		r = <-reads
	}
	var e end
	select {
	case e = <-ends:
	case s := <-signals: // the output has ended, the job's end is not recorded yet
		if sig == nil {
			sig = s
		}
		cancel()
		e = <-ends
	}
	if sig != nil {
		return e.job, r.offset, sig, nil
	}
	if r.err != nil {
		return e.job, r.offset, nil, r.err
	}
	return e.job, r.offset, nil, e.err
}

// follow copies a job's output from offset on until the job has ended, and
// tells where bytes are missing. It returns where it got to.
func (c *cli) follow(ctx context.Context, d ipc.Handler, id string, offset int64, out io.Writer) (int64, error) {
	p := patient{stopped: c.stopped}
	for {
		o, err := d.Output(ctx, ipc.OutputRequest{ID: id, Offset: offset, WaitMS: pollFor.Milliseconds()})
		if ctx.Err() != nil {
			return offset, ctx.Err()
		}
		if p.again(ctx, err) {
			continue
		}
		if err != nil {
			return offset, err
		}
		noteGap(c.err, o)
		if _, err := out.Write(o.Data); err != nil {
			return offset, err
		}
		offset = o.Next
		if o.End {
			return offset, nil
		}
	}
}

// noteGap says where output was not kept.
func noteGap(notes io.Writer, o ipc.Output) {
	if o.Gap > 0 {
		fmt.Fprintf(notes, "jobd: %s of output are missing here, from byte %d to byte %d; the job wrote more than is kept\n", size(o.Gap), o.Offset-o.Gap, o.Offset)
	}
}

// A leave is what a person wants of a job that they wait for no longer.
type leave int

// The wishes.
const (
	leaveRunning leave = iota
	leaveCancel
	leaveWait
)

// typed returns the lines that are typed; the channel is closed at the end of
// the input. Whoever reads them ends when the process does: a read from a
// terminal cannot be broken off.
func typed(in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		for s.Scan() {
			lines <- s.Text()
		}
	}()
	return lines
}

// askLeave asks what shall become of the job. A second Ctrl-C, and the end of
// the input, leave it running.
func askLeave(c *cli, job ipc.Job, lines <-chan string, signals <-chan os.Signal) leave {
	for {
		fmt.Fprintf(c.err, "\njobd: job %s is %s: (l)eave it running, (c)ancel, (w)ait on? [l] ", shortID(job.ID), job.State)
		select {
		case <-signals:
			fmt.Fprintln(c.err)
			return leaveRunning
		case line, ok := <-lines:
			if !ok {
				fmt.Fprintln(c.err)
				return leaveRunning
			}
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "", "l", "leave":
				return leaveRunning
			case "c", "cancel":
				return leaveCancel
			case "w", "wait":
				return leaveWait
			}
		}
	}
}

// ended tells how a job ended, where its exit code does not, and gives its
// exit code.
func ended(ctx context.Context, c *cli, d ipc.Handler, job ipc.Job) error {
	delivered(ctx, d, job)
	if job.State != "succeeded" && (job.State != "failed" || job.ExitCode == nil) {
		fmt.Fprintf(c.err, "jobd: job %s %s: %s\n", shortID(job.ID), strings.ReplaceAll(job.State, "_", " "), safeLine(job.Reason))
	}
	return withCode(exitCodeOf(job), nil)
}

// screenOfErr is what messages are shown on: coloured as standard output is.
func screenOfErr(c *cli) screen { return screen{colour: c.screen.colour} }

// interrupted returns a context that ends with the first signal that asks the
// process to end.
func interrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
