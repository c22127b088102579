// Command jobd-shim holds one running job of jobd, so that the job, its output
// and its exit status outlive a crash or an upgrade of jobd. It is started by
// jobd only; package shim is what it does.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"jobd/internal/shim"
)

func main() {
	// A shim waits nearly all of its life, and there is one for each job: one
	// processor, and no collection of garbage before there is some. The limit is
	// for a job that makes the shim read a large process table often.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(12 << 20)
	os.Exit(shim.Main(os.Args[1:]))
}
