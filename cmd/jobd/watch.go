package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"jobd/internal/ipc"
)

// The pace of "status --watch".
const (
	// watchPace is the least time between two looks at the jobs.
	watchPace = time.Second
	// watchShare bounds the share of time that looking takes where there are so
	// many jobs that a list of them takes long: one part in so many.
	watchShare = 10
	// watchPatience is how long a look may take before jobd counts as away. The
	// client goes on starting a daemon in the meantime.
	watchPatience = 2 * time.Second
	// watchFrames bounds how often a second the screen is written, and then
	// only what has changed on it.
	watchFrames = 10
)

// watchJobs shows jobs until the person has seen enough. With an id it begins
// with the output of that job.
func watchJobs(ctx context.Context, c *cli, r ipc.ListRequest, id string) error {
	if !c.screen.terminal {
		return errors.New("--watch needs a terminal; elsewhere repeat jobd status --json, or let jobd wait ID wait for an end")
	}
	o := &observer{c: c, r: r}
	if id != "" {
		d, err := c.reach(ctx)
		if err != nil {
			return err
		}
		job, err := find(ctx, d, id)
		if err != nil {
			return err
		}
		o.only = job.ID
	}
	if c.getenv("TERM") == "dumb" {
		return o.repeat(ctx)
	}
	m := newWatch(c.screen, c.now(), watchDeeds{
		look:   func(g glance) tea.Cmd { return func() tea.Msg { return o.look(ctx, g) } },
		cancel: func(job ipc.Job) tea.Cmd { return func() tea.Msg { return o.cancel(ctx, job) } },
		answer: o.answer,
	})
	m.selected, m.single, m.output = o.only, o.only != "", o.only != ""
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(c.out), tea.WithFPS(watchFrames)).Run()
	switch {
	case errors.Is(err, tea.ErrInterrupted):
		return nil // a signal, which is as good as q
	case err != nil:
		return fmt.Errorf("showing the jobs: %w", err)
	}
	return nil
}

// An observer asks the daemon what a watch shows.
type observer struct {
	c *cli
	r ipc.ListRequest
	// only is the one job that is watched, "" for those that r selects.
	only string
	d    ipc.Handler
}

// A glance is what one look is to find out.
type glance struct {
	// jobs: the list of jobs; else only the tail.
	jobs bool
	// tail is the job whose last lines are wanted, "" for none.
	tail  string
	lines int
	// last are jobs whose last line of output is wanted, since their status
	// message is what they report of themselves.
	last []string
}

// A sight is what a look found out.
type sight struct {
	glance
	at   time.Time
	took time.Duration
	list []ipc.Job
	// tails are the last lines by job; a job that has none is missing.
	tails map[string][]string
	// away is why there is nothing to see.
	away error
}

var errWatchStopped = errors.New("jobd was stopped, and no job is lost; jobd start starts it again")

// look asks the daemon. It starts one that is missing, unless it was stopped on
// purpose: then a watch is no reason to start it.
func (o *observer) look(ctx context.Context, g glance) sight {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	s := sight{glance: g, tails: make(map[string][]string)}
	s.away = o.see(ctx, g, &s)
	s.at, s.took = o.c.now(), time.Since(began)
	return s
}

func (o *observer) see(ctx context.Context, g glance, s *sight) error {
	used, err := o.c.used()
	if err != nil || !used {
		return err
	}
	if o.c.stopped != nil && o.c.stopped() {
		return errWatchStopped
	}
	if o.d == nil {
		if o.d, err = o.c.connect(ctx, true); err != nil {
			return err
		}
	}
	if g.jobs {
		if s.list, err = o.list(ctx); err != nil {
			return err
		}
	}
	wanted := map[string]int{}
	for _, id := range g.last {
		wanted[id] = 1
	}
	if g.tail != "" {
		wanted[g.tail] = max(g.lines, 1)
	}
	for id, lines := range wanted {
		out, err := o.d.Output(ctx, ipc.OutputRequest{ID: id, Lines: lines, Limit: 64 << 10})
		switch {
		case codeIs(err, ipc.CodeNotFound), codeIs(err, ipc.CodeExpired):
			// It was removed since; the list will say so.
		case err != nil:
			return err
		default:
			s.tails[id] = tailLines(out.Data)
		}
	}
	return nil
}

func (o *observer) list(ctx context.Context) ([]ipc.Job, error) {
	if o.only == "" {
		reply, err := o.d.List(ctx, o.r)
		return reply.Jobs, err
	}
	job, err := o.d.Get(ctx, ipc.GetRequest{ID: o.only, Exact: true})
	if codeIs(err, ipc.CodeNotFound) || codeIs(err, ipc.CodeExpired) {
		return nil, nil
	}
	return []ipc.Job{job}, err
}

