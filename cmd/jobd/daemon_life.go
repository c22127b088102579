package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"jobd/internal/config"
	"jobd/internal/ipc"
	"jobd/internal/shim"
)

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
	var pause rest
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
			pause.look(quiet)
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
	_ = d.socket.Close()
	d.socket = s
	d.log.Warn("the socket was removed; made another", "path", d.places.Socket)
	return nil
}
