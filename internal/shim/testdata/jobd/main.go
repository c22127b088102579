// Command jobd stands in for the daemon in the tests of package shim.
//
//	jobd start          starts "jobd daemon" in a session of its own
//	jobd daemon         holds alive.lock in $XDG_STATE_HOME until it is killed
//	jobd sleep          sleeps
//
// It appends what it is called with to calls in that directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"jobd/internal/shim"
)

func main() {
	dir := os.Getenv("XDG_STATE_HOME")
	note(dir, os.Args[1]+" "+strings.Join(os.Environ(), " "))
	switch os.Args[1] {
	case "start":
		if _, err := os.Stat(filepath.Join(dir, "broken")); err == nil {
			os.Exit(1)
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		_, err = syscall.ForkExec(self, []string{"jobd", "daemon"}, &syscall.ProcAttr{Env: os.Environ(),
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			panic(err)
		}
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, "daemon.pid")); err == nil || time.Now().After(deadline) {
				return
			}
		}
	case "daemon":
		if _, err := shim.HoldAlive(dir); err != nil {
			os.Exit(1)
		}
		if err := os.WriteFile(filepath.Join(dir, "daemon.pid"), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
			panic(err)
		}
		time.Sleep(time.Hour)
	case "sleep":
		time.Sleep(time.Hour)
	}
}

func note(dir, line string) {
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}
