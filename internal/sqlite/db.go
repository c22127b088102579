// Package sqlite keeps jobs durably: [DB] is the [jobs.Store] on SQLite. The
// daemon opens it; nothing else does.
//
// Its one invariant: a write whose call returned without an error is on disk,
// and one whose call returned an error never happened.
//
// There is one connection that writes, on which concurrent writes share a
// transaction (see writer), and a few that only read. The write-ahead log lets
// them work at the same time. All SQL of a table is in the file of its name;
// migration/ holds the schema.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"jobd/internal/jobs"
)

// Options of a [DB]. The zero value is usable.
type Options struct {
	// OnDamage is called for each job whose row cannot be read, once while the
	// database is open. It may be called by several goroutines and must not
	// call the DB.
	OnDamage func(id string, err error)
	// OnSuspect is called once, when a call met damage to more than a row. The
	// next Open looks at all of the file. It may be called by any goroutine and
	// must not call the DB.
	OnSuspect func(err error)

	busy       time.Duration // how long to wait for another program's lock
	migrations []string
}

const (
	// busyTimeout is how long a call waits for a lock of another program. Our
	// own connections never wait for each other.
	busyTimeout = 5 * time.Second
	// readers bounds the transactions that read. One more connection is left for
	// preparing a statement, which a transaction waits for.
	readers = 4
)

// A DB is a database of jobs. Its methods may be called concurrently. The
// errors that they share, besides those of [jobs.Store]:
// [jobs.ErrUnavailable] with the cause and what to do, wrapping [ErrDamaged]
// where the file is damaged; ctx's error where ctx ended before the call's
// transaction began.
type DB struct {
	path      string
	onDamage  func(id string, err error)
	reported  sync.Map // ids given to onDamage
	suspect   sync.Once
	onSuspect func(err error)
	opened    bool // onSuspect may be called

	writer  *writer
	readers *sql.DB
	reading chan struct{} // a place for each transaction that reads
	life    sync.RWMutex  // held for reading by reads, so that Close waits for them
	// Guards prepared, the statements of readers by their text. database/sql
	// prepares each once per connection.
	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

var _ jobs.Store = (*DB)(nil)

// Open opens the database at path, and creates it where there is none. The
// directory must exist and belong to the caller, and the process must not have
// the database open already. Close the DB to end what Open started; ctx bounds
// Open only.
//
// A database that was not made by this program or is of a newer schema is left
// as it is, byte for byte; the error wraps [ErrForeign] or is a [*NewerError].
// The error for a damaged one wraps [ErrDamaged]. All of them wrap
// [jobs.ErrUnavailable].
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening database: %w", err)
	}
	if o.busy == 0 {
		o.busy = busyTimeout
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	doubtful := unclean(path)
	h, err := inspect(path)
	if err == nil {
		err = admit(path, h, len(o.migrations))
	}
	if err == nil {
		err = create(path)
	}
	if err == nil {
		err = protect(path)
	}
	if err != nil {
		if errors.Is(err, jobs.ErrUnavailable) {
			return nil, err
		}
		return nil, &jobs.Error{Kind: jobs.ErrUnavailable, Err: err, Message: fmt.Sprintf("opening database: %v", err)}
	}
	// fdatasync makes a commit as durable as fsync does, for half the price;
	// where there is none the driver keeps to fsync.
	_, _ = sqlite.Fdatasync(true)

	d := &DB{path: path, onDamage: o.OnDamage, onSuspect: o.OnSuspect, prepared: map[string]*sql.Stmt{}, reading: make(chan struct{}, readers)}
	if d.writer, err = newWriter(dsn(path, o.busy, false)); err != nil {
		return nil, fmt.Errorf("opening database: %w", err)
	}
	if d.readers, err = sql.Open("sqlite", dsn(path, o.busy, true)); err != nil {
		return nil, fmt.Errorf("opening database: %w", err)
	}
	d.readers.SetMaxOpenConns(readers + 1)
	d.readers.SetMaxIdleConns(readers + 1)
	if err := d.setUp(ctx, o.migrations, h != nil && doubtful); err != nil {
		if newer, ok := errors.AsType[*NewerError](err); ok {
			err = newer
		} else {
			err = d.explain("opening database", err)
		}
		_ = d.Close() // the first error is the cause
		return nil, err
	}
	d.opened = true
	return d, nil
}

