package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A flight is one start of a daemon, for all calls of a client that wait for
// it.
type flight struct {
	done     chan struct{}
	err      error
	exchange bool
}

// start starts a daemon, or waits for the start that another call of this
// client has begun. With exchange an older daemon is asked to leave first. It
// is tried once, and a failure is remembered for a short while, so that a
// burst of calls makes no burst of processes.
func (c *Client) start(ctx context.Context, exchange bool) error {
	for {
		f, err := c.board(exchange)
		if err != nil {
			return err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for jobd to start: %w", context.Cause(ctx))
		}
		if f.err != nil || f.exchange || !exchange {
			return f.err
		}
	}
}

// board returns the flight that is under way, or a new one.
func (c *Client) board(exchange bool) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.Err() != nil:
		return nil, &Error{Code: CodeUnavailable, Message: "this client is closed"}
	case c.starting != nil:
		return c.starting, nil
	case c.failed != nil && time.Since(c.failedAt) < startMemory:
		return nil, c.failed
	}
	f := &flight{done: make(chan struct{}), exchange: exchange}
	c.starting = f
	c.flight.Go(func() { c.fly(f) })
	return f, nil
}

// fly carries out one start. It belongs to no call: when one gives up, others
// may wait for it still.
func (c *shared) fly(f *flight) {
	within := startWithin
	if f.exchange {
		within = handOverWithin
	}
	ctx, cancel := context.WithTimeout(c.life, within)
	defer cancel()
	f.err = c.bringUp(ctx, f.exchange)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting, c.failed, c.failedAt = nil, f.err, time.Now()
	close(f.done)
}

// Restart asks a daemon that runs to leave for another of this program's
// installation and starts that, whatever their versions. Without one it only
// starts one. Clients that find no daemon meanwhile wait for the new one. ctx
// bounds it.
func (c *Client) Restart(ctx context.Context) error {
	return c.underLock(ctx, func(ctx context.Context) error {
		if err := c.dismiss(ctx); err != nil {
			return err
		}
		return c.runStart(ctx)
	})
}

// bringUp sees to it that a daemon of a protocol that c speaks answers.
func (c *shared) bringUp(ctx context.Context, exchange bool) error {
	return c.underLock(ctx, func(ctx context.Context) error {
		if exchange {
			if s, err := c.status(ctx); err == nil && s.Protocol >= c.o.Protocol {
				return nil // somebody else has exchanged it
			}
			if err := c.dismiss(ctx); err != nil {
				return err
			}
		} else if conn, err := c.dial(ctx); err == nil {
			return conn.Close()
		} else if !errors.Is(err, errAbsent) {
			return err
		}
		return c.runStart(ctx)
	})
}

// underLock runs f while no other client starts or exchanges a daemon.
func (c *shared) underLock(ctx context.Context, f func(context.Context) error) error {
	if c.o.Prepare != nil {
		if err := c.o.Prepare(); err != nil {
			return &Error{Code: CodeUnavailable, Message: "jobd cannot be started: " + err.Error()}
		}
	}
	lock, err := c.lockStart(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return f(ctx)
}

// lockStart takes the start lock. The kernel gives it back when the process
// ends, however it ends.
func (c *shared) lockStart(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(c.o.StartLock, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, c.lockFault(err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, c.lockFault(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			defer f.Close()
			return nil, &Error{Code: CodeUnavailable, Message: fmt.Sprintf("jobd is not running, and its start is blocked: %s is locked by %s", c.o.StartLock, holder(f)),
				Hint: "end that process, and try again"}
		}
	}
	// For the error above, in another process.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}

func (c *shared) lockFault(err error) error {
	e := &Error{Code: CodeUnavailable, Message: fmt.Sprintf("jobd cannot be started: its start lock cannot be used: %v", err)}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		e.Hint = fmt.Sprintf("make the directory %s writable for you, or set JOBD_HOME to one that is", filepath.Dir(c.o.StartLock))
	}
	return e
}

// holder names the process that a lock file tells of.
func holder(f *os.File) string {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	var pid int
	if _, err := fmt.Sscan(string(buf[:n]), &pid); err != nil || pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// status asks the daemon for its frozen status, without any help.
func (c *shared) status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var s Status
	err := (&Client{shared: c, passive: true}).send(ctx, routes[pathStatus], "", nil, &s)
	return s, err
}

// dismiss asks the daemon to leave for another, and returns when nobody
// listens on the socket any more.
func (c *shared) dismiss(ctx context.Context) error {
	s, err := c.status(ctx)
	if errors.Is(err, errAbsent) {
		return nil
	}
	if err == nil {
		var out Empty
		err = (&Client{shared: c, passive: true}).send(ctx, routes[pathStop], "", StopRequest{HandOver: true}, &out)
	}
	if err != nil && !errors.Is(err, errBroken) && !errors.Is(err, errAbsent) {
		return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("jobd %s, process %d, was asked to make place and did not: %v", s.Version, s.PID, err),
			Hint: "end it by its process id, and try again"}
	}
	c.transport.CloseIdleConnections()
	for {
		conn, err := c.dial(ctx)
		if errors.Is(err, errAbsent) {
			return nil
		}
		if err == nil {
			conn.Close()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("jobd %s, process %d, was asked to make place and still runs", s.Version, s.PID),
				Hint: "end it by its process id, and try again"}
		}
	}
}

// runStart runs "jobd start", which returns when the daemon answers.
func (c *shared) runStart(ctx context.Context) error {
	within := startWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = time.Until(deadline)
	}
	// It should give up by itself, and say why.
	own := max(within-within/8, 100*time.Millisecond)
	cmd := exec.CommandContext(ctx, c.o.Executable, "start", "--within", own.String())
	cmd.Args[0] = "jobd"
	cmd.Env = c.o.Env
	cmd.Dir = "/"
	// Its own session: a Ctrl-C at this client must not break off a start that
	// others wait for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said := &bounded{max: 4 << 10}
	cmd.Stderr = said
	cmd.WaitDelay = 200 * time.Millisecond
	err := cmd.Run()
	if err == nil {
		return nil
	}
	e := &Error{Code: CodeUnavailable}
	why := strings.TrimPrefix(strings.TrimSpace(string(said.kept)), "jobd: ")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Message = fmt.Sprintf("jobd cannot be started: the program %s is missing", c.o.Executable)
		e.Hint = "install jobd again"
	case ctx.Err() != nil:
		e.Message = fmt.Sprintf("jobd did not start within %v", within.Round(100*time.Millisecond))
		if why != "" {
			e.Message += ": " + why
		}
		e.Hint = "it may still be about to; its log is " + c.o.Log
	case why != "":
		e.Message = "jobd cannot be started: " + why
	default:
		e.Message = fmt.Sprintf("jobd cannot be started: %s: %v", c.o.Executable, err)
		e.Hint = "its log may say why: " + c.o.Log
	}
	return e
}

// bounded keeps the first bytes written to it and drops the rest.
type bounded struct {
	kept []byte
	max  int
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), b.max-len(b.kept))]...)
	return len(p), nil
}
