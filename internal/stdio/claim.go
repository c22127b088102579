//go:build linux || darwin

package stdio

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Claim takes the process's standard input and output for MCP and returns them
// as files of their own. After it, descriptor 1 is standard error, so that
// whatever else in the process or a child prints there cannot break the
// protocol, and descriptor 0 is /dev/null. SIGPIPE no longer ends the process:
// writes fail with EPIPE instead, and children still start with the default.
// It is to be called once, first in main.
func Claim() (in, out *os.File, err error) {
	// Asked for on a channel that nobody reads: a signal ignored would be
	// ignored by children, too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	if in, err = duplicate(0, "stdin"); err != nil {
		return nil, nil, err
	}
	if out, err = duplicate(1, "stdout"); err != nil {
		_ = in.Close()
		return nil, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	defer null.Close()
	if err := dup2(int(null.Fd()), 0); err != nil {
		return nil, nil, fmt.Errorf("pointing standard input at %s: %w", os.DevNull, err)
	}
	if _, err := unix.FcntlInt(2, unix.F_GETFD, 0); err != nil {
		// Without a standard error whatever is opened next would become one.
		if err := dup2(int(null.Fd()), 2); err != nil {
			return nil, nil, fmt.Errorf("pointing standard error at %s: %w", os.DevNull, err)
		}
	}
	if err := dup2(2, 1); err != nil {
		return nil, nil, fmt.Errorf("pointing standard output at standard error: %w", err)
	}
	return in, out, nil
}

// duplicate returns a copy of a descriptor that children do not get.
func duplicate(fd int, name string) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("taking %s: %w", name, err)
	}
	return os.NewFile(uintptr(n), name), nil
}
