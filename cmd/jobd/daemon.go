package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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

func newDaemonCommand(c *cli) *cobra.Command {
	var reborn bool
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Serve in the foreground",
		Long: `Serves in the foreground until it is told to stop, and logs to standard error
and to its log. There is no need for it: the daemon starts by itself, in the
background. It is for service managers and for looking at what happens.

A second daemon ends at once with exit code 3.`,
		Args: cobra.NoArgs,
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

func hide(cmd *cobra.Command, flag string) {
	if err := cmd.Flags().MarkHidden(flag); err != nil {
		panic(err) // it was defined a line ago
	}
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
	return fmt.Errorf("%s is jobd's daemon by its lock on %s, but does not answer on %s (%v); if it is stopped continue it, else end it with SIGKILL",
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
	defer file.Close()
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

// life is a daemon while it serves. Its fields belong to the goroutine of lead
// but for the channels.
type life struct {
	places config.Places
	log    *slog.Logger
	idle   time.Duration

	claim  *claim
	alive  *os.File
	spent  []any // locks on files that were removed; held until the end
	server *ipc.Server
	socket *socket
	db     fileID // of the database

	leaving chan string   // why the daemon leaves
	failed  chan error    // of a listener or the service
	changed chan struct{} // the files are to be looked at

	wg sync.WaitGroup
}

func (d *life) lead(ctx context.Context) error {
	defer runtime.KeepAlive(d)
	started := time.Now()
	exe, err := config.Sibling("jobd")
	if err != nil {
		return err
	}
	svc, err := wire(ctx, surroundings{
		places: d.places, log: d.log, leave: d.leave,
		status: ipc.Status{Protocol: ipc.Protocol, Version: buildVersion(), PID: os.Getpid(), StartedAt: started.UTC(),
			Executable: exe, StateDir: d.places.StateDir},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := svc.close(); err != nil {
			d.log.Error("closing", "err", err)
		}
	}()
	// Whoever starts a daemon wants it. This comes before anybody can stop it.
	if err := os.Remove(d.places.Stopped); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting that jobd was stopped: %w", err)
	}
	if d.db, _, err = idOfPath(d.places.DB); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at the database: %w", err)
	}
	if d.socket, err = bind(ctx, d.places.Socket); err != nil {
		return err
	}

	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer d.wg.Wait()
	defer stop()
	d.server = ipc.NewServer(ipc.ServerOptions{Handler: svc.handler, Log: d.log, Version: buildVersion()})
	d.accept(d.socket)
	d.wg.Go(func() {
		if err := svc.run(work); err != nil || work.Err() == nil {
			d.fail(fmt.Errorf("the supervisor ended: %w", err))
		}
	})
	d.watch(work)
	d.log.Info("jobd serves", "version", buildVersion(), "protocol", ipc.Protocol, "pid", os.Getpid(), "socket", d.places.Socket,
		"took", time.Since(started).Round(time.Millisecond).String())

	why, err := d.serveUntil(ctx, svc.busy)
	d.log.Info("jobd leaves", "why", why)
	if uerr := d.socket.unlink(); uerr != nil {
		d.log.Error("removing the socket", "err", uerr)
	}
	bounded, cancel := context.WithTimeout(work, leaveWithin)
	defer cancel()
	if serr := d.server.Shutdown(bounded); serr != nil {
		d.log.Warn("requests were broken off", "err", serr)
	}
	return err
}

// serveUntil returns why the daemon leaves.
func (d *life) serveUntil(ctx context.Context, busy func() bool) (why string, err error) {
	tick := time.NewTicker(min(lookEvery, d.idle/4+time.Millisecond))
	defer tick.Stop()
	lastBusy := time.Now()
	for {
		select {
		case <-ctx.Done():
			return "a signal", nil
		case why := <-d.leaving:
			return why, nil
		case err := <-d.failed:
			return "a failure", err
		case <-d.changed:
			if why := d.look(ctx); why != "" {
				return why, nil
			}
		case <-tick.C:
			if why := d.look(ctx); why != "" {
				return why, nil
			}
			conns, quiet := d.server.Activity()
			if conns > 0 || busy() {
				lastBusy = time.Now()
			} else if min(time.Since(lastBusy), quiet) >= d.idle {
				return "nothing to do", nil
			}
		}
	}
}

// leave implements [surroundings].
func (d *life) leave(handOver bool) error {
	why := "another daemon follows"
	if !handOver {
		why = "it was stopped"
		if err := markStopped(d.places); err != nil {
			return &ipc.Error{Code: ipc.CodeUnavailable, Message: fmt.Sprintf("jobd goes on, since its stop could not be recorded: %v", err)}
		}
	}
	select {
	case d.leaving <- why:
	default: // it leaves already
	}
	return nil
}

// markStopped records that the daemon was stopped on purpose, so that shims do
// not start another.
func markStopped(p config.Places) error {
	f, err := os.OpenFile(p.Stopped, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// stoppedOnPurpose reports whether markStopped was called since the last start.
func stoppedOnPurpose(p config.Places) bool {
	_, err := os.Lstat(p.Stopped)
	return err == nil
}

func (d *life) fail(err error) {
	select {
	case d.failed <- err:
	default: // one reason to end is enough
	}
}

// accept serves a listener in the background.
func (d *life) accept(s *socket) {
	d.wg.Go(func() {
		if err := d.server.Serve(s.UnixListener); err != nil {
			d.fail(err)
		}
	})
}

// watch tells d.changed when one of the daemon's files goes away, until ctx
// ends.
func (d *life) watch(ctx context.Context) {
	dirs := map[string][]string{}
	for _, path := range []string{d.places.Socket, d.places.PIDFile, d.places.AliveLock, d.places.DB} {
		dirs[filepath.Dir(path)] = append(dirs[filepath.Dir(path)], filepath.Base(path))
	}
	for dir, names := range dirs {
		d.wg.Go(func() {
			if err := watchRemovals(ctx, dir, names, d.changed); err != nil {
				d.log.Warn("the daemon's files are looked at every 15 s only", "err", err)
			}
		})
	}
}

// look puts the daemon's files back where somebody has removed them. It returns
// why the daemon must leave, if it must: its state is gone, or another daemon
// has taken its place.
func (d *life) look(ctx context.Context) (why string) {
	if d.db != (fileID{}) {
		if id, _, err := idOfPath(d.places.DB); err == nil && id != d.db || errors.Is(err, fs.ErrNotExist) {
			d.log.Error("the database was removed or replaced while jobd had it open", "path", d.places.DB)
			return "its database is gone"
		}
	}
	if id, _, err := idOfPath(d.places.PIDFile); err == nil && id != d.claim.id || errors.Is(err, fs.ErrNotExist) {
		again, err := claimPIDFile(d.places)
		if err != nil {
			d.log.Error("the pid file was removed, and cannot be locked again", "err", err)
			return "its claim is lost"
		}
		d.spent = append(d.spent, d.claim)
		d.claim = again
		d.log.Warn("the pid file was removed; made another", "path", d.places.PIDFile)
	}
	held, err := idOfFD(int(d.alive.Fd()))
	if err != nil {
		d.log.Error("looking at the lock of the living daemon", "err", err)
	} else if id, _, err := idOfPath(d.places.AliveLock); err == nil && id != held || errors.Is(err, fs.ErrNotExist) {
		again, err := shim.HoldAlive(d.places.StateDir)
		if err != nil {
			d.log.Error("alive.lock was removed, and cannot be locked again", "err", err)
			return "another daemon lives"
		}
		d.spent = append(d.spent, d.alive)
		d.alive = again
		d.log.Warn("alive.lock was removed; made another", "path", d.places.AliveLock)
	}
	if d.socket.lost() {
		if err := d.rebind(ctx); err != nil {
			d.log.Error("the socket was removed, and cannot be made again", "err", err)
		}
	}
	return ""
}

// rebind listens anew where the socket was removed.
func (d *life) rebind(ctx context.Context) error {
	if err := d.places.Ensure(); err != nil {
		return err
	}
	s, err := bind(ctx, d.places.Socket)
	if err != nil {
		return err
	}
	d.accept(s)
	// Closing the old listener loses nobody: nobody finds it any more.
	d.socket.Close()
	d.socket = s
	d.log.Warn("the socket was removed; made another", "path", d.places.Socket)
	return nil
}
