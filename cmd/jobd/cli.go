package main

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"jobd/internal/config"
	"jobd/internal/ipc"
)

// A cli is the surroundings of one run of the program.
type cli struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	// screen is what standard output shows on.
	screen screen
	// asks is true where a person can be asked: standard input and standard
	// error are terminals.
	asks bool
	// readSecret reads a line from the terminal without echo.
	readSecret func() (string, error)
	// mendTerminal gives the terminal back the state it had at the start.
	mendTerminal func()
	getenv       func(string) string
	now          func() time.Time
	// connect returns a client of the daemon. With start the client starts a
	// daemon that is not there; without, its calls fail then.
	connect func(ctx context.Context, start bool) (ipc.Handler, error)
	// started reports whether jobd was ever used here: whether there is a
	// database.
	started func() (bool, error)
	// stopped reports whether the daemon was stopped on purpose; nil = never.
	stopped func() bool
}

// A screen is what a stream of text is shown on.
type screen struct {
	// terminal is true where a person reads; the text of jobs is filtered.
	terminal bool
	// width is the number of columns, 0 where it does not matter.
	width int
	// colour allows colours.
	colour bool
}

// newCLI returns the surroundings of the process itself.
func newCLI() *cli {
	mend := func() {}
	if state, err := term.GetState(int(os.Stdin.Fd())); err == nil {
		mend = func() { _ = term.Restore(int(os.Stdin.Fd()), state) } // it is gone, then
	}
	return &cli{
		in:     os.Stdin,
		out:    os.Stdout,
		err:    os.Stderr,
		screen: screenOf(os.Stdout, os.Getenv),
		asks:   term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		readSecret: func() (string, error) {
			line, err := term.ReadPassword(int(os.Stdin.Fd()))
			return string(line), err
		},
		mendTerminal: mend,

		getenv:  os.Getenv,
		now:     time.Now,
		connect: connect,
		started: started,
		stopped: stopped,
	}
}

// screenOf looks at what f shows on. NO_COLOR is honoured as no-color.org says:
// set and not empty.
func screenOf(f *os.File, getenv func(string) string) screen {
	if !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	s := screen{terminal: true, width: 80, colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.width = width
	}
	return s
}

// stopped reports whether the daemon was stopped on purpose; see [cli.stopped].
func stopped() bool {
	p, err := config.Find()
	if err != nil {
		return false
	}
	_, err = os.Lstat(p.Stopped)
	return err == nil
}
