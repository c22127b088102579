package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// together makes calls that are queued before the first of them runs.
func together(t *testing.T, db *sqlite.DB, n int, call func(i int)) {
	t.Helper()
	release := db.HoldWriter()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { call(i) })
	}
	until(t, "all writes are queued", func() bool { return db.Queued() == n })
	release()
	wg.Wait()
}

// commits counts the transactions that write, by the frames that end one.
func commits(t *testing.T, db *sqlite.DB) int {
	t.Helper()
	n, err := db.Commits()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWritesThatAreQueuedShareATransaction(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	create(t, db, queued("first"))
	before := commits(t, db)
	together(t, db, sqlite.MaxBatch, func(i int) {
		if _, _, err := db.CreateJob(t.Context(), queued(strconv.Itoa(i)), anew); err != nil {
			t.Error(err)
		}
	})
	if n := commits(t, db) - before; n != 1 {
		t.Errorf("%d transactions for one batch, want 1", n)
	}
	before = commits(t, db)
	together(t, db, 2*sqlite.MaxBatch+1, func(i int) {
		if _, _, err := db.CreateJob(t.Context(), queued("more "+strconv.Itoa(i)), anew); err != nil {
			t.Error(err)
		}
	})
	if n := commits(t, db) - before; n != 3 {
		t.Errorf("%d transactions for two batches and one write, want 3", n)
	}
	if n := len(list(t, db, jobs.Filter{})); n != 1+3*sqlite.MaxBatch+1 {
		t.Errorf("%d jobs are stored", n)
	}
}

func TestWhatFailsInABatchFailsAlone(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("target"))
	own := errors.New("no")
	var failed, panicked, broke atomic.Int64
	together(t, db, 40, func(i int) {
		name := strconv.Itoa(i)
		change := func(change func(*jobs.Job) error) error {
			_, err := db.UpdateJob(t.Context(), j.ID, change)
			return err
		}
		switch i % 5 {
		case 0: // its own error, after it read and changed
			if err := change(func(j *jobs.Job) error { j.PID = i; return own }); err == own {
				failed.Add(1)
			}
		case 1: // a panic
			func() {
				defer func() {
					if v := recover(); v == name {
						panicked.Add(1)
					}
				}()
				_ = change(func(*jobs.Job) error { panic(name) })
			}()
		case 2: // a broken rule, found after the job's row was written
			err := change(func(j *jobs.Job) error {
				j.PID = i
				j.Questions = []jobs.Question{{ID: "a", State: "odd", Asked: at(0), Closed: at(0)}}
				return nil
			})
			if err != nil && !errors.Is(err, jobs.ErrUnavailable) {
				broke.Add(1)
			}
		default:
			if _, created, err := db.CreateJob(t.Context(), queued(name), anew); err != nil || !created {
				t.Errorf("a good write: created %t, %v", created, err)
			}
		}
	})
	if failed.Load() != 8 || panicked.Load() != 8 || broke.Load() != 8 {
		t.Errorf("%d failed, %d panicked, %d broke a rule; want 8 each", failed.Load(), panicked.Load(), broke.Load())
	}
	got, err := db.Job(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	sameJob(t, got, j)
	if n := len(list(t, db, jobs.Filter{})); n != 17 {
		t.Errorf("%d jobs are stored, want 17", n)
	}
}

func TestChangesOfOneJobInABatchSeeEachOther(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	together(t, db, 50, func(int) {
		if _, err := db.UpdateJob(t.Context(), j.ID, func(j *jobs.Job) error { j.PID++; return nil }); err != nil {
			t.Error(err)
		}
	})
	if got, err := db.Job(t.Context(), j.ID); err != nil || got.PID != 50 {
		t.Errorf("counted to %d, %v; want 50", got.PID, err)
	}
}

func TestAContextThatEndsInTheQueueWithdrawsTheWrite(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	release := db.HoldWriter()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := db.CreateJob(ctx, queued("a"), anew)
		done <- err
	}()
	until(t, "the write is queued", func() bool { return db.Queued() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if n := db.Queued(); n != 0 {
		t.Errorf("%d writes are still queued", n)
	}
	release()
	if _, err := db.Job(t.Context(), id("a")); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the withdrawn job: %v", err)
	}
	if _, _, err := db.CreateJob(ctx, queued("b"), anew); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that ended before: %v", err)
	}
}

