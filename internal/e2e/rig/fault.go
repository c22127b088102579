package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var faulty struct {
	once sync.Once
	dir  string
	err  error
}

// NewFaulty is [New] with a jobd and a jobd-shim that were built with the tag
// "fault": the daemon dies at a step where [Rig.DieAt] says so, and their clocks
// are as [Rig.SetClock] says.
func NewFaulty(t testing.TB) *Rig {
	t.Helper()
	r := New(t)
	faulty.once.Do(func() { faulty.dir, faulty.err = buildFaulty(Root(t), r.Bin) })
	if faulty.err != nil {
		t.Fatal(faulty.err)
	}
	r.Bin = faulty.dir
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

// buildFaulty makes a directory of binaries below bin, which is removed with it.
func buildFaulty(root, bin string) (string, error) {
	dir := filepath.Join(bin, "fault")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // programs are for all
		return "", err
	}
	// Not symbolic links: the programs find each other where these lead to.
	for _, name := range []string{"mcp-stdio", "tap"} {
		if err := os.Link(filepath.Join(bin, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	args := []string{"build", "-trimpath", "-tags", "fault", "-o", dir + "/"}
	if os.Getenv("JOBD_RACE") == "1" {
		args = append(args, "-race")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/jobd", "./cmd/jobd-shim")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building jobd with faults: %w\n%s", err, out)
	}
	return dir, nil
}

// SetClock disturbs the clocks of the daemon and the shims, by the lines that
// internal/clock/fault.go tells of. It is for a rig of [NewFaulty], and may be
// called at any time.
func (r *Rig) SetClock(lines ...string) {
	r.t.Helper()
	path := filepath.Join(r.State, "clock")
	err := os.WriteFile(path+".next", []byte(strings.Join(lines, "\n")), 0o600)
	if err == nil {
		err = os.Rename(path+".next", path)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// DieAt makes the daemon end itself by KILL when it reaches a step for the nth
// time from now on, n from 1. It is for a rig of [NewFaulty], and may be called
// before the daemon runs or while it does.
func (r *Rig) DieAt(n int, step string) {
	r.t.Helper()
	f, err := os.OpenFile(r.State+"/faults", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, n, step); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// Faults are the lines of [Rig.DieAt] that have not killed a daemon yet, each
// with the count that is left.
func (r *Rig) Faults() []string { return r.stateLines("faults") }

// TraceSteps makes daemons write down the steps that they reach from now on.
func (r *Rig) TraceSteps() {
	r.t.Helper()
	if err := os.WriteFile(r.State+"/steps", nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// Steps are the steps that were reached since [Rig.TraceSteps], in their order.
func (r *Rig) Steps() []string { return r.stateLines("steps") }

func (r *Rig) stateLines(name string) []string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.State, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}
