package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/caller"
	"jobd/internal/ipc"
)

// newStatusCommand returns "jobd status".
func newStatusCommand(c *cli) *cobra.Command {
	var r ipc.ListRequest
	var all, asJSON, watch bool
	cmd := &cobra.Command{
		Use:     "status [ID]",
		Aliases: []string{"ps"},
		Short:   "Show jobs, and what waits for you",
		Long: `Shows the jobs that run, wait for you, or ended without anyone having read their
result, of all projects, newest first. --all shows every job that is kept, and
so does a search with --state, --key or --text. With an ID: everything about
that job, and the end of its output.

AGE is the time since the job was started. Questions to you stand last, with
the command that answers them.

--watch shows them live, with the output of the one that is selected: arrows or
j and k select, Enter shows more of its output, a answers its question, c cancels
it, q quits.`,
		Example: `  jobd status
  jobd status 3f2a
  jobd status --watch
  jobd status --all --project . --text pytest
  jobd status --state failed --state lost
  jobd status --json | jq -r '.[] | select(.state == "waiting") | .id'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneID(cmd, args)
		},
		ValidArgsFunction: completeJobs(c, func(ipc.Job) bool { return true }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkStates(cmd, r.States); err != nil {
				return err
			}
			if r.Limit < 0 {
				return usagef(cmd, "--limit cannot be %d; give a number of jobs, or 0 for all", r.Limit)
			}
			if watch && asJSON {
				return usagef(cmd, "--watch is for a person, --json for a program; give one of them")
			}
			if len(args) == 1 {
				if all || r.Project != "" || len(r.States) > 0 || r.Key != "" || r.Text != "" || r.Limit != 0 {
					return usagef(cmd, "one job was named, so there is nothing to select; leave the ID or the flags out")
				}
				if watch {
					return watchJobs(cmd.Context(), c, r, args[0])
				}
				return showJob(cmd.Context(), c, args[0], asJSON)
			}
			r.Pending = !all && len(r.States) == 0 && r.Key == "" && r.Text == ""
			if r.Project != "" {
				dir, err := filepath.Abs(r.Project)
				if err != nil {
					return fmt.Errorf("finding the directory %s: %w", r.Project, err)
				}
				r.Project = caller.Project("", dir)
			}
			if watch {
				return watchJobs(cmd.Context(), c, r, "")
			}
			return showJobs(cmd.Context(), c, r, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print a JSON array of jobs")
	flags.BoolVarP(&watch, "watch", "w", false, "show them live, until q is pressed")
	flags.BoolVarP(&all, "all", "a", false, "every job that is kept, also those whose result was read")
	flags.StringVar(&r.Project, "project", "", "only jobs of the project that `DIR` belongs to")
	flags.StringArrayVar(&r.States, "state", nil, "only jobs in `STATE`; may be repeated")
	flags.StringVar(&r.Key, "key", "", "only the job with this idempotency `KEY`")
	flags.StringVar(&r.Text, "text", "", "only jobs with `TEXT` in their name, tool, command or directory")
	flags.IntVarP(&r.Limit, "limit", "n", 0, "at most `N` jobs")
	register(cmd, "state", stateNames())
	return cmd
}

func showJobs(ctx context.Context, c *cli, r ipc.ListRequest, asJSON bool) error {
	jobs, err := listJobs(ctx, c, r)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, jobs)
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(c.err, noJobs(r))
		return err
	}
	return writeStatus(c.out, c.screen, c.now(), jobs)
}

// listJobs asks the daemon, which is started if need be. Where jobd was never
// used there is nothing to ask.
func listJobs(ctx context.Context, c *cli, r ipc.ListRequest) ([]ipc.Job, error) {
	used, err := c.used()
	if err != nil || !used {
		return []ipc.Job{}, err
	}
	d, err := c.connect(ctx, true)
	if err != nil {
		return nil, err
	}
	reply, err := d.List(ctx, r)
	if err != nil {
		return nil, err
	}
	jobs := make([]ipc.Job, 0, len(reply.Jobs))
	for _, job := range reply.Jobs {
		jobs = append(jobs, filled(job))
	}
	return jobs, nil
}

// filled makes the lists of a job arrays, also where they are empty.
func filled(job ipc.Job) ipc.Job {
	if job.Questions == nil {
		job.Questions = []ipc.Question{}
	}
	if job.Command == nil {
		job.Command = []string{}
	}
	return job
}

func noJobs(r ipc.ListRequest) string {
	switch {
	case r.Pending && r.Project != "":
		return "no job of " + r.Project + " runs, waits or has an unread result; --all shows the others"
	case r.Pending:
		return "no job runs, waits or has an unread result; 'jobd status --all' shows the others, 'jobd run -- CMD' starts one"
	case len(r.States) > 0 || r.Key != "" || r.Text != "" || r.Project != "":
		return "no such job"
	}
	return "no jobs; 'jobd run -- CMD' starts one"
}

// writeStatus renders jobs as a table, and below it what waits for a person.
func writeStatus(w io.Writer, s screen, now time.Time, jobs []ipc.Job) error {
	ids := make([]string, len(jobs))
	projects := make(map[string]bool)
	for i, job := range jobs {
		ids[i] = job.ID
		projects[job.Project] = true
	}
	short := shortIDs(ids)
	t := table{header: []string{"ID", "STATE", "AGE", "NAME"}, most: []int{0, 0, 0, 24}}
	showProject := len(projects) > 1 && (s.width == 0 || s.width >= 60)
	if showProject {
		t.header, t.most = append(t.header, "PROJECT"), append(t.most, 14)
	}
	t.header, t.most = append(t.header, "STATUS"), append(t.most, 0)
	var questions bytes.Buffer
	open := 0
	for _, job := range jobs {
		row := []cell{
			{text: short[job.ID]},
			{text: job.State, colour: stateColour(job)},
			{text: shortSpan(now.Sub(job.CreatedAt))},
			{text: safeLine(job.Name)},
		}
		if showProject {
			row = append(row, cell{text: safeLine(filepath.Base(job.Project)), colour: dim})
		}
		message := cell{text: safeLine(job.StatusMessage)}
		if len(job.Questions) > 0 {
			message.text, message.colour = "? "+safeLine(job.Questions[0].Message), yellow
		}
		t.rows = append(t.rows, append(row, message))
		for _, q := range job.Questions {
			open++
			writeQuestion(&questions, s, job, q)
		}
	}
	if err := t.write(w, s); err != nil {
		return err
	}
	if open == 0 {
		return nil
	}
	verb := "wait"
	if open == 1 {
		verb = "waits"
	}
	_, err := fmt.Fprintf(w, "\n%s\n%s", s.paint(yellow, fmt.Sprintf("%s %s for your answer:", count(open, "question"), verb)), questions.String())
	return err
}

// writeQuestion says what a job asks, how long there is, and how to answer.
func writeQuestion(w io.Writer, s screen, job ipc.Job, q ipc.Question) {
	who := safeLine(job.Name) + ": "
	ask := safeLine(q.Message)
	if s.width > 0 {
		ask = fit(ask, max(s.width-columns(who)-2, 20))
		who = fit(who, max(s.width-2, 1))
	}
	fmt.Fprintf(w, "  %s%s\n", s.paint(bold, who), ask)
	if q.Fault != "" {
		fault := "the last answer was not taken: " + safeLine(q.Fault)
		if s.width > 0 {
			fault = fit(fault, max(s.width-4, 20))
		}
		fmt.Fprintf(w, "    %s\n", s.paint(red, fault))
	}
	// The command is never cut: it is there to be copied.
	command, left := answerCommand(job, q), "("+inTime(q)+")"
	between := "  "
	if s.width > 0 && columns(command)+columns(left)+6 > s.width {
		between, left = "\n    ", fit(left, max(s.width-4, 20))
	}
	fmt.Fprintf(w, "    %s%s%s\n", s.paint(bold, command), between, s.paint(dim, left))
}

// stateColour tells good from bad from waiting.
func stateColour(job ipc.Job) colour {
	switch {
	case len(job.Questions) > 0 || job.State == "waiting":
		return yellow
	case job.State == "succeeded":
		return green
	case job.Final:
		return red
	case job.State == "running":
		return blue
	}
	return dim
}

// lastLines is how much output the details of a job show.
const lastLines = 10

func showJob(ctx context.Context, c *cli, id string, asJSON bool) error {
	d, err := c.reach(ctx)
	if err != nil {
		return err
	}
	job, err := find(ctx, d, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.out, []ipc.Job{filled(job)})
	}
	tail, err := d.Output(ctx, ipc.OutputRequest{ID: job.ID, Lines: lastLines, Limit: 16 << 10})
	if err != nil {
		return err
	}
	return writeJob(c.out, c.screen, c.now(), job, tail)
}

// writeJob renders everything about a job.
func writeJob(w io.Writer, s screen, now time.Time, job ipc.Job, tail ipc.Output) error {
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "%s  %s  %s\n", s.paint(bold, safeLine(job.Name)), s.paint(stateColour(job), job.State), job.ID)
	if job.Final {
		line("why", safeLine(job.Reason))
	} else {
		line("status", safeLine(job.StatusMessage))
	}
	line("command", safeLine(commandLine(job.Command)))
	line("directory", safeLine(job.Cwd))
	if job.Project != job.Cwd {
		line("project", safeLine(job.Project))
	}
	line("tool", safeLine(job.Tool))
	line("key", safeLine(job.Key))
	line("session", safeLine(job.Session))
	line("created", moment(job.CreatedAt, now))
	if job.StartedAt != nil {
		line("started", moment(*job.StartedAt, now))
	}
	if job.EndedAt != nil {
		line("ended", moment(*job.EndedAt, now))
	}
	ran := longSpan(millis(job.DurationMS))
	if !job.Final && job.TimeoutMS > 0 {
		ran += " of at most " + longSpan(millis(job.TimeoutMS))
	}
	line("ran", ran)
	switch {
	case job.Signal != nil:
		line("exit", "by "+*job.Signal)
	case job.ExitCode != nil:
		line("exit", fmt.Sprintf("code %d", *job.ExitCode))
	}
	if job.PID > 0 && !job.Final {
		line("process", fmt.Sprint(job.PID))
	}
	if p := job.Progress; p != nil {
		line("progress", safeLine(progressText(*p)))
	}
	switch {
	case job.DeliveredAt != nil:
		line("result", "read "+moment(*job.DeliveredAt, now))
	case job.Final:
		line("result", "not read yet; jobd result "+shortID(job.ID))
	}
	if job.Unfollowed {
		line("note", "the session that started it no longer follows it")
	}
	output := size(job.OutputBytes)
	if job.OutputDropped > 0 {
		output += ", " + size(job.OutputDropped) + " of it not kept"
	}
	line("output", output)
	if len(job.Questions) > 0 {
		fmt.Fprintf(&b, "\n%s\n", s.paint(yellow, "It waits for your answer:"))
		for _, q := range job.Questions {
			writeQuestion(&b, s, job, q)
		}
	}
	if text := strings.TrimRight(string(tail.Data), "\n"); text != "" {
		b.WriteByte('\n')
		for l := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(&b, "  | %s\n", safeLine(l))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// progressText puts a job's report of its progress in words.
func progressText(p ipc.Progress) string {
	var parts []string
	switch {
	case p.Total > 0:
		parts = append(parts, fmt.Sprintf("%s/%s (%d%%)", number(p.Done), number(p.Total), int(100*p.Done/p.Total)))
	case p.Done != 0:
		parts = append(parts, number(p.Done))
	}
	if p.Text != "" {
		parts = append(parts, p.Text)
	}
	return strings.Join(parts, " ")
}

// commandLine returns a command as it would be typed in a shell.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = shellWord(arg)
	}
	return strings.Join(words, " ")
}

func shellWord(arg string) string {
	plain := arg != "" && !slices.ContainsFunc([]rune(arg), func(r rune) bool {
		return !strings.ContainsRune("_-./:=,+@%^", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if plain {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
