//go:build fault

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"jobd/internal/config"
)

// A daemon that was built with the tag "fault" can be made to die between a
// cause and its effect, for tests. Two files in the state directory say how;
// they are looked at anew at each step, so they may be written while it runs.
//
//   - faults: each line, "N STEP", ends the process by KILL when the step is
//     reached for the Nth time from now on. The count goes on in the next
//     daemon; a line is removed before it kills, so it kills once.
//   - steps: where it exists, a line "STEP" is appended for each step that is
//     reached, so that a test learns which there are.
const (
	faultFile = "faults"
	stepFile  = "steps"
)

// faults returns what the supervisor and the api tell of their steps.
func faults(p config.Places, log *slog.Logger) func(step string) {
	var mu sync.Mutex
	return func(step string) {
		mu.Lock()
		defer mu.Unlock()
		if err := trace(filepath.Join(p.StateDir, stepFile), step); err != nil {
			log.Error("writing down a step", "step", step, "err", err)
		}
		due, err := countDown(filepath.Join(p.StateDir, faultFile), step)
		if err != nil {
			log.Error("reading the faults", "step", step, "err", err)
		}
		if due {
			log.Warn("dying as told", "step", step)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing follows, also where the signal takes its time
		}
	}
}

func trace(path, step string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, step)
	return errors.Join(err, f.Close())
}

// countDown counts a step in the file of faults, and reports whether one is due.
func countDown(path, step string) (due bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var rest strings.Builder
	changed := false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		count, name, _ := strings.Cut(line, " ")
		var n int
		if _, err := fmt.Sscan(count, &n); err != nil || n < 1 {
			return false, fmt.Errorf("%s: %q is not N STEP", path, line)
		}
		if name == step {
			changed = true
			if n--; n == 0 {
				due = true
				continue
			}
		}
		fmt.Fprintln(&rest, n, name)
	}
	if !changed {
		return false, nil
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(rest.String()), 0o600); err != nil {
		return false, err
	}
	return due, os.Rename(next, path)
}
