package sqlite_test

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// Whatever lies where the database should be, looking at it gives its version
// or says that it is damaged.
func FuzzInspect(f *testing.F) {
	path := place(f)
	db := open(f, path, sqlite.Options{})
	create(f, db, queued("a"))
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file[:4096], wal)
	f.Add(file[:4096], wal[:len(wal)/2])
	f.Add(file[:108], []byte{})
	f.Add([]byte("SQLite format 3\x00"), wal[:31])
	f.Add([]byte{}, wal)
	f.Fuzz(func(t *testing.T, file, wal []byte) {
		path := place(t)
		if err := errors.Join(os.WriteFile(path, file, 0o600), os.WriteFile(path+"-wal", wal, 0o600)); err != nil {
			t.Fatal(err)
		}
		version, err := sqlite.Inspect(path)
		if err != nil && !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("error %v, want ErrDamaged", err)
		}
		if (version == -1) != (err != nil || len(file) == 0) {
			t.Errorf("version %d, error %v, of %d bytes", version, err, len(file))
		}
	})
}

func FuzzInstant(f *testing.F) {
	f.Add("2026-03-01T08:30:00.123456789Z 1 2 boot", int64(1), int64(2), int64(3), "boot")
	f.Add("  ", int64(math.MinInt64), int64(math.MaxInt64), int64(0), " ")
	f.Fuzz(func(t *testing.T, text string, wall, run, boot int64, id string) {
		_ = sqlite.ParseInstant(text) // must not panic
		want := jobs.Instant{Wall: time.Unix(0, wall).UTC(), Run: time.Duration(run), Boot: time.Duration(boot), BootID: id}
		got, err := sqlite.ThroughText(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("instant (-want +got):\n%s", diff)
		}
	})
}

// What a row holds is read, or told to be damaged; and what was read is written
// and read the same.
func FuzzColumns(f *testing.F) {
	const at = "2026-03-01T08:30:00.123456789Z 1 2 boot"
	f.Add([]byte(`{"Tool":"run_job","Name":"true","Argv":["true"],"Dir":"/","Project":"/","Timeout":1000000000}`),
		[]byte(`{"code":-1,"signal":15,"signal_name":"SIGTERM","stop_first":true,"at":"`+at+`"}`),
		[]byte(`{"cause":"cancel","reason":"asked to","at":"`+at+`"}`),
		[]byte(`{"done":3,"total":10,"text":"step","at":"`+at+`"}`))
	f.Add([]byte(`{}`), []byte(nil), []byte(nil), []byte(nil))
	f.Add([]byte(`{"Argv":["\ud800"]}`), []byte(`{"code":1e3}`), []byte(`[]`), []byte(`{"done":1e999}`))
	f.Fuzz(func(t *testing.T, spec, exit, stop, progress []byte) {
		first, err := sqlite.DecodeColumns(spec, exit, stop, progress)
		if err != nil {
			return
		}
		column := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		second, err := sqlite.DecodeColumns(column(first[0]), column(first[1]), column(first[2]), column(first[3]))
		if err != nil {
			t.Fatalf("%q cannot be read again: %v", first, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Error(diff)
		}
	})
}