// setUp checks the file where there is reason to, brings the schema up to date,
// and reads from every table, so that gross damage shows now.
func (d *DB) setUp(ctx context.Context, steps []string, doubtful bool) error {
	c, err := d.writer.connect(ctx)
	if err != nil {
		return err
	}
	if doubtful {
		if err := c.check(ctx, d.path); err != nil {
			return err
		}
	}
	if err := c.migrate(ctx, d.path, steps); err != nil {
		return err
	}
	return d.read(ctx, func(q queries) error {
		for _, table := range []string{"jobs", "questions", "events", "results", "settings", "expired"} {
			if _, err := first(q, []any{new(int)}, "SELECT 1 FROM "+table); code(err) == lib.SQLITE_ERROR {
				return fmt.Errorf("%w: its schema is not what its version says: %w", ErrDamaged, err)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}

// check looks for damage to the structure of the file, at about 10 ms for a
// thousand jobs. Damage within a row is left to those who read the row. Where
// damage was seen before, the indexes are made anew, which that does not look at.
func (c *connection) check(ctx context.Context, path string) error {
	var found string
	if err := c.conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	// What is wrong with the structure comes first, under this heading; other
	// findings are values that a column does not allow.
	if strings.HasPrefix(found, "*** in database ") {
		return fmt.Errorf("%w: %s", ErrDamaged, strings.ReplaceAll(found, "\n", " "))
	}
	if _, err := os.Lstat(path + suspect); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := c.exec(ctx, "REINDEX"); refused(err) {
		return fmt.Errorf("%w: rows that must differ are equal: %w", ErrDamaged, err)
	} else if err != nil {
		return err
	}
	return os.Remove(path + suspect)
}

// Close ends all work with the database. Calls that are under way are finished
// first; later ones get an error of kind [jobs.ErrUnavailable]. The last
// connection to go moves the write-ahead log into the database and removes it.
func (d *DB) Close() error {
	d.writer.close()
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for text, s := range d.prepared {
		errs = append(errs, s.Close())
		delete(d.prepared, text)
	}
	errs = append(errs, d.readers.Close(), d.writer.disconnect(), d.writer.db.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing database: %w", err)
	}
	return nil
}

// dsn names the database in the driver's own syntax, with what every
// connection is set to. The driver ignores the keys of other SQLite drivers
// without a word; a test reads the settings back.
func dsn(path string, busy time.Duration, reader bool) string {
	q := url.Values{
		"mode":       {"rw"}, // never creates the file, which would be open to others
		"_txlock":    {"immediate"},
		"_dqs":       {"0"},
		"_defensive": {"1"},
		"_error_rc":  {"1"},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()),
			"journal_mode(WAL)",
			"synchronous(FULL)",
			"fullfsync(1)", // macOS: fsync alone does not reach the disk
			"checkpoint_fullfsync(1)",
			"foreign_keys(1)",
			"trusted_schema(0)",
			"cell_size_check(1)",
			"temp_store(MEMORY)",
			// After a long reader let the log grow, it is cut back to this.
			"journal_size_limit(16777216)",
		},
	}
	if reader {
		q["_query_only"] = []string{"1"}
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// queries is what the SQL of a table needs: a transaction that reads, or one
// that may write too.
type queries interface {
	// query runs a statement that is kept prepared under its text.
	query(text string, args ...any) (*sql.Rows, error)
}

// A snapshot is a transaction that reads.
type snapshot struct {
	ctx context.Context
	db  *DB
	tx  *sql.Tx
}

func (s *snapshot) query(text string, args ...any) (*sql.Rows, error) {
	stmt, err := s.db.prepare(s.ctx, text)
	if err != nil {
		return nil, err
	}
	return s.tx.StmtContext(s.ctx, stmt).QueryContext(s.ctx, args...)
}

// prepare returns the statement that is kept for a text.
func (d *DB) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.prepared[text]; ok {
		return s, nil
	}
	s, err := d.readers.PrepareContext(ctx, text)
	if err == nil {
		d.prepared[text] = s
	}
	return s, err
}

// read runs f in one transaction that reads.
func (d *DB) read(ctx context.Context, f func(queries) error) error {
	if d.writer.isClosed() {
		return errClosed // at once, though Close may wait for others
	}
	d.life.RLock()
	defer d.life.RUnlock()
	if d.writer.isClosed() {
		return errClosed
	}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	tx, err := d.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return f(&snapshot{ctx: ctx, db: d, tx: tx})
}

// first scans the first row of a query; ok is false if there is none.
func first(q queries, dest []any, text string, args ...any) (ok bool, err error) {
	rows, err := q.query(text, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return false, rows.Err()
	}
	return true, rows.Scan(dest...)
}
