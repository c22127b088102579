package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
)

// The migrations, each a file NNNN_name.sql. A file that was released is never
// changed: a new one is added. There is no way back.
//
//go:embed migration/*.sql
var migrationFS embed.FS

// migrations are the SQL texts; the first makes schema 1. The names are
// checked by a test.
var migrations = func() []string {
	names, err := fs.Glob(migrationFS, "migration/*.sql")
	if err != nil {
		panic(err)
	}
	texts := make([]string, len(names))
	for i, name := range names {
		b, err := migrationFS.ReadFile(name)
		if err != nil {
			panic(err)
		}
		texts[i] = string(b)
	}
	return texts
}()

// migrate brings the schema up to date, each step in a transaction of its own
// that also counts it.
func (c *connection) migrate(ctx context.Context, path string, steps []string) error {
	for {
		done, err := c.step(ctx, path, steps)
		if err != nil || done {
			return err
		}
	}
}

// step applies the next migration, if there is one. The version is read in the
// transaction, since another process may migrate at the same time.
func (c *connection) step(ctx context.Context, path string, steps []string) (done bool, err error) {
	if _, err := c.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return false, err
	}
	defer func() {
		if done || err != nil {
			_, _ = c.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // an error may have done it already
		}
	}()
	var version int
	if err := c.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return false, err
	}
	if version > len(steps) {
		return false, &NewerError{Path: path, Found: version, Known: len(steps)}
	}
	if version == len(steps) {
		return true, nil
	}
	if _, err := c.conn.ExecContext(ctx, steps[version]); err != nil {
		return false, fmt.Errorf("bringing the schema from %d to %d: %w", version, version+1, err)
	}
	for _, pragma := range []string{
		"PRAGMA application_id = " + strconv.Itoa(applicationID),
		"PRAGMA user_version = " + strconv.Itoa(version+1),
	} {
		if _, err := c.conn.ExecContext(ctx, pragma); err != nil {
			return false, err
		}
	}
	_, err = c.conn.ExecContext(ctx, "COMMIT")
	return false, err
}
