package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// What tests of the package need to see or to disturb.

const (
	ApplicationID = applicationID
	MaxBatch      = maxBatch
	Readers       = readers
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
	for range readers {
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
