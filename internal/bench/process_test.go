//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// memory of a process, in KiB.
type memory struct{ rss, pss float64 }

// memoryOf reads what the kernel counts for a process.
func memoryOf(t testing.TB, pid int) memory {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	must(t, err)
	return memory{rss: field(t, raw, "Rss:"), pss: field(t, raw, "Pss:")}
}

// field returns the number after a name that begins a line.
func field(t testing.TB, raw []byte, name string) float64 {
	t.Helper()
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			v, err := strconv.ParseFloat(f[1], 64)
			must(t, err)
			return v
		}
	}
	t.Fatalf("there is no %s in %s", name, raw)
	return 0
}

// threads of a process.
func threads(t testing.TB, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	return int(field(t, raw, "Threads:"))
}

// cpuOf returns the time that the threads of a process which live now have run
// for.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	must(t, err)
	var sum time.Duration
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		must(t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// version returns the first line that a program prints of itself.
func version(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return "unknown"
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(bytes.TrimSpace(line))
}
