package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/ipc"
)

// oneID is the positional argument of commands about a single job.
func oneID(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return checkID(cmd, args[0])
	case 0:
		return usagef(cmd, "name a job by its id, or by the start of it; 'jobd status' lists them")
	}
	return usagef(cmd, "one job at a time: %s were named", count(len(args), "job"))
}

// manyIDs is the positional arguments of commands about jobs.
func manyIDs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef(cmd, "name jobs by their ids, or by the start of them; 'jobd status' lists them")
	}
	for _, id := range args {
		if err := checkID(cmd, id); err != nil {
			return err
		}
	}
	return nil
}

// checkID refuses at once what can be no id.
func checkID(cmd *cobra.Command, id string) error {
	if id == "" || len(id) > 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return usagef(cmd, "%q is no job's id; an id is made of the digits 0-9 and a-f", id)
	}
	return nil
}

// noArguments is for commands that take none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%q is not understood here", args[0])
	}
	return nil
}

// used reports whether there can be jobs at all. Where jobd was never used,
// nothing is started to look for them. A job has its daemon, wherever its HOME
// points.
func (c *cli) used() (bool, error) {
	if c.getenv("JOBD_JOB_ID") != "" {
		return true, nil
	}
	return c.started()
}

// reach returns a client for a command about jobs that are there.
func (c *cli) reach(ctx context.Context) (ipc.Handler, error) {
	used, err := c.used()
	if err != nil {
		return nil, err
	}
	if !used {
		return nil, errors.New("there are no jobs yet; 'jobd run -- CMD' starts one")
	}
	return c.connect(ctx, true)
}

// find returns the job that an id, or the start of one, names.
func find(ctx context.Context, d ipc.Handler, id string) (ipc.Job, error) {
	return d.Get(ctx, ipc.GetRequest{ID: id})
}

// How long one request waits for news, and how long a follower goes on asking
// a daemon that cannot be reached: long enough for three of the attempts that
// shims make to start one again.
const (
	pollFor  = 30 * time.Second
	patience = 16 * time.Minute
)

// A patient repeats a request while the daemon cannot be had, so that whoever
// follows a job outlives a restart of it. The zero value is ready.
type patient struct {
	// stopped, if not nil, reports whether the daemon was stopped on purpose:
	// then there is nothing to wait for, and repeating would start it again.
	stopped func() bool
	since   time.Time
	pause   time.Duration
}

// again reports whether to repeat the request that ended with err, after a
// pause that grows to 2 s.
func (p *patient) again(ctx context.Context, err error) bool {
	if err == nil {
		p.since = time.Time{}
		return false
	}
	if !codeIs(err, ipc.CodeUnavailable) || ctx.Err() != nil || (p.stopped != nil && p.stopped()) {
		return false
	}
	if p.since.IsZero() {
		p.since, p.pause = time.Now(), 50*time.Millisecond
	}
	if time.Since(p.since) > patience {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.pause):
	}
	p.pause = min(2*p.pause, 2*time.Second)
	return true
}

// awaitFinal waits until a job has ended, and calls news, if not nil, with the
// job at every change of it. It ends early with ctx's error.
func (c *cli) awaitFinal(ctx context.Context, d ipc.Handler, job ipc.Job, news func(ipc.Job)) (ipc.Job, error) {
	p := patient{stopped: c.stopped}
	for !job.Final {
		next, err := d.Get(ctx, ipc.GetRequest{ID: job.ID, Exact: true, WaitMS: pollFor.Milliseconds(), Revision: job.Revision})
		if ctx.Err() != nil {
			return job, ctx.Err()
		}
		if p.again(ctx, err) {
			continue
		}
		if err != nil {
			return job, err
		}
		job = next
		if news != nil {
			news(job)
		}
	}
	return job, nil
}

// delivered tells the daemon that the result of a job was read here. It counts
// for jobs of shells only. That it fails does not matter: the job is then only
// listed once more.
func delivered(ctx context.Context, d ipc.Handler, job ipc.Job) {
	if job.Final && job.Shell {
		_ = d.Delivered(ctx, ipc.DeliveredRequest{ID: job.ID, Shell: true})
	}
}

// printJSON writes a value as JSON with indentation.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// answerCommand returns the command line that answers a question.
func answerCommand(job ipc.Job, q ipc.Question) string {
	s := "jobd answer " + shortID(job.ID)
	if len(job.Questions) > 1 {
		s += " --question " + q.Key
	}
	return s
}

// inTime says what becomes of a question that is not answered.
func inTime(q ipc.Question) string {
	left := shortSpan(millis(q.LeftMS)) + " left, then "
	switch q.OnTimeout {
	case "default":
		return left + "the defaults are taken"
	case "continue":
		return left + "the job goes on without an answer"
	}
	return left + "the job is ended"
}

// reporter returns a function that tells of every question of a job once.
func reporter(w io.Writer, s screen) func(ipc.Job) {
	told := make(map[string]bool)
	return func(job ipc.Job) {
		for _, q := range job.Questions {
			if told[q.Key] {
				continue
			}
			told[q.Key] = true
			fmt.Fprintf(w, "jobd: %s %s\n      %s; answer: %s\n", s.paint(yellow, "the job asks:"), safeLine(q.Message), inTime(q), answerCommand(job, q))
		}
	}
}
