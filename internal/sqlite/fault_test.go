package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// assertCause checks an error of a store that cannot work: it says what is
// wrong with which file, and what to do.
func assertCause(t *testing.T, err error, path string, says ...string) {
	t.Helper()
	if !errors.Is(err, jobs.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	for _, s := range append(says, path) {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestAFullDatabaseSaysSoAndGoesOnLater(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	kept := create(t, db, queued("kept"))
	update(t, db, kept.ID, apply(at(0), jobs.EventLaunch, jobs.EventStarted))
	pages, err := db.OnWriter(t.Context(), "PRAGMA page_count")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := strconv.Atoi(pages)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.OnWriter(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", limit+4)); err != nil {
		t.Fatal(err)
	}
	// In one batch: some that fit, one that cannot, and more that fit.
	errs := make([]error, 9)
	together(t, db, len(errs), func(i int) {
		if i == 4 {
			_, errs[i] = db.SetResult(t.Context(), kept.ID, make([]byte, 1<<20), func(j *jobs.Job) error { j.PID = 666; return nil })
			return
		}
		_, errs[i] = db.UpdateJob(t.Context(), kept.ID, func(j *jobs.Job) error { j.OutputBytes++; return nil })
	})
	assertCause(t, errs[4], path, "no space", "free some space")
	stored := int64(0)
	for i, err := range errs {
		if i != 4 && err == nil {
			stored++
		} else if i != 4 {
			assertCause(t, err, path, "no space")
		}
	}
	got, err := db.Job(t.Context(), kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.OutputBytes != stored || got.PID != 0 {
		t.Errorf("%d changes are stored, and %d were acknowledged; PID %d", got.OutputBytes, stored, got.PID)
	}
	if _, err := db.OnWriter(t.Context(), "PRAGMA max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	end := update(t, db, kept.ID, apply(at(1), jobs.EventSucceeded))
	if end.State() != jobs.Succeeded {
		t.Errorf("state %s", end.State())
	}
	create(t, db, queued("later"))
}

// writeUnderLimit plays a process whose files must not grow: a real error of
// the system in the middle of a commit.
func writeUnderLimit() {
	signal.Ignore(syscall.SIGXFSZ)
	path := os.Args[1]
	fail := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		os.Exit(1)
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		fail("opening: %v", err)
	}
	j := queued("kept")
	if _, _, err := db.CreateJob(ctx, j, anew); err != nil {
		fail("creating: %v", err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		fail("reading the limit: %v", err)
	}
	wal, err := os.Stat(path + "-wal")
	if err != nil {
		fail("%v", err)
	}
	limited := before
	limited.Cur = uint64(wal.Size())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		fail("setting the limit: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, _, err := db.CreateJob(ctx, queued(strconv.Itoa(i)), anew)
			if !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), "the disk failed to read or write the database "+path) {
				fail("error %v, want the cause", err)
			}
		})
	}
	wg.Wait()
	if found, err := db.Jobs(ctx, jobs.Filter{}); err != nil || len(found) != 1 {
		fail("%d jobs, %v; want the one that was acknowledged", len(found), err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		fail("lifting the limit: %v", err)
	}
	if _, err := db.UpdateJob(ctx, j.ID, apply(at(0), jobs.EventLaunch)); err != nil {
		fail("after the fault: %v", err)
	}
	if _, _, err := db.CreateJob(ctx, queued("0"), anew); err != nil {
		fail("after the fault: %v", err)
	}
	if err := db.Close(); err != nil {
		fail("closing: %v", err)
	}
	os.Exit(0)
}

func TestAFailingDiskSaysSoToEveryCallerAndTheStoreGoesOnLater(t *testing.T) {
	path := place(t)
	cmd, lines := play(t, "write under a file size limit", path)
	for lines.Scan() {
		t.Error(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	db := open(t, path, sqlite.Options{})
	if n := len(list(t, db, jobs.Filter{})); n != 2 {
		t.Errorf("%d jobs are stored, want 2", n)
	}
}

func TestALockOfAnotherProgramIsWaitedForAndThenTold(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{}.WithBusyTimeout(200*time.Millisecond))
	other := raw(t, path, "?_txlock=immediate")
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, _, err = db.CreateJob(t.Context(), queued("a"), anew)
	assertCause(t, err, path, "locked by another program")
	if d := time.Since(begun); d < 150*time.Millisecond {
		t.Errorf("gave up after %v", d)
	}
	if _, err := db.Jobs(t.Context(), jobs.Filter{}); err != nil {
		t.Errorf("reading meanwhile: %v", err)
	}
	// Let go while somebody waits.
	done := make(chan error)
	go func() {
		_, _, err := db.CreateJob(t.Context(), queued("a"), anew)
		done <- err
	}()
	until(t, "it waits", func() bool { return db.Queued() == 1 })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the lock was let go: %v", err)
	}
}

func TestACallerThatGivesUpOnALockIsWithdrawn(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{}.WithBusyTimeout(300*time.Millisecond))
	tx, err := raw(t, path, "?_txlock=immediate").BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	leader := make(chan error)
	go func() {
		_, _, err := db.CreateJob(t.Context(), queued("a"), anew)
		leader <- err
	}()
	until(t, "it waits", func() bool { return db.Queued() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := db.CreateJob(ctx, queued("b"), anew); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
	assertCause(t, <-leader, path, "locked")
}

func TestAReadOnlyDatabaseSaysSoAndGoesOnLater(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	create(t, db, queued("a"))
	if _, err := db.OnWriter(t.Context(), "PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	_, _, err := db.CreateJob(t.Context(), queued("b"), anew)
	assertCause(t, err, path, "cannot be written", "writable")
	// The next write has a connection of its own.
	create(t, db, queued("b"))
}
