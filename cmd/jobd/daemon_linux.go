package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// redirect makes descriptor to another name of from.
func redirect(from, to int) error { return unix.Dup3(from, to, 0) }

// closeOnExec keeps the descriptors that this process was given, beyond the
// standard three, from the processes that it starts. A program that starts us
// without care must not have its pipes held open by a daemon.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	closeOnExecEach("/proc/self/fd")
}

// watchRemovals tells changed when a file called one of names disappears from
// dir, or dir itself does. It returns when ctx ends. An error means that
// nothing is watched; the daemon looks by itself from time to time.
func watchRemovals(ctx context.Context, dir string, names []string, changed chan<- struct{}) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_ONLYDIR); err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	defer context.AfterFunc(ctx, func() { f.Close() })()
	buf := make([]byte, 16<<10)
	for {
		n, err := f.Read(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return fmt.Errorf("watching %s: %w", dir, err)
		}
		// struct inotify_event of inotify(7): wd, mask, cookie, len, name.
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			end := at + unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
			if end > n {
				break
			}
			name := strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:end]), "\x00")
			at = end
			gone := mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_Q_OVERFLOW) != 0
			for _, want := range names {
				gone = gone || name == want
			}
			if gone {
				select {
				case changed <- struct{}{}:
				default: // it has not looked yet
				}
			}
			if mask&unix.IN_IGNORED != 0 {
				return nil // the directory is gone
			}
		}
	}
}
