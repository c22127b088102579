package sqlite_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// A file system of 2 MB, filled to the last byte while jobs run.
func TestAFullDiskSaysSoAndGoesOnLater(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Logf("no right to mount a file system (%v): that a full one is told is left to the tests with a limit", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path, ballast := filepath.Join(dir, "jobd.db"), filepath.Join(dir, "ballast")
	db := open(t, path, sqlite.Options{})
	running := create(t, db, queued("running"))
	update(t, db, running.ID, apply(at(0), jobs.EventLaunch, jobs.EventStarted))
	_ = os.WriteFile(ballast, make([]byte, 4<<20), 0o600) // as much as fits

	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := 1
	var failures []error
	for i := range 200 {
		wg.Go(func() {
			_, _, err := db.CreateJob(t.Context(), queued(strconv.Itoa(i)), anew)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err)
			} else {
				acknowledged++
			}
		})
	}
	wg.Wait()
	if len(failures) == 0 {
		t.Fatal("the disk is not full")
	}
	for _, err := range failures {
		assertCause(t, err, path, "database "+path)
	}
	t.Log(failures[0])
	if n := len(list(t, db, jobs.Filter{})); n != acknowledged {
		t.Errorf("%d jobs are stored, and %d were acknowledged", n, acknowledged)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if j := update(t, db, running.ID, apply(at(1), jobs.EventSucceeded)); j.State() != jobs.Succeeded {
		t.Errorf("state %s", j.State())
	}
	create(t, db, queued("later"))
}
