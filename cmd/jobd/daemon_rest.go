package main

import (
	"runtime/debug"
	"time"
)

// A rest is what a daemon does once when it has got nothing to do.
type rest struct {
	// taken: nothing was asked since the last one.
	taken bool
}

// look gives back the memory of a daemon that was asked nothing for so long.
// It is had again as it is needed, at the cost of about a millisecond.
func (r *rest) look(quiet time.Duration) {
	if quiet < lookEvery {
		r.taken = false
		return
	}
	if r.taken {
		return
	}
	r.taken = true
	debug.FreeOSMemory()
	unmapProgram()
}
