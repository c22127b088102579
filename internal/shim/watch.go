package shim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// The files of the state directory by which shims know of the daemon's life.
const (
	// AliveFile is locked by a daemon as long as it lives.
	AliveFile = "alive.lock"
	// StoppedFile is there when the daemon was stopped on purpose.
	StoppedFile = "stopped"
)

const (
	// reviveTries is how often a shim starts a daemon in short order.
	reviveTries = 3
	// reviveEvery is the time between two tries after those.
	reviveEvery = 5 * time.Minute
	// restEvery is the time between two looks while a daemon is stopped on
	// purpose. Nothing wakes a process when a lock is taken.
	restEvery = 10 * time.Second
	// reviveWithin is the time over which the shims spread their first tries.
	reviveWithin = 2 * time.Second
)

// HoldAlive takes the lock in the state directory by which shims know that a
// daemon lives. It lasts until the file is closed or the process ends; the
// descriptor must not be inherited by anything. Shims hold the lock for moments
// only, so waiting for it is short; an error of kind [jobs.ErrState] says that
// another daemon held it for five seconds.
func HoldAlive(dir string) (*os.File, error) {
	f, err := openAlive(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the lock that shims watch: %w", err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		taken, err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		case taken:
			return f, nil
		case time.Now().After(deadline):
			f.Close()
			return nil, &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("another daemon holds %s", filepath.Join(dir, AliveFile))}
		}
	}
}

func openAlive(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, AliveFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// A watch is a shim's look at the daemon. Where none lives that should, it has
// one started.
type watch struct {
	dir string // state directory
	// revive takes requests to start a daemon; the answer is whether jobd start
	// succeeded.
	revive chan<- chan bool
	spread func() time.Duration // the wait before a try; nil = at random
}

// run watches for as long as the process lives. While a daemon lives it is one
// thread blocked in flock(2).
func (w *watch) run() {
	for {
		f, err := openAlive(w.dir)
		if err == nil {
			_, err = flock(f, unix.LOCK_SH)
			f.Close() // gives the lock back
		}
		if err != nil {
			complain("watching the daemon: %v", err)
			return
		}
		w.bringBack()
	}
}

// bringBack returns once a daemon lives again.
func (w *watch) bringBack() {
	if w.spread == nil {
		// So that of many shims one starts it and the others find it.
		w.spread = func() time.Duration { return rand.N(reviveWithin) }
	}
	time.Sleep(w.spread())
	for tries := 0; !w.alive(); {
		switch {
		case w.stopped():
			tries = 0
			time.Sleep(restEvery)
		case tries < reviveTries:
			tries++
			reply := make(chan bool, 1)
			w.revive <- reply
			if !<-reply {
				time.Sleep(w.spread())
			}
		default:
			for end := time.Now().Add(reviveEvery); time.Now().Before(end) && !w.alive(); {
				time.Sleep(restEvery)
			}
			tries = reviveTries - 1
		}
	}
}

// missing reports whether no daemon lives that should.
func (w *watch) missing() bool { return !w.alive() && !w.stopped() }

// stopped reports whether the daemon was stopped on purpose. In doubt it was.
func (w *watch) stopped() bool {
	_, err := os.Lstat(filepath.Join(w.dir, StoppedFile))
	return err == nil || !os.IsNotExist(err)
}

// alive reports whether a daemon holds the lock. In doubt it does, and nothing
// is started. The file is opened each time: a daemon makes another where it was
// removed.
func (w *watch) alive() bool {
	f, err := openAlive(w.dir)
	if err != nil {
		return true
	}
	defer f.Close() // gives the lock back
	taken, err := flock(f, unix.LOCK_SH|unix.LOCK_NB)
	return err != nil || !taken
}
