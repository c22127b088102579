package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// storyTTY runs a command on a terminal of its own: tty CODE COLUMNS FILE
// COMMAND… Each line of FILE, "PATTERN => TEXT", is played in turn: when what
// the terminal shows after the last match matches PATTERN, TEXT and a newline
// are typed; ^C alone stands for that key. The screen is left in the file "screen".
func storyTTY(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: tty CODE COLUMNS FILE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	columns, err := strconv.Atoi(args[1])
	ts.Check(err)
	master, slave, err := openTerminal(columns)
	ts.Check(err)
	defer master.Close()

	path, err := lookPath(ts, args[3])
	ts.Check(err)
	cmd := exec.Command(path, args[4:]...)
	cmd.Dir = ts.Getenv("PWD")
	if cmd.Dir == "" {
		cmd.Dir = ts.Getenv("WORK")
	}
	for _, name := range []string{"PATH", "HOME", "JOBD_HOME", "TERM", "NO_COLOR", "CLAUDECODE"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	slave.Close()
	screen := &shown{}
	screen.done = make(chan struct{})
	go screen.read(master)

	for line := range strings.SplitSeq(strings.TrimSuffix(ts.ReadFile(args[2]), "\n"), "\n") {
		pattern, text, ok := strings.Cut(line, " => ")
		if !ok {
			continue
		}
		if !screen.await(regexp.MustCompile(pattern)) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			ts.Fatalf("the terminal did not show %q within 20 s; it shows %q", pattern, screen.text())
		}
		keys := text + "\n"
		if text == "^C" {
			keys = "\x03"
		}
		_, err := master.WriteString(keys)
		ts.Check(err)
	}
	err = cmd.Wait()
	<-screen.done
	ts.Check(os.WriteFile(ts.MkAbs("screen"), []byte(screen.text()), 0o600))
	ts.Logf("[screen]\n%s", screen.text())
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("%s ended with code %d, not %d", strings.Join(args[3:], " "), code, want)
	}
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode()&0o111 != 0 {
			return dir + "/" + name, nil
		}
	}
	return "", fmt.Errorf("there is no %s on PATH", name)
}

// shown is what a terminal has shown.
type shown struct {
	done chan struct{}

	mu   sync.Mutex
	b    bytes.Buffer
	from int // what is before was matched
}

func (s *shown) read(master *os.File) {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		s.mu.Lock()
		s.b.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return // the last process on the terminal has ended
		}
	}
}

func (s *shown) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *shown) await(pattern *regexp.Regexp) bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		at := pattern.FindIndex(s.b.Bytes()[s.from:])
		if at != nil {
			s.from += at[1]
		}
		s.mu.Unlock()
		if at != nil {
			return true
		}
	}
	return false
}

// openTerminal makes a pseudo-terminal (pts(4)).
func openTerminal(columns int) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlocking the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("finding the terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: 24}); err != nil {
		return nil, nil, fmt.Errorf("sizing the terminal: %w", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return master, slave, err
}
