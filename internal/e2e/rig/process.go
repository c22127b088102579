package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Process is one line of the machine's process table.
type Process struct {
	PID, Parent, Session int
	// State is the kernel's letter: R, S, Z for a zombie, and so on.
	State string
	// Exe is the base name of the program, "" where it cannot be told.
	Exe  string
	Args []string
}

// String implements fmt.Stringer.
func (p Process) String() string {
	return fmt.Sprintf("%d %s parent=%d session=%d %s", p.PID, p.State, p.Parent, p.Session, strings.Join(p.Args, " "))
}

// Find lists the processes that were started with this NAME=VALUE in their
// environment, zombies left out.
func Find(variable string) []Process {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []Process
	for _, dir := range dirs {
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, ok := process(pid); ok && p.State != "Z" {
			found = append(found, p)
		}
	}
	return found
}

// process reads one process; ok is false if it is gone.
func process(pid int) (p Process, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, false
	}
	// The name, in parentheses, may hold anything.
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 4 {
		return p, false
	}
	p.PID, p.State = pid, fields[0]
	p.Parent, _ = strconv.Atoi(fields[1])
	p.Session, _ = strconv.Atoi(fields[3])
	if exe, err := os.Readlink(dir + "/exe"); err == nil {
		p.Exe = filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
	}
	args, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return p, false
	}
	p.Args = strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
	return p, true
}

// Alive reports whether a process is there and no zombie.
func Alive(pid int) bool {
	p, ok := process(pid)
	return ok && p.State != "Z"
}

// Kill sends KILL to one process, and waits until it is gone.
func Kill(t testing.TB, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("there is no process %d to kill", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("kill -9 %d: %v", pid, err)
	}
	Until(t, 10*time.Second, fmt.Sprintf("process %d is gone", pid), func() bool { return !Alive(pid) })
}

// Until asks again and again until ok says so, and fails the test when it has
// not in time. It is for what other processes do and tell nobody.
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("within %v it did not come about that %s", within, what)
		}
	}
}

// end stops every process with the variable in its environment, asking first.
func end(variable string) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		processes := Find(variable)
		for _, p := range processes {
			_ = syscall.Kill(p.PID, sig)
		}
		for range 50 {
			if len(processes) == 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
			processes = Find(variable)
		}
	}
}
