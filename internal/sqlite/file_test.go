package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// raw opens a database as another program would.
func raw(t *testing.T, path, query string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// execAs runs statements as another program would, one that ends then.
func execAs(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := raw(t, path, "")
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// holdRead holds a read transaction as another program would.
func holdRead(t *testing.T, path string) (release func()) {
	t.Helper()
	db := raw(t, path, "")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM jobs").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// contents are the files of a directory, with what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

// copyAlive copies a database that is in use, as it would be found after a
// power cut.
func copyAlive(t *testing.T, from, to string) {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryConnectionIsSetUp(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for pragma, want := range map[string]string{
		"journal_mode":         "wal",
		"synchronous":          "2", // FULL
		"busy_timeout":         "5000",
		"foreign_keys":         "1",
		"trusted_schema":       "0",
		"cell_size_check":      "1",
		"fullfsync":            "1",
		"checkpoint_fullfsync": "1",
		"journal_size_limit":   "16777216",
		"wal_autocheckpoint":   "1000",
		"application_id":       fmt.Sprint(sqlite.ApplicationID),
		"user_version":         fmt.Sprint(len(sqlite.Migrations())),
	} {
		got, err := db.OnReaders(t.Context(), "PRAGMA "+pragma)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != sqlite.Readers {
			t.Errorf("%d connections read, want %d", len(got), sqlite.Readers)
		}
		w, err := db.OnWriter(t.Context(), "PRAGMA "+pragma)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range append(got, w) {
			if got != want {
				t.Errorf("%s is %q, want %q", pragma, got, want)
			}
		}
	}
	got, err := db.OnReaders(t.Context(), "PRAGMA query_only")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1", "1", "1", "1", "1"}, got); diff != "" {
		t.Errorf("query_only of the readers (-want +got):\n%s", diff)
	}
	if _, err := db.OnReaders(t.Context(), "DELETE FROM jobs"); err == nil {
		t.Error("a connection that reads could write")
	}
}

// The umask is of the process, so this test must not run beside others.
func TestFilesAreTheirOwnersAlone(t *testing.T) {
	for _, umask := range []int{0, 0o777} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			path := place(t)
			old := syscall.Umask(umask)
			db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				_, _, err = db.CreateJob(t.Context(), queued("a"), anew)
			}
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, end := range []string{"", "-wal", "-shm"} {
				info, err := os.Stat(path + end)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != 0o600 {
					t.Errorf("%s has mode %v, want 0600", info.Name(), info.Mode())
				}
			}
		})
	}
	t.Run("open to others before", func(t *testing.T) {
		path := place(t)
		db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Close(), os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
		open(t, path, sqlite.Options{})
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
		}
	})
}

func TestAnyPathWillDo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c=d#e%20f&ä'\"")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "jobd.db")
	db := open(t, path, sqlite.Options{})
	create(t, db, queued("a"))
	if fileSize(t, path+"-wal") == 0 {
		t.Error("the log is elsewhere")
	}
}

func TestClosingLeavesOneFile(t *testing.T) {
	path := place(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, queued("a"))
	list(t, db, jobs.Filter{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if files := contents(t, filepath.Dir(path)); len(files) != 1 {
		t.Errorf("%d files are left, want the database alone", len(files))
	}
}

func TestANewerSchemaIsRefusedUntouched(t *testing.T) {
	newer := append(append([]string{}, sqlite.Migrations()...), "CREATE TABLE tomorrow (x INTEGER) STRICT")
	known := len(sqlite.Migrations())
	for name, leave := range map[string]func(path string){
		"closed": func(path string) {
			db, err := sqlite.Open(t.Context(), path, sqlite.Options{}.WithMigrations(newer...))
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		},
		// The version is in the log alone then.
		"killed after an upgrade": func(path string) {
			at := place(t)
			db, err := sqlite.Open(t.Context(), at, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, at, sqlite.Options{}.WithMigrations(newer...))
			create(t, db, queued("a"))
			copyAlive(t, at, path)
			if b, err := os.ReadFile(path); err != nil || binary.BigEndian.Uint32(b[60:]) != uint32(known) {
				t.Fatalf("the test needs the old version in the file itself: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			leave(path)
			before := contents(t, filepath.Dir(path))
			_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			refused, ok := errors.AsType[*sqlite.NewerError](err)
			if !ok || !errors.Is(err, jobs.ErrUnavailable) {
				t.Fatalf("error %v, want a NewerError", err)
			}
			if refused.Found != known+1 || refused.Known != known || refused.Path != path {
				t.Errorf("%+v", refused)
			}
			for _, part := range []string{fmt.Sprintf("schema %d", known+1), fmt.Sprintf("up to %d", known), "install", path} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
			if diff := cmp.Diff(before, contents(t, filepath.Dir(path))); diff != "" {
				t.Error("the files were changed")
			}
		})
	}
}

func TestAForeignFileIsRefusedUntouched(t *testing.T) {
	for name, make := range map[string]func(path string){
		"another program's database": func(path string) {
			execAs(t, path, "PRAGMA application_id = 42", "CREATE TABLE t (x)")
		},
		"a database without a mark": func(path string) { execAs(t, path, "CREATE TABLE t (x)") },
		"one in use": func(path string) {
			at := place(t)
			db := raw(t, at, "?_pragma=journal_mode(wal)")
			if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (x)"); err != nil {
				t.Fatal(err)
			}
			copyAlive(t, at, path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			make(path)
			before := contents(t, filepath.Dir(path))
			_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if !errors.Is(err, sqlite.ErrForeign) || errors.Is(err, sqlite.ErrDamaged) || !errors.Is(err, jobs.ErrUnavailable) {
				t.Errorf("error %v, want ErrForeign", err)
			}
			if diff := cmp.Diff(before, contents(t, filepath.Dir(path))); diff != "" {
				t.Error("the files were changed")
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		path := place(t)
		if err := os.Symlink(place(t), path); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("error %v, want a refusal", err)
		}
	})
	for name, make := range map[string]func(string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, sqlite.ErrDamaged) {
				t.Errorf("error %v, want a refusal", err)
			}
		})
	}
}

