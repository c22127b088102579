package sqlite_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

var golden = flag.Bool("update", false, "write the golden files anew")

// schemaOf dumps a schema as SQLite keeps it.
func schemaOf(t *testing.T, path string) string {
	t.Helper()
	rows, err := raw(t, path, "").QueryContext(t.Context(), "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "-- %s %s\n%s;\n\n", kind, name, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheSchemaIsTheGoldenOne(t *testing.T) {
	path := place(t)
	open(t, path, sqlite.Options{})
	got := schemaOf(t, path)
	file := filepath.Join("testdata", "schema.sql")
	if *golden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("schema (-golden +got); a released migration never changes, add one:\n%s", diff)
	}
	for _, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, ")") && !strings.Contains(line, "STRICT") {
			t.Errorf("a table is not STRICT: %s", line)
		}
	}
}

func TestMigrationsAreNumberedWithoutGaps(t *testing.T) {
	names, err := filepath.Glob("migration/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 || len(names) != len(sqlite.Migrations()) {
		t.Errorf("%d files, %d migrations", len(names), len(sqlite.Migrations()))
	}
	for i, name := range names {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(filepath.Base(name), want) || !strings.HasSuffix(name, ".sql") {
			t.Errorf("%s is not named %s….sql", name, want)
		}
	}
}

func TestMigrationsBringAnOldDatabaseUpToDate(t *testing.T) {
	path := place(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := create(t, db, queued("old"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	steps := append([]string{}, sqlite.Migrations()...)

	// One that fails in its middle leaves the schema as it was.
	broken := append(steps, "CREATE TABLE half (x INTEGER) STRICT; INSERT INTO missing VALUES (1)")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}.WithMigrations(broken...)); err == nil || errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("error %v, want that of the migration", err)
	}
	db, err = sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatalf("after a migration that failed: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(schemaOf(t, path), "half") {
		t.Error("half of the migration is left")
	}

	db = open(t, path, sqlite.Options{}.WithMigrations(append(steps, "ALTER TABLE jobs ADD COLUMN extra TEXT", "CREATE TABLE more (x INTEGER) STRICT")...))
	got, err := db.Job(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	sameJob(t, got, want)
	if v, err := db.OnWriter(t.Context(), "PRAGMA user_version"); v != fmt.Sprint(len(steps)+2) || err != nil {
		t.Errorf("user_version %s, %v", v, err)
	}
}
