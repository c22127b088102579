package jobs

import "time"

// An Instant is one reading of all clocks of the machine. A transaction takes
// one, and everything it records carries that one.
type Instant struct {
	// Wall is the time of day, in UTC. It can be stepped.
	Wall time.Time
	// Run is CLOCK_MONOTONIC (macOS: CLOCK_UPTIME_RAW): it stands still while
	// the machine sleeps, and counts run time.
	Run time.Duration
	// Boot is CLOCK_BOOTTIME (macOS: CLOCK_MONOTONIC): it goes on while the
	// machine sleeps, and counts deadlines of questions and retention.
	Boot time.Duration
	// BootID names the boot that Run and Boot count from. Readings of two boots
	// cannot be compared by them.
	BootID string
}

// IsZero reports whether the instant was never set.
func (t Instant) IsZero() bool { return t.BootID == "" && t.Wall.IsZero() }

// Since returns how much time passed from u to t: by the boot clock where both
// are of one boot, so that a step of the wall clock does not matter, else by
// the wall clock. It is never negative.
func (t Instant) Since(u Instant) time.Duration {
	d := t.Wall.Sub(u.Wall)
	if t.BootID == u.BootID {
		d = t.Boot - u.Boot
	}
	return max(d, 0)
}

// A Clock reads the machine's clocks.
type Clock func() Instant
