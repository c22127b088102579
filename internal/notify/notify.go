// Package notify runs the command that tells a person of an open question or a
// finished job. The command is a list of arguments; placeholders are replaced
// inside them, and nothing ever passes through a shell.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Notice is what the command is told. Its texts are one line each.
type Notice struct {
	Event   string // "question" or "finished"
	Job     string // id
	Name    string
	State   string
	Project string
	Message string // the question, or why the job ended
	Command string // what the person may type next
}

// placeholders are what a configured argument may hold.
var placeholders = []struct {
	name string
	get  func(Notice) string
}{
	{"{event}", func(n Notice) string { return n.Event }},
	{"{job}", func(n Notice) string { return n.Job }},
	{"{name}", func(n Notice) string { return n.Name }},
	{"{state}", func(n Notice) string { return n.State }},
	{"{project}", func(n Notice) string { return n.Project }},
	{"{message}", func(n Notice) string { return n.Message }},
	{"{command}", func(n Notice) string { return n.Command }},
}

// The bounds of a notification: how many may wait, and how long one may take.
const (
	maxPending = 64
	maxRun     = 30 * time.Second
)

// A Notifier runs one command after the other in the background.
type Notifier struct {
	argv    []string
	environ []string
	log     *slog.Logger
	pending chan Notice
	end     context.CancelFunc
	wg      sync.WaitGroup
}

// New returns a notifier for a command with placeholders; an empty one tells
// nobody. environ is the command's environment. Close ends it.
func New(argv, environ []string, log *slog.Logger) *Notifier {
	ctx, end := context.WithCancel(context.Background())
	n := &Notifier{argv: argv, environ: environ, log: log, pending: make(chan Notice, maxPending), end: end}
	if len(argv) > 0 {
		n.wg.Add(1)
		go n.run(ctx)
	}
	return n
}

// Tell queues a notice and returns at once. A notice that finds the queue full
// is dropped: a person is not helped by a flood.
func (n *Notifier) Tell(notice Notice) {
	if len(n.argv) == 0 {
		return
	}
	select {
	case n.pending <- notice:
	default:
		n.log.Warn("dropping a notification; too many are waiting", "job", notice.Job)
	}
}

// Close drops what is queued, ends a command that runs, and returns when it is
// gone.
func (n *Notifier) Close() {
	n.end()
	n.wg.Wait()
}

func (n *Notifier) run(ctx context.Context) {
	defer n.wg.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case notice := <-n.pending:
			if err := n.tell(ctx, notice); err != nil && ctx.Err() == nil {
				n.log.Error("running the notify command", "job", notice.Job, "err", err)
			}
		}
	}
}

func (n *Notifier) tell(ctx context.Context, notice Notice) error {
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	argv := Fill(n.argv, notice)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = n.environ
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out head
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%s took longer than %s", argv[0], maxRun)
		}
		return fmt.Errorf("%w: %s", err, out.String())
	}
	return nil
}

// Fill replaces the placeholders in each argument of a command. A value stays
// within its argument, whatever it holds; text that a value brings along is not
// searched for placeholders again.
func Fill(argv []string, notice Notice) []string {
	pairs := make([]string, 0, 2*len(placeholders))
	for _, p := range placeholders {
		// An argument cannot hold a NUL byte.
		pairs = append(pairs, p.name, strings.ReplaceAll(p.get(notice), "\x00", " "))
	}
	r := strings.NewReplacer(pairs...)
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = r.Replace(a)
	}
	return out
}

// head keeps the beginning of what a command prints, for the log.
type head struct{ b []byte }

const maxHead = 500

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), maxHead-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(h.b), "?")) }
