package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"jobd/internal/jobs"
)

// What tests of the package need to see or to disturb.

const (
	ApplicationID = applicationID
	MaxBatch      = maxBatch
	Readers       = readers + 1 // the connections, one of them for preparing
)

func (o Options) WithBusyTimeout(d time.Duration) Options { o.busy = d; return o }

func (o Options) WithMigrations(steps ...string) Options { o.migrations = steps; return o }

func Migrations() []string { return migrations }

// HoldWriter keeps writes queued until release is called.
func (d *DB) HoldWriter() (release func()) {
	d.writer.turn <- struct{}{}
	return func() { <-d.writer.turn }
}

// Queued is how many writes are queued.
func (d *DB) Queued() int {
	d.writer.mu.Lock()
	defer d.writer.mu.Unlock()
	return len(d.writer.queue)
}

// OnWriter runs statements on the connection that writes, now, and returns the
// last one's first value as text.
func (d *DB) OnWriter(ctx context.Context, statements ...string) (string, error) {
	defer d.HoldWriter()()
	c, err := d.writer.connect(ctx)
	if err != nil {
		return "", err
	}
	return run(ctx, c.conn, statements)
}

// OnReaders runs a query on each of the connections that read, at the same
// time, so that none is asked twice.
func (d *DB) OnReaders(ctx context.Context, query string) (values []string, err error) {
	for range Readers {
		c, err := d.readers.Conn(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		v, err := run(ctx, c, []string{query})
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

func run(ctx context.Context, c *sql.Conn, statements []string) (string, error) {
	var v sql.NullString
	for _, s := range statements {
		err := c.QueryRowContext(ctx, s).Scan(&v)
		if err != nil && err != sql.ErrNoRows {
			return "", fmt.Errorf("%s: %w", s, err)
		}
	}
	return v.String, nil
}

// PlanOfJobs is how SQLite finds the jobs that fit f.
func (d *DB) PlanOfJobs(ctx context.Context, f jobs.Filter) (plan string, err error) {
	err = d.read(ctx, func(q queries) error {
		_, err := filterJobs(explaining{q, &plan}, f)
		return err
	})
	return plan, err
}

// explaining asks for the plan of each query before it is run.
type explaining struct {
	queries
	plan *string
}

func (e explaining) query(text string, args ...any) (*sql.Rows, error) {
	rows, err := e.queries.query("EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		*e.plan += detail + "\n"
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return e.queries.query(text, args...)
}

// Commits counts the transactions in the write-ahead log, from its frames that
// end one. It must not have been reset since.
func (d *DB) Commits() (int, error) {
	b, err := os.ReadFile(d.path + "-wal")
	if err != nil || len(b) < 32 {
		return 0, err
	}
	n := 0
	frame := 24 + int(binary.BigEndian.Uint32(b[8:]))
	for b = b[32:]; len(b) >= frame; b = b[frame:] {
		if binary.BigEndian.Uint32(b[4:]) != 0 {
			n++
		}
	}
	return n, nil
}

// ReadTogether runs transactions that are all under way before the first of
// them asks for a statement that was never prepared.
func (d *DB) ReadTogether(ctx context.Context) error {
	var begun, ended sync.WaitGroup
	begun.Add(readers)
	errs := make([]error, readers)
	for i := range readers {
		ended.Go(func() {
			errs[i] = d.read(ctx, func(q queries) error {
				begun.Done()
				begun.Wait()
				_, err := first(q, []any{new(int)}, fmt.Sprintf("SELECT %d", i))
				return err
			})
		})
	}
	ended.Wait()
	return errors.Join(errs...)
}

// InRead runs f while a transaction reads, which reads again afterwards.
func (d *DB) InRead(ctx context.Context, f func()) error {
	return d.read(ctx, func(q queries) error {
		f()
		_, err := first(q, []any{new(int)}, "SELECT count(*) FROM jobs")
		return err
	})
}

// Closing reports whether Close was called.
func (d *DB) Closing() bool { return d.writer.isClosed() }

// Inspect reads a header; version is -1 where there is none.
func Inspect(path string) (version int, err error) {
	h, err := inspect(path)
	if h == nil {
		return -1, err
	}
	return h.version, err
}

// ThroughText stores an instant as a column does, and reads it back.
func ThroughText(t jobs.Instant) (got jobs.Instant, err error) {
	err = instantColumn{&got}.Scan(instantText(t))
	return got, err
}

// ParseInstant reads the text of an instant.
func ParseInstant(s string) error {
	_, err := parseInstant(s)
	return err
}

// DecodeColumns reads the JSON of a row, whose spec has the right checksum, and
// returns it as it would be written again.
func DecodeColumns(spec, exit, stop, progress []byte) (again [4]string, err error) {
	var j jobs.Job
	if err := errors.Join(decodeSpec(spec, uint32(checksumOf(string(spec))), &j.Spec), decodeExit(exit, &j.Exit), decodeStop(stop, &j.Stop), decodeProgress(progress, &j.Progress)); err != nil {
		return again, err
	}
	values := make([]any, 4)
	var errs [4]error
	values[0], errs[0] = encodeSpec(&j)
	values[1], errs[1] = encodeExit(j.Exit)
	values[2], errs[2] = encodeStop(j.Stop)
	values[3], errs[3] = encodeProgress(j.Progress)
	for i, v := range values {
		again[i], _ = v.(string)
	}
	return again, errors.Join(errs[:]...)
}
