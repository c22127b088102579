package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The size at which a log is set aside, and how many of those are kept.
const (
	logMax  = 8 << 20
	logKept = 2
)

// A logFile is a file of bounded size that is appended to. When it is full it
// becomes NAME.1, what was that becomes NAME.2, and so on.
type logFile struct {
	path string
	max  int64
	kept int
	// stderr: the process's standard error goes there too, so that the report
	// of a crash of the Go runtime is in the newest file.
	stderr bool

	mu   sync.Mutex
	f    *os.File
	size int64
}

// openLog opens the log at path, of mode 0600.
func openLog(path string, stderr bool) (*logFile, error) {
	l := &logFile{path: path, max: logMax, kept: logKept, stderr: stderr}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return l, nil
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: l.path, Err: errors.New("no regular file")}
	}
	if err == nil && fi.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err == nil && l.stderr {
		err = redirect(int(f.Fd()), unix.Stderr)
	}
	if err != nil {
		f.Close()
		return err
	}
	if l.f != nil {
		l.f.Close()
	}
	l.f, l.size = f, fi.Size()
	return nil
}

// Write appends one entry. A log that cannot be rotated grows on: that is
// better than losing what it has to say.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		_ = l.rotate()
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) rotate() error {
	name := func(i int) string { return fmt.Sprintf("%s.%d", l.path, i) }
	for i := l.kept; i > 1; i-- {
		if err := os.Rename(name(i-1), name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path, name(1)); err != nil {
		return err
	}
	return l.open()
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// newLog returns the daemon's log: JSON in the file and, in the foreground,
// text on standard error.
func newLog(file *logFile, foreground bool) *slog.Logger {
	var h slog.Handler = slog.NewJSONHandler(file, nil)
	if foreground {
		h = slog.NewMultiHandler(h, slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(h)
}
