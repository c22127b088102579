package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"jobd/internal/config"
	"jobd/internal/ipc"
	"jobd/internal/shim"
)

const goos = runtime.GOOS

// The daemon's fixed times.
const (
	// idleExit is how long a daemon stays that has nothing to do.
	idleExit = 10 * time.Minute
	// lookEvery is how often the daemon looks whether its files are in place and
	// whether it is idle.
	lookEvery = 15 * time.Second
	// leaveWithin is how long requests that are under way may take when the
	// daemon leaves.
	leaveWithin = 10 * time.Second
)

// serveOptions say how a daemon serves.
type serveOptions struct {
	// foreground: as the process that was called, logging to standard error too.
	foreground bool
	// unlessStopped: do nothing where the daemon was stopped on purpose. Shims
	// use it, which bring back a daemon that died.
	unlessStopped bool
	// idle is how long the daemon stays with nothing to do. Only an instance of
	// its own, by JOBD_HOME, can have another time than idleExit.
	idle time.Duration
}

const flagUnlessStopped = "unless-stopped"

// errStopped: the daemon was stopped on purpose and is to stay so.
var errStopped = errors.New("jobd was stopped, and stays so")

// A service is what a daemon serves, apart from its life as a process.
type service struct {
	handler ipc.Handler
	// run works until ctx ends.
	run func(ctx context.Context) error
	// busy reports whether there are jobs that are not final.
	busy func() bool
	// close ends what the service has opened. It is called last.
	close func() error
}

// surroundings are what a service is told of its daemon.
type surroundings struct {
	places config.Places
	log    *slog.Logger
	// status is what stays the same while the daemon lives.
	status ipc.Status
	// leave makes the daemon end once requests that are under way are answered.
	// Without handOver it first records that it was stopped on purpose, and
	// leaves only if it could.
	leave func(handOver bool) error
}

func newDaemonCommand(*cli) *cobra.Command {
	var reborn bool
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Serve in the foreground",
		Long: `Serves in the foreground until it is told to stop, and logs to standard error
and to its log. There is no need for it: the daemon starts by itself, in the
background. It is for service managers and for looking at what happens.

A second daemon ends at once with exit code 3.`,
		Example: `  jobd daemon              # serve here, until Ctrl-C; jobs go on after it`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reborn {
				return serveReborn(cmd.Context(), o)
			}
			o.foreground = true
			return serveForeground(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&reborn, "reborn", false, "")
	hide(cmd, "reborn")
	cmd.Flags().BoolVar(&o.unlessStopped, flagUnlessStopped, false, "do nothing after a jobd stop")
	hide(cmd, flagUnlessStopped)
	addIdleFlag(cmd, &o.idle)
	return cmd
}

// addIdleFlag adds what only tests of an instance of their own may set.
func addIdleFlag(cmd *cobra.Command, idle *time.Duration) {
	cmd.Flags().DurationVar(idle, "idle-exit", idleExit, "")
	hide(cmd, "idle-exit")
}

// hide keeps a flag of cmd out of its help.
func hide(cmd *cobra.Command, flag string) {
	_ = cmd.Flags().MarkHidden(flag) // fails for a flag that there is not
}

// serveForeground serves as this process, with the environment, directory and
// umask that a daemon in the background has.
func serveForeground(ctx context.Context, o serveOptions) error {
	if err := outsideJob("daemon"); err != nil {
		return err
	}
	p, err := config.Find()
	if err != nil {
		return err
	}
	if err := p.Ensure(); err != nil {
		return err
	}
	closeOnExec()
	unix.Umask(0o077)
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("leaving the working directory: %w", err)
	}
	kept := config.DaemonEnv(os.Environ())
	os.Clearenv()
	for _, kv := range kept {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	claim, err := claimInTime(ctx, p)
	if err != nil {
		return err
	}
	return serve(ctx, p, claim, o)
}

// claimInTime takes the claim. A daemon that is about to leave is waited for.
func claimInTime(ctx context.Context, p config.Places) (*claim, error) {
	for end := time.Now().Add(4 * time.Second); ; {
		claim, err := claimPIDFile(p)
		if !errors.Is(err, errClaimed) {
			return claim, err
		}
		s, serr := askStatus(ctx, p)
		if serr == nil {
			return nil, withCode(exitRunning, fmt.Errorf("jobd is already running, process %d", s.PID))
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return nil, withCode(exitRunning, silent(p, serr))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// silent is the error for a daemon that holds the claim and does not answer.
func silent(p config.Places, err error) error {
	who := "another process"
	if pid := claimant(p); pid > 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return fmt.Errorf("%s is jobd's daemon by its lock on %s, but does not answer on %s (%w); if it is stopped continue it, else end it with SIGKILL",
		who, p.PIDFile, p.Socket, err)
}

// serve is the life of a daemon that holds the claim. It returns when the
// daemon was told to end, by ctx, a signal or a request, or has been idle. Jobs
// are not touched by that: their shims hold them.
func serve(ctx context.Context, p config.Places, claim *claim, o serveOptions) (err error) {
	defer claim.keep()
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer restore()
	// Caught, not ignored: what is ignored stays so in every job.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(ignored)

	file, err := openLog(p.Log, !o.foreground)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	log := newLog(file, o.foreground)
	defer func() {
		if err != nil && !errors.Is(err, errStopped) {
			log.Error("jobd ends", "err", err)
		}
	}()

	alive, err := shim.HoldAlive(p.StateDir)
	if err != nil {
		return err
	}
	// With the lock held: jobd stop first writes the file and then looks for a
	// holder, so one of the two sees the other.
	if o.unlessStopped && stoppedOnPurpose(p) {
		return errStopped
	}
	if p.Home == "" || o.idle <= 0 {
		o.idle = idleExit
	}
	d := &life{places: p, log: log, idle: o.idle, claim: claim, alive: alive, leaving: make(chan string, 1),
		failed: make(chan error, 1), changed: make(chan struct{}, 1)}
	return d.lead(ctx)
}
