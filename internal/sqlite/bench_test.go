package sqlite_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// fill stores n final, delivered jobs.
func fill(tb testing.TB, db *sqlite.DB, n int) {
	tb.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range sqlite.MaxBatch {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				j := queued("stored " + strconv.FormatInt(i, 10))
				if err := apply(at(0), jobs.EventLaunch, jobs.EventStarted, jobs.EventSucceeded)(&j); err != nil {
					tb.Error(err)
				}
				j.Delivered = at(time.Minute)
				if _, _, err := db.CreateJob(tb.Context(), j, anew); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkCreateJob(b *testing.B) {
	for _, stored := range []int{0, 10_000} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("stored=%d/callers=%d", stored, callers), func(b *testing.B) {
				db := open(b, place(b), sqlite.Options{})
				fill(b, db, stored)
				took := make([]time.Duration, b.N)
				var wg sync.WaitGroup
				var next atomic.Int64
				b.ResetTimer()
				for range callers {
					wg.Go(func() {
						for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
							j := queued("new " + strconv.Itoa(i))
							j.Keys.Join = "join " + strconv.Itoa(i)
							begun := time.Now()
							if _, _, err := db.CreateJob(b.Context(), j, anew); err != nil {
								b.Error(err)
							}
							took[i] = time.Since(begun)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

func BenchmarkUpdateJob(b *testing.B) {
	db := open(b, place(b), sqlite.Options{})
	fill(b, db, 10_000)
	j := create(b, db, queued("it"))
	update(b, db, j.ID, apply(at(0), jobs.EventLaunch, jobs.EventStarted))
	for b.Loop() {
		update(b, db, j.ID, func(j *jobs.Job) error {
			j.Progress = &jobs.Progress{Done: 1, Total: 2, Text: "half", At: at(0)}
			return nil
		})
	}
}

func BenchmarkJob(b *testing.B) {
	db := open(b, place(b), sqlite.Options{})
	fill(b, db, 10_000)
	j := create(b, db, queued("it"))
	for b.Loop() {
		if _, err := db.Job(b.Context(), j.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJobs(b *testing.B) {
	db := open(b, place(b), sqlite.Options{})
	fill(b, db, 10_000)
	create(b, db, queued("it"))
	for name, f := range map[string]jobs.Filter{
		"pending": {Pending: true}, "live": {Live: true}, "project newest 20": {Project: "/src/app", Limit: 20},
		"other project": {Project: "/src/other"}, "text": {Text: "stored 77"}, "all": {},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				list(b, db, f)
			}
		})
	}
}