func TestAContextThatEndsDuringTheTransactionHidesNoSuccess(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		j, created, err := db.CreateJob(ctx, queued(strconv.Itoa(i)), func(jobs.Holders) (*jobs.Job, error) {
			cancel()
			return nil, nil
		})
		if err != nil || !created {
			t.Fatalf("created %t, %v; want the success that it was", created, err)
		}
		if _, err := db.Job(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A callback that ends its goroutine, as t.FailNow does, ends the one that runs
// the batch. The others must not wait for ever, and nothing of it is stored.
func TestAGoroutineThatEndsInAWriteHoldsUpNobody(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	var ended atomic.Int64
	together(t, db, 5, func(i int) {
		returned := false
		defer func() {
			if !returned {
				ended.Add(1)
			}
		}()
		_, created, err := db.CreateJob(t.Context(), queued(strconv.Itoa(i)), func(jobs.Holders) (*jobs.Job, error) {
			if i == 2 {
				runtime.Goexit()
			}
			return nil, nil
		})
		returned = true
		if _, there := db.Job(t.Context(), id(strconv.Itoa(i))); (there == nil) != (created && err == nil) {
			t.Errorf("write %d was told created %t, %v, and reading it gives %v", i, created, err, there)
		}
	})
	if ended.Load() != 1 {
		t.Errorf("%d goroutines ended, want the one that ran the batch", ended.Load())
	}
	if _, err := db.Job(t.Context(), id("2")); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the job whose callback never returned: %v", err)
	}
	create(t, db, queued("after"))
}

func TestCloseFinishesWhatRunsAndRefusesWhatComes(t *testing.T) {
	path := place(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var stored sync.Map
	for c := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%d/%d", c, i)
				_, _, err := db.CreateJob(t.Context(), queued(name), anew)
				if err == nil {
					_, err = db.Jobs(t.Context(), jobs.Filter{Limit: 3})
					stored.Store(name, true)
				}
				if err != nil {
					if !errors.Is(err, jobs.ErrUnavailable) {
						t.Errorf("after Close: %v", err)
					}
					return
				}
			}
		})
	}
	until(t, "some jobs are stored", func() bool { n := 0; stored.Range(func(any, any) bool { n++; return n < 100 }); return n == 100 })
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	db = open(t, path, sqlite.Options{})
	stored.Range(func(name, _ any) bool {
		if _, err := db.Job(t.Context(), id(name.(string))); err != nil {
			t.Errorf("job %s was stored: %v", name, err)
		}
		return true
	})
}

func TestCloseWaitsForReaders(t *testing.T) {
	db, err := sqlite.Open(t.Context(), place(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var closing sync.WaitGroup
	var ended atomic.Bool
	if err := db.InRead(t.Context(), func() {
		closing.Go(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if !ended.Load() {
				t.Error("Close returned before the reader was done")
			}
		})
		until(t, "Close was called", db.Closing)
		if _, err := db.Jobs(t.Context(), jobs.Filter{}); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("a reader that comes meanwhile: %v", err)
		}
		ended.Store(true) // but for one more query
	}); err != nil {
		t.Errorf("the reader that was there: %v", err)
	}
	closing.Wait()
}

// Readers, however long, and writers never wait for each other, and none is
// told that the database is busy.
func TestReadersAndWritersDoNotWaitForEachOther(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{}.WithBusyTimeout(50*time.Millisecond))
	fill(t, db, 200)
	release := holdRead(t, path) // as a sqlite3 shell does
	defer release()
	var reader sync.WaitGroup
	var stop atomic.Bool
	reader.Go(func() {
		for !stop.Load() {
			if _, err := db.Jobs(t.Context(), jobs.Filter{Limit: 300}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var writers sync.WaitGroup
	for w := range 32 {
		writers.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("%d/%d", w, i)
				_, _, err := db.CreateJob(t.Context(), queued(name), anew)
				if err == nil {
					_, err = db.UpdateJob(t.Context(), id(name), apply(at(1), jobs.EventLaunch))
				}
				if err == nil {
					_, err = db.Job(t.Context(), id(name))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	reader.Wait()
	if n := len(list(t, db, jobs.Filter{})); n != 200+32*20 {
		t.Errorf("%d jobs are stored, want %d", n, 200+32*20)
	}
}

// With every connection in a transaction, one must be left to prepare on.
func TestFirstReadsAtTheSameTimeDoNotStandStill(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := db.ReadTogether(ctx); err != nil {
		t.Error(err)
	}
}

func TestTheLogShrinksWhenALongReaderIsGone(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	j := create(t, db, queued("a"))
	release := holdRead(t, path)
	body := make([]byte, 1<<20)
	write := func() {
		if _, err := db.SetResult(t.Context(), j.ID, body, func(j *jobs.Job) error { j.PID++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for fileSize(t, path+"-wal") < 20<<20 {
		write()
	}
	release()
	for range 3 { // one to move it into the database, one to start it anew
		write()
	}
	if size := fileSize(t, path+"-wal"); size > 16<<20 {
		t.Errorf("the log still has %d bytes", size)
	}
}
