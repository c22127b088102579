package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sevlyar/go-daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// startOptions are the flags of "jobd start".
type startOptions struct {
	// within bounds the whole start.
	within time.Duration
	serve  serveOptions
}

func newStartCommand(c *cli) *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the daemon in the background",
		Long: `Starts the daemon in the background and returns when it answers. There is
seldom need for it: whatever needs the daemon starts it. It is no error if it
runs already.`,
		Example: `  jobd start               # start it now, rather than with the first job`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := config.Find()
			if err != nil {
				return err
			}
			if o.serve.unlessStopped && stoppedOnPurpose(p) {
				_, err := fmt.Fprintln(c.out, errStopped)
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.within)
			defer cancel()
			s, running, err := start(ctx, p, o.serve)
			if errors.Is(err, errStopped) {
				_, err = fmt.Fprintln(c.out, err)
				return err
			}
			if err != nil {
				return err
			}
			if running {
				_, err = fmt.Fprintf(c.out, "jobd is already running, process %d\n", s.PID)
			} else {
				_, err = fmt.Fprintf(c.out, "jobd started, process %d\n", s.PID)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&o.within, "within", 15*time.Second, "give up after this time")
	cmd.Flags().BoolVar(&o.serve.unlessStopped, flagUnlessStopped, false, "do nothing after a jobd stop")
	addIdleFlag(cmd, &o.serve.idle)
	return cmd
}

// start starts a daemon and returns when it answers. running is true where one
// did before. ctx bounds it.
func start(ctx context.Context, p config.Places, o serveOptions) (s ipc.Status, running bool, err error) {
	if err := outsideJob("start"); err != nil {
		return ipc.Status{}, false, err
	}
	if err := p.Ensure(); err != nil {
		return ipc.Status{}, false, err
	}
	var silence error
	killed := 0
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if s, silence = askStatus(ctx, p); silence == nil {
			return s, true, nil
		}
		if errors.Is(silence, syscall.EPERM) || errors.Is(silence, syscall.EACCES) {
			return ipc.Status{}, false, silence // a daemon of this process could not do better
		}
		child, err := reborn(p, o)
		if err == nil {
			s, err = awaitBirth(ctx, p, child)
			if killed++; errors.Is(err, errKilled) && killed < birthTries && ctx.Err() == nil {
				continue
			}
			return s, false, err
		}
		if !errors.Is(err, daemon.ErrWouldBlock) {
			return ipc.Status{}, false, fmt.Errorf("starting the daemon: %w", err)
		}
		// Another start is under way, or a daemon is about to leave.
		select {
		case <-ctx.Done():
			return ipc.Status{}, false, silent(p, silence)
		case <-time.After(pause):
		}
	}
}

// reborn starts this program again as a daemon: in a session of its own, with
// the lock on the pid file, the log as its standard output and error, and
// nothing else of this process.
func reborn(p config.Places, o serveOptions) (*os.Process, error) {
	// A process that inherited the library's mark would take itself for the
	// daemon.
	if err := os.Unsetenv(daemon.MARK_NAME); err != nil {
		return nil, err
	}
	closeOnExec()
	old := unix.Umask(0o077) // for the files that the library makes
	defer unix.Umask(old)
	args := []string{"jobd", "daemon", "--reborn"}
	if p.Home != "" && o.idle > 0 && o.idle != idleExit {
		args = append(args, "--idle-exit", o.idle.String())
	}
	if o.unlessStopped {
		args = append(args, "--"+flagUnlessStopped)
	}
	env := config.DaemonEnv(os.Environ())
	if len(env) == 0 {
		// The library takes none for all.
		env = []string{"PATH=" + os.Getenv("PATH")}
	}
	child, err := (&daemon.Context{
		PidFileName: p.PIDFile,
		PidFilePerm: 0o600,
		LogFileName: p.Log,
		LogFilePerm: 0o600,
		WorkDir:     "/",
		Umask:       0o077,
		Env:         env,
		Args:        args,
	}).Reborn()
	if child != nil {
		return child, nil // where err is not nil it has ended at once; its end tells more
	}
	return nil, err
}

// birthTries is how often a daemon is started that is killed before it answers.
// Its end says nothing against the next one; a second and third may meet
// somebody who kills them all.
const birthTries = 3

// errKilled says that a signal ended a daemon before it answered.
var errKilled = errors.New("killed")

// awaitBirth returns when the new daemon answers, or says why it ended.
func awaitBirth(ctx context.Context, p config.Places, child *os.Process) (ipc.Status, error) {
	type end struct {
		state *os.ProcessState
		err   error
	}
	ended := make(chan end, 1)
	// It ends with the daemon, or with this process, which is about to.
	go func() {
		state, err := child.Wait()
		ended <- end{state, err}
	}()
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		s, err := askStatus(ctx, p)
		if err == nil && s.PID == child.Pid {
			return s, nil
		}
		select {
		case e := <-ended:
			if why := readStartError(p); why == errStopped.Error() {
				return ipc.Status{}, errStopped
			} else if why != "" {
				return ipc.Status{}, errors.New(why)
			}
			if e.err != nil {
				return ipc.Status{}, fmt.Errorf("waiting for the daemon: %w", e.err)
			}
			err := fmt.Errorf("the daemon ended at once (%v); its log, %s, may say why", e.state, p.Log)
			if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				err = fmt.Errorf("%w: %w", errKilled, err)
			}
			return ipc.Status{}, err
		case <-ctx.Done():
			return ipc.Status{}, fmt.Errorf("the daemon, process %d, does not answer yet; its log is %s", child.Pid, p.Log)
		case <-time.After(pause):
		}
	}
}

// serveReborn is the other side of reborn, in the new process.
func serveReborn(ctx context.Context, o serveOptions) error {
	p, err := config.Find()
	if err != nil {
		return err
	}
	// Only reborn gives a process these descriptors; the mark alone may have
	// been inherited by a process that was started by hand.
	var stdin unix.Stat_t
	lock, lerr := idOfFD(4)
	file, _, ferr := idOfPath(p.PIDFile)
	if !daemon.WasReborn() || unix.Fstat(0, &stdin) != nil || uint32(stdin.Mode)&unix.S_IFMT != unix.S_IFIFO || lerr != nil || ferr != nil || lock != file {
		return usagef(nil, "--reborn is for jobd itself; use jobd start, or jobd daemon")
	}
	dctx := &daemon.Context{}
	_, err = dctx.Reborn()
	// The library leaves the lock and the null device open for every program
	// that the daemon starts, and its mark in their environment. A job that held
	// the lock would keep the next daemon from starting.
	closeOnExec()
	_ = syscall.Close(3)
	if err == nil {
		err = os.Unsetenv(daemon.MARK_NAME)
	}
	if err == nil {
		clearStartError(p)
		err = serve(ctx, p, &claim{held: dctx, id: lock}, o)
	}
	if err != nil {
		writeStartError(p, err)
	}
	return err
}

// The error of a daemon that could not start lies in a file for whoever started
// it: there is no pipe between them that could outlive the start.
func startErrorFile(p config.Places) string { return filepath.Join(p.StateDir, "start.error") }

func clearStartError(p config.Places) { _ = os.Remove(startErrorFile(p)) }

func writeStartError(p config.Places, err error) {
	_ = os.WriteFile(startErrorFile(p), []byte(err.Error()+"\n"), 0o600) // the log has it too
}

func readStartError(p config.Places) string {
	f, err := os.Open(startErrorFile(p))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return ""
	}
	clearStartError(p)
	return strings.TrimSpace(string(b))
}
