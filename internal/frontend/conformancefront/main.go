// Conformancefront is jobd's front end as the official conformance suite drives
// it: the same server as mcp-stdio's, behind HTTP instead of standard input. It
// is for tests only. The job file of the working directory's project gives it
// the suite's fixtures.
package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/frontend"
	"jobd/internal/ipc"
	"jobd/internal/mcptasks/httpfront"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	from := caller.Capture()
	places, err := config.Find()
	if err != nil {
		return err
	}
	jobd, err := config.Sibling("jobd")
	if err != nil {
		return err
	}
	client := ipc.New(ipc.Options{Socket: places.Socket, Executable: jobd, Env: config.DaemonEnv(os.Environ()), Prepare: places.Ensure,
		StartLock: places.StartLock, Stopped: places.Stopped, Log: places.Log, Version: "conformance"})
	defer client.Close()
	f := frontend.New(frontend.Options{Daemon: client, Caller: from, ConfigDir: places.ConfigDir, Version: "conformance", Logger: slog.Default()})
	defer f.Close(time.Second)
	return httpfront.Serve(f.Server(), os.Stdout)
}
