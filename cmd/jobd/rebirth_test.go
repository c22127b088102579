package main

import (
	"database/sql"
	"testing"
)

// A daemon that somebody kills before it answers says nothing against the next.
func TestADaemonThatIsKilledWhileItStartsIsStartedAgain(t *testing.T) {
	s := newSite(t)
	s.start()
	s.must("stop")
	// Another program has the database: a daemon waits for it, and answers later.
	db, err := sql.Open("sqlite", s.p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, text := range []string{"PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE"} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	cmd := s.cmd("start", "--within", "30s")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := 0
	eventually(t, "a daemon starts", func() bool {
		if found := s.daemons(); len(found) == 1 {
			first = found[0]
		}
		return first != 0
	})
	s.kill(first)
	eventually(t, "another starts in its place", func() bool {
		found := s.daemons()
		return len(found) == 1 && found[0] != first
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("jobd start: %v", err)
	}
	if pid := s.pid(); pid == first {
		t.Errorf("the daemon is process %d still", pid)
	}
}
