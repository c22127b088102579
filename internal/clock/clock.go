// Package clock reads the machine's clocks as a [jobs.Clock].
//
// Its one invariant: what it returns for run time stands still while the
// machine sleeps, and what it returns for deadlines goes on, on every platform.
package clock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// New returns the clock of this machine, with the id of its present boot, which
// is read once. The error says that the boot cannot be told from others, so
// that no reading could be compared with one of before.
func New() (jobs.Clock, error) {
	id, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("reading the id of this boot: %w", err)
	}
	return disturbed(func() jobs.Instant {
		return jobs.Instant{
			Wall:   time.Now().UTC().Round(0), // the wall clock alone: two instants are compared by Run and Boot
			Run:    read(runClock),
			Boot:   read(bootClock),
			BootID: id,
		}
	})
}

// read reads one clock. clock_gettime(2) fails only for a clock that does not
// exist, and New would not have been compiled with one.
func read(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic(fmt.Sprintf("clock_gettime(%d): %v", id, err))
	}
	return time.Duration(ts.Nano())
}
