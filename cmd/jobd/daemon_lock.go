package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sevlyar/go-daemon"
	"golang.org/x/sys/unix"

	"jobd/internal/config"
)

// A claim is the lock on the pid file, which makes a daemon the only one. It
// lasts until the process ends: it is never released, since whoever unlinks or
// unlocks such a file early lets a second holder in.
type claim struct {
	// held keeps alive what owns the descriptor. The finalizer of an os.File
	// would close it and give the lock away.
	held any
	id   fileID
}

// errClaimed: another process holds the pid file's lock.
var errClaimed = errors.New("the pid file is locked by another process")

// claimPIDFile takes the lock for a daemon in the foreground.
func claimPIDFile(p config.Places) (*claim, error) {
	f, err := os.OpenFile(p.PIDFile, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the pid file: %w", err)
	}
	lock := daemon.NewLockFile(f)
	if err := lock.Lock(); err != nil {
		f.Close()
		if errors.Is(err, daemon.ErrWouldBlock) {
			return nil, errClaimed
		}
		return nil, fmt.Errorf("locking %s: %w", p.PIDFile, err)
	}
	if err := lock.WritePid(); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", p.PIDFile, err)
	}
	return newClaim(f, lock)
}

func newClaim(f *os.File, held any) (*claim, error) {
	id, err := idOfFD(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("looking at the pid file: %w", err)
	}
	return &claim{held: held, id: id}, nil
}

// keep ends the claim's use in a function that returns when the process ends.
func (c *claim) keep() { runtime.KeepAlive(c.held) }

// claimant returns the process id in the pid file, for sentences only: the
// number may be anybody's by now.
func claimant(p config.Places) int {
	b, err := os.ReadFile(p.PIDFile)
	if err != nil || len(b) > 32 {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// fileID identifies a file as long as somebody holds it open.
type fileID struct{ dev, ino uint64 }

func idOfFD(fd int) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// idOfPath identifies what is at path itself, and reports whether it is a
// socket. Its error is fs.ErrNotExist where nothing is.
func idOfPath(path string) (id fileID, socket bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return fileID{uint64(st.Dev), st.Ino}, uint32(st.Mode)&unix.S_IFMT == unix.S_IFSOCK, nil
}

// awaitEnd returns when no daemon holds alive.lock.
func awaitEnd(ctx context.Context, p config.Places) error {
	f, err := os.OpenFile(p.AliveLock, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the lock of the living daemon: %w", err)
	}
	defer f.Close()
	for unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
