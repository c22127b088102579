// Mcp-stdio is the MCP server that a client such as Claude Code starts. It
// speaks MCP on its standard input and output, keeps no state, and passes what
// it is asked on to jobd.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/frontend"
	"jobd/internal/ipc"
	"jobd/internal/stdio"
)

// version is set by the linker: -X main.version=1.2.3.
var version = "devel"

// The process is gone within a second of the end of input, and within a tenth
// of one of a signal: so long requests go on after the first, and so long the
// daemon is still told of delivered results after either.
const (
	grace         = 700 * time.Millisecond
	lastWords     = 100 * time.Millisecond
	lastWordsFast = 15 * time.Millisecond
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "mcp-stdio takes no arguments: an MCP client starts it and speaks to it on standard input and output. For people there is jobd.")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-stdio:", err)
		os.Exit(1)
	}
}

func run() error {
	// Many of these run at once and hold next to nothing: a small heap is worth
	// more than the little time that collecting it takes.
	debug.SetGCPercent(50)
	from := caller.Capture()
	in, out, err := stdio.Claim()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	daemon, passive, configDir := connect()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	line := stdio.New(in, out, stdio.Options{Grace: grace, Logger: log})
	f := frontend.New(frontend.Options{
		Daemon: daemon, Passive: passive, Caller: from, Line: line, ConfigDir: configDir,
		Version: version, Logger: log,
	})
	err = line.Serve(ctx, f.Server(), f.Wrap(line))
	if ctx.Err() != nil {
		f.Close(lastWordsFast)
		return nil
	}
	f.Close(lastWords)
	return err
}

// connect returns a client of the daemon, the same without the right to start
// one, and the directory of the configuration. Where the places cannot be found
// every call says why: the server stays, for a client never starts it again.
func connect() (daemon, passive frontend.Daemon, configDir string) {
	places, err := config.Find()
	if err != nil {
		broken := frontend.Broken(err)
		return broken, broken, ""
	}
	executable, err := config.Sibling("jobd")
	if err != nil {
		broken := frontend.Broken(err)
		return broken, broken, ""
	}
	c := ipc.New(ipc.Options{
		Socket: places.Socket, Executable: executable, Env: config.DaemonEnv(os.Environ()), Prepare: places.Ensure,
		StartLock: places.StartLock, Stopped: places.Stopped, Log: places.Log,
		Version: version, InJob: os.Getenv(config.EnvJob) != "",
	})
	return c, c.Passive(), places.ConfigDir
}
