// Command tap runs a stdio server and writes down what passes, without
// changing it:
//
//	tap LOGFILE COMMAND [ARG...]
//
// Every line of both directions, each signal and the end become one JSON line
// of LOGFILE; runs append to it. Package claudecode reads it back.
//
// Towards its parent tap behaves as the command does: it passes on SIGINT,
// SIGTERM and SIGHUP, closes the command's input when its own ends, and ends
// when the command ends, with its exit code or by its signal.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Record is one line of the log.
type Record struct {
	Time  time.Time `json:"time"`
	PID   int       `json:"pid"`            // of the command
	Event string    `json:"event"`          // start, in, out, eof, signal, exit
	Text  string    `json:"text,omitempty"` // the line, the signal or the exit state
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: tap LOGFILE COMMAND [ARG...]")
		os.Exit(2)
	}
	state, err := tap(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		os.Exit(1)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal.Reset(status.Signal())
		_ = syscall.Kill(os.Getpid(), status.Signal())
	}
	os.Exit(state.ExitCode())
}

func tap(logFile, command string, args []string) (*os.ProcessState, error) {
	file, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	// Signals are caught before the command runs, so none ends tap alone.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	cmd := exec.Command(command, args...) //nolint:noctx // it lives until its input ends
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &log{file: file, pid: cmd.Process.Pid}
	l.write("start", command)

	go func() {
		for s := range signals {
			l.write("signal", s.String())
			_ = cmd.Process.Signal(s)
		}
	}()
	// The copy from our input is not waited for: it may block on a parent that
	// keeps its end open after the command has gone.
	go func() {
		l.copy("in", stdin, os.Stdin)
		l.write("eof", "")
		_ = stdin.Close()
	}()
	l.copy("out", os.Stdout, stdout)

	err = cmd.Wait()
	l.write("exit", cmd.ProcessState.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return cmd.ProcessState, nil
}

type log struct {
	mu   sync.Mutex
	file *os.File
	pid  int
}

func (l *log) write(event, text string) {
	line, err := json.Marshal(Record{Time: time.Now(), PID: l.pid, Event: event, Text: text})
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(append(line, '\n'))
}

// copy passes lines on, each logged before it is written.
func (l *log) copy(event string, to io.Writer, from io.Reader) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			l.write(event, strings.TrimSuffix(string(line), "\n"))
			if _, err := to.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