// tailLines returns the lines of the end of an output, safe to show. Of a line
// that was written over and over, as a progress bar is, it is the last state.
func tailLines(data []byte) []string {
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = safeLine(line[strings.LastIndexByte(line, '\r')+1:])
	}
	return lines
}

// A cancelled is what came of the wish to cancel a job.
type cancelled struct {
	job ipc.Job
	err error
}

func (o *observer) cancel(ctx context.Context, job ipc.Job) cancelled {
	d, err := o.c.connect(ctx, true)
	if err != nil {
		return cancelled{job, err}
	}
	_, err = d.Cancel(ctx, ipc.CancelRequest{ID: job.ID, Reason: "cancelled in a shell"})
	return cancelled{job, err}
}

// An answered is what came of "jobd answer".
type answered struct {
	job  ipc.Job
	code int
	err  error
}

// answer leaves the screen to "jobd answer", a process of its own: what reads
// the terminal there ends with it.
func (o *observer) answer(job ipc.Job) tea.Cmd {
	exe, err := os.Executable()
	if err != nil {
		return func() tea.Msg { return answered{job: job, err: fmt.Errorf("finding this program: %w", err)} }
	}
	a := &answering{cmd: exec.Command(exe, "answer", job.ID)} //nolint:noctx // the person ends it
	return tea.Exec(a, func(err error) tea.Msg {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return answered{job: job, code: exit.ExitCode()}
		}
		return answered{job: job, err: err}
	})
}

// An answering is a run of "jobd answer" between two screens of a watch. It
// implements tea.ExecCommand.
type answering struct {
	cmd *exec.Cmd
	in  io.Reader
	err io.Writer
}

// SetStdin implements tea.ExecCommand.
func (a *answering) SetStdin(r io.Reader) { a.in, a.cmd.Stdin = r, r }

// SetStdout implements tea.ExecCommand.
func (a *answering) SetStdout(w io.Writer) { a.cmd.Stdout = w }

// SetStderr implements tea.ExecCommand.
func (a *answering) SetStderr(w io.Writer) { a.err, a.cmd.Stderr = w, w }

// Run implements tea.ExecCommand. What went wrong stays on the screen until it
// was read.
func (a *answering) Run() error {
	err := a.cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitSignal+int(syscall.SIGINT)) {
		fmt.Fprint(a.err, "\nEnter goes back to the jobs. ")
		for b := make([]byte, 1); ; {
			// Byte by byte: what follows the line is for the table.
			if n, err := a.in.Read(b); err != nil || n == 1 && b[0] == '\n' {
				break
			}
		}
	}
	return err
}

// repeat is the watch of a terminal that cannot move its cursor: the status
// once more whenever it has changed.
func (o *observer) repeat(ctx context.Context) error {
	ctx, stop := interrupted(ctx)
	defer stop()
	last := ""
	for {
		s := o.look(ctx, glance{jobs: true})
		if ctx.Err() != nil {
			return nil // the person has seen enough
		}
		now := awayText(s.away)
		if s.away == nil {
			now = signature(s.list)
		}
		if now != last {
			if err := o.print(s); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause(s.took)):
		}
	}
}

func (o *observer) print(s sight) error {
	_, err := fmt.Fprintf(o.c.out, "%s\n", s.at.Format(time.TimeOnly))
	switch {
	case err != nil:
	case s.away != nil:
		_, err = fmt.Fprintln(o.c.out, awayText(s.away))
	case len(s.list) == 0:
		_, err = fmt.Fprintln(o.c.out, noJobs(o.r))
	default:
		err = writeStatus(o.c.out, o.c.screen, s.at, s.list)
	}
	if err == nil {
		_, err = fmt.Fprintln(o.c.out)
	}
	return err
}

// signature changes with what a status shows, ages left out.
func signature(list []ipc.Job) string {
	var b strings.Builder
	for _, job := range list {
		fmt.Fprintf(&b, "%s %s %d %d %s\n", job.ID, job.State, job.Revision, len(job.Questions), job.StatusMessage)
	}
	return b.String()
}

// pause is the time until the next look.
func pause(took time.Duration) time.Duration { return max(watchPace, watchShare*took) }

// awayText says that there is no daemon to ask, "" for nil. It is one line.
func awayText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errWatchStopped):
		return err.Error()
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
	case errors.Is(err, context.DeadlineExceeded), codeIs(err, ipc.CodeUnavailable):
		return "jobd is away, trying again"
	}
	return "jobd is away, trying again: " + safeLine(err.Error())
}
