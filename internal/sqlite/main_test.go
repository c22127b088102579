package sqlite_test

import (
	"encoding/hex"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// role is the environment variable that makes the test binary play a process
// that a test kills or confines.
const role = "JOBD_SQLITE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		goleak.VerifyTestMain(m)
	case "write until killed":
		writeUntilKilled()
	case "write one":
		writeOne()
	case "write under a file size limit":
		writeUnderLimit()
	default:
		panic("unknown role")
	}
}

// place returns the name of a database in a directory of its own.
func place(tb testing.TB) string { return filepath.Join(tb.TempDir(), "jobd.db") }

// open opens a database that ends with the test.
func open(tb testing.TB, path string, o sqlite.Options) *sqlite.DB {
	tb.Helper()
	db, err := sqlite.Open(tb.Context(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// id makes 32 hexadecimal digits that look random and are the same each time.
func id(name string) string {
	h := fnv.New128a()
	h.Write([]byte(name))
	return hex.EncodeToString(h.Sum(nil))
}

var epoch = time.Date(2026, 3, 1, 8, 30, 0, 123456789, time.UTC)

// at is an instant of the boot "b1".
func at(d time.Duration) jobs.Instant {
	return jobs.Instant{Wall: epoch.Add(d), Run: time.Hour + d, Boot: 2*time.Hour + d, BootID: "b1"}
}

// spec is what a job of this name runs.
func spec(name string) jobs.Spec {
	return jobs.Spec{Tool: "run_job", Name: name, Argv: []string{"bash", "-c", "make " + name}, Dir: "/src/app", Project: "/src/app",
		Session: "s1", Digest: id("digest " + name), Umask: 0o22, Timeout: time.Hour}
}

// queued is a job that is not stored yet, with a request key of its own.
func queued(name string) jobs.Job {
	return jobs.New(id(name), spec(name), jobs.Keys{Request: "request " + name}, at(0))
}

// anew decides for a new job whatever there is.
func anew(jobs.Holders) (*jobs.Job, error) { return nil, nil }

// create stores a job.
func create(tb testing.TB, db *sqlite.DB, j jobs.Job) jobs.Job {
	tb.Helper()
	stored, created, err := db.CreateJob(tb.Context(), j, anew)
	if err != nil || !created {
		tb.Fatalf("creating job %s: created %t, %v", j.Spec.Name, created, err)
	}
	return stored
}

// update changes a job.
func update(tb testing.TB, db *sqlite.DB, id string, change func(*jobs.Job) error) jobs.Job {
	tb.Helper()
	j, err := db.UpdateJob(tb.Context(), id, change)
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

// apply moves a job by events.
func apply(now jobs.Instant, events ...jobs.Event) func(*jobs.Job) error {
	return func(j *jobs.Job) error {
		for _, e := range events {
			if e == jobs.EventStop {
				j.Stop = &jobs.Stop{Cause: jobs.CauseCancel, Reason: "not needed", At: now, ByOwner: true}
			}
			if err := j.Apply(e, now, "note of "+string(e)); err != nil {
				return err
			}
		}
		return nil
	}
}

// end is how a job succeeds.
func end(tb testing.TB, db *sqlite.DB, id string) jobs.Job {
	tb.Helper()
	return update(tb, db, id, apply(at(time.Minute), jobs.EventLaunch, jobs.EventStarted, jobs.EventSucceeded))
}

// deliver marks a final job as read.
func deliver(tb testing.TB, db *sqlite.DB, id string) {
	tb.Helper()
	update(tb, db, id, func(j *jobs.Job) error {
		j.Delivered, j.Keys.Join = at(2*time.Minute), ""
		return nil
	})
}

// until polls for something that happens soon.
func until(tb testing.TB, what string, happened func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("it took too long until %s", what)
		}
	}
}

func names(found []jobs.Job) []string {
	var n []string
	for _, j := range found {
		n = append(n, j.Spec.Name)
	}
	return n
}

func list(tb testing.TB, db *sqlite.DB, f jobs.Filter) []jobs.Job {
	tb.Helper()
	found, err := db.Jobs(tb.Context(), f)
	if err != nil {
		tb.Fatal(err)
	}
	return found
}
