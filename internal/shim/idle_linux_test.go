package shim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"jobd/internal/jobs"
)

// wakeUps returns how often the threads of a process have run.
func wakeUps(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "ctxt_switches") {
				i, err := strconv.Atoi(strings.TrimSpace(value))
				if err != nil {
					t.Fatal(err)
				}
				n += i
			}
		}
	}
	return n
}

func TestAnIdleShimNeverWakesUp(t *testing.T) {
	w := newWatched(t)
	w.hold()
	id, p := w.start("sleep 600")
	eventually(t, "the shim watches", func() bool { return w.blocked(id) })
	pid := w.shimPID(id)
	// It settles within moments, and then nothing moves for as long as one looks.
	still := 0
	for deadline := time.Now().Add(10 * time.Second); still < 1 && time.Now().Before(deadline); {
		before := wakeUps(t, pid)
		time.Sleep(1500 * time.Millisecond)
		if wakeUps(t, pid) == before {
			still++
		}
	}
	if still == 0 {
		t.Error("it wakes up again and again")
	}
	w.stop(p, jobs.CauseCancel)
	w.wait(p, 10*time.Second)
}
