package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Unannounced reports whether the database at path holds jobs of a project that
// no session was told of and nobody was given. It is for a process that is not
// the daemon and would start one only if there is something to say: it reads
// one row, makes no database, migrates none, and does not touch one that is
// newer or not ours.
func Unannounced(ctx context.Context, path, project string) (found bool, err error) {
	h, err := inspect(path)
	if err != nil {
		return false, fmt.Errorf("opening database: %w", err)
	}
	if h == nil || h.empty {
		return false, nil
	}
	if err := admit(path, h, len(migrations)); err != nil {
		return false, err
	}
	db, err := sql.Open("sqlite", dsn(path, time.Second, true))
	if err != nil {
		return false, fmt.Errorf("opening database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var one int
	err = db.QueryRowContext(ctx, `SELECT 1 FROM jobs WHERE project = ? AND delivered IS NULL AND announced IS NULL LIMIT 1`, project).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
