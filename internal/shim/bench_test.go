package shim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/shim"
)

// memory returns a figure of /proc/PID/smaps_rollup in KiB.
func memory(b *testing.B, pid int, what string) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == what+":" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib
		}
	}
	b.Fatalf("no %s", what)
	return 0
}

// BenchmarkStart is what it takes until a prepared command is known to run.
func BenchmarkStart(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		b.StopTimer()
		id := r.prepare(jobs.Spec{Argv: []string{"true"}})
		b.StartTimer()
		p, err := r.Start(context.Background(), id)
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		r.wait(p, 10*time.Second)
		b.StartTimer()
	}
}

// BenchmarkTrue is a whole job, from Prepare to the end.
func BenchmarkTrue(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		id := r.prepare(jobs.Spec{Argv: []string{"true"}})
		p, err := r.Start(context.Background(), id)
		if err != nil {
			b.Fatal(err)
		}
		r.wait(p, 10*time.Second)
	}
}

// BenchmarkTrueBare is the same command without a shim.
func BenchmarkTrueBare(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrepare is what a submission pays.
func BenchmarkPrepare(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		id := r.prepare(jobs.Spec{Argv: []string{"true"}})
		b.StopTimer()
		if err := r.Discard(context.Background(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkIdleShim reports the memory of one of twenty shims whose jobs sleep
// while a daemon lives.
func BenchmarkIdleShim(b *testing.B) {
	state := b.TempDir()
	alive, err := shim.HoldAlive(state)
	if err != nil {
		b.Fatal(err)
	}
	defer alive.Close()
	r := newRig(b, func(o *shim.Options) { o.StateDir = state })
	var pids []int
	for range 20 {
		id, _ := r.start("sleep 600")
		pids = append(pids, r.shimPID(id))
	}
	for b.Loop() {
		time.Sleep(10 * time.Millisecond)
	}
	for _, what := range []string{"Rss", "Pss", "Anonymous"} {
		var sum float64
		for _, pid := range pids {
			sum += memory(b, pid, what)
		}
		b.ReportMetric(sum/float64(len(pids)), what+"-KiB")
	}
}

// BenchmarkOutput copies what cat writes, and BenchmarkOutputCat is the same
// into a file.
func BenchmarkOutput(b *testing.B) {
	r := newRig(b)
	file := source(b, r)
	b.SetBytes(sourceSize)
	for b.Loop() {
		id, p := r.start("cat "+file, limit(2*sourceSize))
		r.wait(p, time.Minute)
		b.StopTimer()
		if err := r.Discard(context.Background(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkOutputCat(b *testing.B) {
	r := newRig(b)
	file := source(b, r)
	b.SetBytes(sourceSize)
	for b.Loop() {
		to := filepath.Join(r.tmp, "copy")
		if err := exec.Command("sh", "-c", "cat "+file+" >"+to).Run(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.Remove(to); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkFlood is yes with the default limit, BenchmarkFloodCat the same into
// a file.
func BenchmarkFlood(b *testing.B) {
	r := newRig(b)
	b.SetBytes(sourceSize)
	for b.Loop() {
		id, p := r.start(fmt.Sprintf("yes | head -c %d", sourceSize))
		r.wait(p, time.Minute)
		b.StopTimer()
		if err := r.Discard(context.Background(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkFloodCat(b *testing.B) {
	r := newRig(b)
	b.SetBytes(sourceSize)
	for b.Loop() {
		if err := exec.Command("sh", "-c", fmt.Sprintf("yes | head -c %d >%s/copy", sourceSize, r.tmp)).Run(); err != nil {
			b.Fatal(err)
		}
	}
}

const sourceSize = 400 << 20

func source(b *testing.B, r *rig) string {
	b.Helper()
	file := filepath.Join(r.tmp, "source")
	if err := exec.Command("sh", "-c", fmt.Sprintf("yes | head -c %d >%s", sourceSize, file)).Run(); err != nil {
		b.Fatal(err)
	}
	return file
}
