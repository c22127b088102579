// Command jobd is the daemon that owns a user's jobs, and the command line to
// them. "jobd help" lists what it can do.
//
// Each subcommand has a file of its own. Those that ask the daemon something
// are methods' worth of [cli], which holds the streams, the terminal and the
// way to the daemon, so that a test can put others in their place. Nothing
// below main calls os.Exit: an error travels up to [run], which prints it and
// chooses the exit code.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), newCLI(), os.Args[1:]))
}
