package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// play starts the test binary in a role. It is killed at the end of the test
// if it has not ended.
func play(t *testing.T, as, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], path)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// writeUntilKilled stores jobs from several goroutines and says the name of
// each that the store acknowledged, and of each whose change it acknowledged.
func writeUntilKilled() {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, os.Args[1], sqlite.Options{})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(words ...string) {
		mu.Lock()
		defer mu.Unlock()
		// One write, so that the reader gets whole lines.
		os.Stdout.WriteString(strings.Join(words, " ") + "\n")
	}
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%d-%d-%d", os.Getpid(), c, n)
				if _, _, err := db.CreateJob(ctx, queued(name), anew); err != nil {
					say("failed", err.Error())
					return
				}
				say("created", name)
				if _, err := db.UpdateJob(ctx, id(name), apply(at(time.Second), jobs.EventLaunch, jobs.EventStarted)); err != nil {
					say("failed", err.Error())
					return
				}
				say("started", name)
			}
		})
	}
	wg.Wait()
	os.Exit(1)
}

func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	path := place(t)
	created, started := map[string]bool{}, map[string]bool{}
	for round := range 5 {
		cmd, lines := play(t, "write until killed", path)
		enough := len(created) + 50 + 97*round // never the same point twice
		for len(created) < enough && lines.Scan() {
			note(t, lines.Text(), created, started)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it died
			note(t, lines.Text(), created, started)
		}
		_ = cmd.Wait() // killed

		db, err := sqlite.Open(t.Context(), path, sqlite.Options{OnDamage: func(id string, err error) { t.Errorf("job %s: %v", id, err) }})
		if err != nil {
			t.Fatal(err)
		}
		for name := range created {
			j, err := db.Job(t.Context(), id(name))
			if err != nil {
				t.Fatalf("job %s was acknowledged: %v", name, err)
			}
			if started[name] && j.State() != jobs.Running {
				t.Errorf("job %s is %s; that it runs was acknowledged", name, j.State())
			}
			history, err := db.History(t.Context(), j.ID)
			if err != nil || int64(len(history)) != j.Revision() {
				t.Errorf("job %s has revision %d and %d events, %v", name, j.Revision(), len(history), err)
			}
		}
		list(t, db, jobs.Filter{})
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d jobs acknowledged, 5 kills", len(created))
}

func note(t *testing.T, line string, created, started map[string]bool) {
	t.Helper()
	what, name, _ := strings.Cut(line, " ")
	switch what {
	case "created":
		created[name] = true
	case "started":
		started[name] = true
	default:
		t.Fatalf("the writer says: %s", line)
	}
}

// writeOne opens the database, stores one job and ends.
func writeOne() {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, os.Args[1], sqlite.Options{})
	if err == nil {
		_, _, err = db.CreateJob(ctx, queued(strconv.Itoa(os.Getpid())), anew)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A lock elsewhere keeps a second daemon away, but the file must be right
// without it.
func TestConcurrentOpensMakeOneSchema(t *testing.T) {
	path := place(t)
	var all sync.WaitGroup
	for range 6 {
		cmd, lines := play(t, "write one", path)
		all.Go(func() {
			for lines.Scan() {
				t.Error(lines.Text())
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db := open(t, path, sqlite.Options{})
	if n := len(list(t, db, jobs.Filter{})); n != 6 {
		t.Errorf("%d jobs are stored, want 6", n)
	}
}