func TestADatabaseThatWasNeverFilledIsOurs(t *testing.T) {
	path := place(t)
	execAs(t, path, "PRAGMA journal_mode = wal") // as far as a killed daemon may come
	if fileSize(t, path) == 0 {
		t.Fatal("the test needs a first page")
	}
	db := open(t, path, sqlite.Options{})
	create(t, db, queued("a"))
}

func TestOpenNamesThePlaceThatItCannotUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	_, err := sqlite.Open(t.Context(), filepath.Join(dir, "jobd.db"), sqlite.Options{})
	if !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), dir) {
		t.Errorf("error %v, want one that names %s", err, dir)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlite.Open(ctx, place(t), sqlite.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

// damaged makes a database and then harms it.
func damaged(t *testing.T, harm func([]byte) []byte) string {
	t.Helper()
	path := place(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 300)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, harm(b), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestADamagedFileIsToldAndSetAside(t *testing.T) {
	for name, harm := range map[string]func([]byte) []byte{
		"no database":     func([]byte) []byte { return []byte("once upon a time") },
		"first page gone": func(b []byte) []byte { return append(make([]byte, 4096), b[4096:]...) },
		"tables gone":     func(b []byte) []byte { return append(b[:4096:4096], make([]byte, len(b)-4096)...) },
		"cut off":         func(b []byte) []byte { return b[:4096] },
		"cut off early":   func(b []byte) []byte { return b[:50] },
	} {
		t.Run(name, func(t *testing.T) {
			path := damaged(t, harm)
			harmed := contents(t, filepath.Dir(path))["jobd.db"]
			_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if !errors.Is(err, sqlite.ErrDamaged) || !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want ErrDamaged with the path", err)
			}
			aside, err := sqlite.SetAside(path)
			if err != nil {
				t.Fatal(err)
			}
			db := open(t, path, sqlite.Options{})
			create(t, db, queued("new"))
			if n := len(list(t, db, jobs.Filter{})); n != 1 {
				t.Errorf("%d jobs in the new database, want 1", n)
			}
			if b, err := os.ReadFile(aside); err != nil || string(b) != harmed {
				t.Errorf("what was set aside is not what was there: %v", err)
			}
		})
	}
}

// A page in the middle is found when the database was not closed in order, or
// when somebody has come across it.
func TestDamageWithinIsFound(t *testing.T) {
	inner := func(b []byte) []byte {
		for i := 4096 * 60; i < len(b); i += 4096 {
			copy(b[i:], bytes.Repeat([]byte{0xa5}, 64))
		}
		return b
	}
	t.Run("after a crash", func(t *testing.T) {
		path := damaged(t, inner)
		if err := os.WriteFile(path+"-wal", make([]byte, 32), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("error %v, want ErrDamaged", err)
		}
	})
	t.Run("after it was met", func(t *testing.T) {
		path := damaged(t, inner)
		db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Jobs(t.Context(), jobs.Filter{}); !errors.Is(err, sqlite.ErrDamaged) || !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("reading: %v, want ErrDamaged", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("opening again: %v, want ErrDamaged", err)
		}
		if _, err := sqlite.SetAside(path); err != nil {
			t.Fatal(err)
		}
		open(t, path, sqlite.Options{})
	})
}

func TestASuspicionThatIsUnfoundedIsDropped(t *testing.T) {
	path := damaged(t, func(b []byte) []byte { return b })
	if err := os.WriteFile(path+"-suspect", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path, sqlite.Options{})
	if _, err := os.Stat(path + "-suspect"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
}

func TestSetAsideTakesAllFilesToAFreeName(t *testing.T) {
	path := place(t)
	for n := 1; n <= 2; n++ {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.WriteFile(path+end, fmt.Append(nil, n, end), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		to, err := sqlite.SetAside(path)
		if want := fmt.Sprintf("%s.damaged-%d", path, n); err != nil || to != want {
			t.Errorf("set aside to %q, %v; want %q", to, err, want)
		}
	}
	if diff := cmp.Diff(map[string]string{
		"jobd.db.damaged-1": "1", "jobd.db.damaged-1-wal": "1-wal", "jobd.db.damaged-1-shm": "1-shm",
		"jobd.db.damaged-2": "2", "jobd.db.damaged-2-wal": "2-wal", "jobd.db.damaged-2-shm": "2-shm",
	}, contents(t, filepath.Dir(path))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := sqlite.SetAside(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where there is nothing: %v", err)
	}
}
