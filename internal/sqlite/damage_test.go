package sqlite_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// harmRow changes a table as a failing disk would, without regard to what the
// schema allows.
func harmRow(t *testing.T, path, statement string) {
	t.Helper()
	execAs(t, path, "PRAGMA writable_schema = 1", "CREATE TABLE kept AS SELECT name, sql FROM sqlite_schema WHERE type = 'table'",
		"UPDATE sqlite_schema SET sql = replace(replace(sql, 'STRICT', ''), 'NOT NULL,', ',') WHERE name = 'jobs'")
	execAs(t, path, "PRAGMA ignore_check_constraints = 1", statement)
	execAs(t, path, "PRAGMA writable_schema = 1", "UPDATE sqlite_schema SET sql = (SELECT sql FROM kept WHERE name = 'jobs') WHERE name = 'jobs'",
		"DROP TABLE kept")
}

func TestADamagedRowHarmsNoOther(t *testing.T) {
	for name, harm := range map[string]string{
		"spec is no JSON":         "spec = '{' ",
		"one letter of the spec":  "spec = replace(spec, 'make bad', 'make bed')",
		"spec is no text":         "spec = x'ff'",
		"unknown state":           "state = 'odd'",
		"final without an end":    "state = 'succeeded'",
		"waiting for nothing":     "state = 'waiting'",
		"a question is missing":   "questions = 1",
		"revision is a text":      "revision = 'many'",
		"instant is none":         "created = 'yesterday'",
		"clock is none":           "created = '2026-01-01T00:00:00Z 1 x b'",
		"exit is no JSON":         "exit = 'gone'",
		"instant of a stop":       `stop = '{"cause":"cancel","at":"now"}'`,
		"unfollowed is no truth":  "unfollowed = 7",
		"a value that is missing": "reason = NULL",
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			var mu sync.Mutex
			told := map[string]int{}
			db := open(t, path, sqlite.Options{OnDamage: func(id string, err error) {
				mu.Lock()
				defer mu.Unlock()
				told[id]++
				if err == nil {
					t.Error("no cause is told")
				}
			}})
			for _, name := range []string{"first", "bad", "last"} {
				j := queued(name)
				j.Keys.Idempotency, j.Keys.Join = "i "+name, "j "+name
				create(t, db, j)
			}
			bad := id("bad")
			harmRow(t, path, "UPDATE jobs SET "+harm+" WHERE id = '"+bad+"'")
			for range 2 {
				if diff := cmp.Diff([]string{"last", "first"}, names(list(t, db, jobs.Filter{}))); diff != "" {
					t.Errorf("jobs (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff([]string{"last", "first"}, names(list(t, db, jobs.Filter{Limit: 2}))); diff != "" {
				t.Errorf("with a limit (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int{bad: 1}, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			for what, call := range map[string]func() error{
				"Job":     func() error { _, err := db.Job(t.Context(), bad); return err },
				"FindJob": func() error { _, err := db.FindJob(t.Context(), bad[:10]); return err },
				"UpdateJob": func() error {
					_, err := db.UpdateJob(t.Context(), bad, func(*jobs.Job) error { return nil })
					return err
				},
				"the same request": func() error {
					_, _, err := db.CreateJob(t.Context(), jobs.New(id("x"), spec("x"), jobs.Keys{Request: "request bad"}, at(0)), join)
					return err
				},
				"the same key": func() error {
					_, _, err := db.CreateJob(t.Context(), jobs.New(id("x"), spec("x"), jobs.Keys{Idempotency: "i bad"}, at(0)), join)
					return err
				},
			} {
				err := call()
				if !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, sqlite.ErrDamaged) || !strings.Contains(err.Error(), bad) {
					t.Errorf("%s: %v, want an error about this job alone", what, err)
				}
			}
			// An identical call need not wait for it, unless not even the key can be
			// taken from it; with a key of its own it can always be made.
			_, created, err := db.CreateJob(t.Context(), jobs.New(id("again"), spec("again"), jobs.Keys{Join: "j bad"}, at(0)), join)
			if stuck := name == "spec is no text" || name == "revision is a text"; stuck != errors.Is(err, jobs.ErrUnavailable) || stuck == created {
				t.Errorf("an identical call: created %t, %v", created, err)
			}
			create(t, db, jobs.New(id("fresh"), spec("fresh"), jobs.Keys{Idempotency: "fresh"}, at(0)))
			update(t, db, id("first"), apply(at(0), jobs.EventLaunch))
			if _, err := db.History(t.Context(), bad); err != nil {
				t.Errorf("its history: %v", err)
			}
		})
	}
}

func TestADamagedQuestionHarmsItsJobAlone(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for n := range 3 {
		j := create(t, db, queued(strconv.Itoa(n)))
		update(t, db, j.ID, apply(at(1), jobs.EventLaunch, jobs.EventStarted))
		update(t, db, j.ID, func(j *jobs.Job) error {
			j.Questions = []jobs.Question{{ID: "a", State: jobs.QuestionOpen, Asked: at(0)}}
			return j.Apply(jobs.EventAsked, at(1), "")
		})
	}
	if _, err := db.OnWriter(t.Context(), "PRAGMA ignore_check_constraints = 1", "UPDATE questions SET asked = 'x' WHERE job = 2",
		"PRAGMA ignore_check_constraints = 0"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2", "0"}, names(list(t, db, jobs.Filter{Limit: 2}))); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if _, err := db.Job(t.Context(), id("1")); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
}

// A damaged row does not make the database a damaged one when it is opened.
func TestOpeningWithADamagedRow(t *testing.T) {
	at := place(t)
	db := open(t, at, sqlite.Options{})
	create(t, db, queued("good"))
	create(t, db, queued("bad"))
	if _, err := db.OnWriter(t.Context(), "PRAGMA ignore_check_constraints = 1", "UPDATE jobs SET state = 'odd' WHERE seq = 2",
		"PRAGMA ignore_check_constraints = 0"); err != nil {
		t.Fatal(err)
	}
	path := place(t)
	copyAlive(t, at, path) // not closed in order, so all of it is checked
	db = open(t, path, sqlite.Options{})
	if diff := cmp.Diff([]string{"good"}, names(list(t, db, jobs.Filter{}))); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}
