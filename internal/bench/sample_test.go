//go:build bench

package bench

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// A sample holds the times that one thing took, in the order in which it was
// done.
type sample []time.Duration

// timed adds how long f takes.
func (s *sample) timed(f func()) {
	began := time.Now()
	f()
	*s = append(*s, time.Since(began))
}

// at is the time within which this part of them was done, 0 to 1.
func (s sample) at(part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) p50() time.Duration { return s.at(0.5) }
func (s sample) p99() time.Duration { return s.at(0.99) }

// median of figures of several rounds.
func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

// ratio of two times.
func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// inFlight does f so many times by so many callers at once, and returns what
// each call took and how many were done in a second.
func inFlight(callers, times int, f func()) (sample, float64) {
	var mu sync.Mutex
	var all sample
	next := make(chan struct{}, times)
	for range times {
		next <- struct{}{}
	}
	close(next)
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			var own sample
			for range next {
				own.timed(f)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	return all, float64(times) / time.Since(began).Seconds()
}

// show writes a time for a table.
func show(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// rate writes a rate for a table.
func rate(perSecond float64) string { return fmt.Sprintf("%.0f/s", perSecond) }

// mib writes KiB as MiB.
func mib(kib float64) string { return fmt.Sprintf("%.1f MiB", kib/1024) }

// must ends the part on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
