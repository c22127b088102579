package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/config"
)

// A socket is a listener on a path, and the identity of the file there. While
// the listener is open the kernel keeps the file's number from being used
// again, so that numbers can be compared.
type socket struct {
	*net.UnixListener
	path string
	id   fileID
}

// bind listens on the path. Only who holds the claim may call it: a socket on
// which nobody listens is then one that a dead daemon left behind, and is
// removed; anything else is not.
func bind(ctx context.Context, path string) (*socket, error) {
	switch id, isSocket, err := idOfPath(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("looking at the socket: %w", err)
	case !isSocket:
		return nil, fmt.Errorf("%s is in the way of jobd's socket and is none; remove it", path)
	default:
		if answers(ctx, path) {
			return nil, fmt.Errorf("another program listens on %s; end it first", path)
		}
		// Between looking and removing only a process of this user could put
		// another socket there, and none without the claim does.
		if again, _, err := idOfPath(path); err == nil && again == id {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("removing the socket of a jobd that is gone: %w", err)
			}
		}
	}
	// The process's umask is 077, so that the socket is closed to others from
	// the first moment.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, bindFault(path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("closing the socket to others: %w", err)
	}
	id, _, err := idOfPath(path)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("looking at the socket: %w", err)
	}
	return &socket{UnixListener: l, path: path, id: id}, nil
}

func bindFault(path string, err error) error {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this process may not make the socket %s, most likely since it runs in a sandbox; run jobd start outside of it, or allow it in Claude Code's settings by sandbox.network.allowUnixSockets: [%q]: %w",
			path, path, err)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("the socket's path %s has %d bytes, and a socket can have %d at most; set %s to a directory with a shorter path",
			path, len(path), config.SocketPathMax(goos), config.EnvHome)
	}
	return fmt.Errorf("making the socket: %w", err)
}

// answers reports whether somebody listens on the socket at path.
func answers(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		// A full queue means that somebody has one.
		return errors.Is(err, syscall.EAGAIN) || ctx.Err() != nil
	}
	c.Close()
	return true
}

// lost reports whether the file at the path is no longer this socket.
func (s *socket) lost() bool {
	id, _, err := idOfPath(s.path)
	return err != nil || id != s.id
}

// unlink removes the file if it is this socket's. It must be called while the
// listener is open: after that the file's number may be another's.
func (s *socket) unlink() error {
	if s.lost() {
		return nil
	}
	return os.Remove(s.path)
}

// closeOnExecEach sets the flag on each descriptor that the directory lists.
func closeOnExecEach(dir string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range names {
		if fd, err := strconv.Atoi(filepath.Base(e.Name())); err == nil && fd > 2 {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC) // the listing's own is closed by now
		}
	}
}
