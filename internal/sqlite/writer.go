package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
)

// maxBatch bounds how many writes share a transaction, and by it how long the
// first of them waits for the others.
const maxBatch = 64

// A writer runs writes on one connection. Those that queue up while a
// transaction commits share the next one, and by it one wait for the disk;
// each runs in a savepoint of its own. A lone write waits for nobody.
//
// There is no goroutine: of the callers that wait, the one that takes the turn
// runs the batch for all.
type writer struct {
	db   *sql.DB
	turn chan struct{} // holds one element while somebody runs a batch

	mu     sync.Mutex // guards the fields below; held for moments only
	queue  []*write
	last   uint64 // number of the write that was queued last
	closed bool

	// conn is of the holder of turn; nil = to be opened. It is given up after
	// every failure of the machine, so that the next batch starts afresh.
	conn *connection
}

// A write is a call's part of a transaction.
type write struct {
	run    func(*transaction) error
	number uint64
	done   chan struct{} // closed when the fields below are set
	err    error
	thrown any // what run panicked with
}

func newWriter(dsn string) (*writer, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &writer{db: db, turn: make(chan struct{}, 1)}, nil
}

// do runs a write and returns when it is on disk, or with the error that kept
// it from being stored: that of run as it is, or that of the database. If ctx
// ends while the write is queued it is withdrawn; from then on its outcome is
// waited for. run may be called by any goroutine that waits in do; its panic
// is passed on to the caller of do.
func (w *writer) do(ctx context.Context, run func(*transaction) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &write{run: run, done: make(chan struct{})}
	if !w.enqueue(r) {
		return errClosed
	}
	for {
		select {
		case <-r.done:
			return r.outcome()
		case <-ctx.Done():
			if w.withdraw(r) {
				return ctx.Err()
			}
			<-r.done
			return r.outcome()
		case w.turn <- struct{}{}:
			w.lead(r)
		}
	}
}

// lead uses the turn to run a batch, unless r was part of one that ended just
// before; then it is somebody else's to run the next.
func (w *writer) lead(r *write) {
	defer func() { <-w.turn }()
	select {
	case <-r.done:
	default:
		w.batch()
	}
}

func (r *write) outcome() error {
	if r.thrown != nil {
		panic(r.thrown)
	}
	return r.err
}

func (w *writer) enqueue(r *write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.last++
	r.number = w.last
	w.queue = append(w.queue, r)
	return true
}

// withdraw takes a write out of the queue; it returns false if it has left it.
func (w *writer) withdraw(r *write) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queue {
		if w.queue[i] == r {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			return true
		}
	}
	return false
}

// next takes the oldest write out of the queue, unless it is younger than upTo.
func (w *writer) next(upTo uint64) *write {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 || w.queue[0].number > upTo {
		return nil
	}
	r := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return r
}

func (w *writer) newest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// batch runs queued writes in one transaction. The caller holds the turn.
func (w *writer) batch() {
	ctx := context.Background() // a batch belongs to many callers
	waiting := w.newest()
	c, err := w.connect(ctx)
	if err == nil {
		err = c.exec(ctx, "BEGIN IMMEDIATE")
	}
	if err != nil {
		// Those who came while it was tried have a try of their own.
		w.drop()
		for r := w.next(waiting); r != nil; r = w.next(waiting) {
			r.err = err
			close(r.done)
		}
		return
	}
	var ran []*write
	err = errUnwound
	defer func() {
		if err != nil {
			_ = c.exec(ctx, "ROLLBACK") // SQLite may have done it already
			w.drop()
		}
		for _, r := range ran {
			if r.err == nil && err != nil {
				r.err = err
			}
			close(r.done)
		}
	}()
	for len(ran) < maxBatch {
		r := w.next(^uint64(0))
		if r == nil {
			break
		}
		ran = append(ran, r)
		if lost := c.savepoint(ctx, r); lost != nil {
			err = lost
			return
		}
	}
	err = c.exec(ctx, "COMMIT")
}

// errUnwound is what a batch ends with if its goroutine was ended by
// [runtime.Goexit] in one of the writes.
var errUnwound = errors.New("the goroutine that wrote it ended in the middle")

// savepoint runs one write. It returns an error if the whole transaction is
// lost; otherwise the write alone succeeded or was undone.
func (c *connection) savepoint(ctx context.Context, r *write) error {
	if err := c.exec(ctx, "SAVEPOINT w"); err != nil {
		return err
	}
	r.guard(&transaction{ctx: ctx, conn: c})
	if r.err == nil && r.thrown == nil {
		return c.exec(ctx, "RELEASE w")
	}
	err := c.exec(ctx, "ROLLBACK TO w")
	if err == nil {
		err = c.exec(ctx, "RELEASE w")
	}
	if err != nil && machine(r.err) {
		return r.err // it made SQLite roll everything back, savepoints included
	}
	return err
}

// guard calls run and keeps its panic for the caller that it belongs to.
func (r *write) guard(tx *transaction) {
	defer func() { r.thrown = recover() }()
	r.err = r.run(tx)
}

// connect returns the connection that writes. The caller holds the turn, or is
// the only one that knows the writer.
func (w *writer) connect(ctx context.Context) (*connection, error) {
	if w.conn != nil {
		return w.conn, nil
	}
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w.conn = &connection{conn: conn, prepared: map[string]*sql.Stmt{}}
	return w.conn, nil
}

// drop closes the connection for good. The caller holds the turn. What goes
// wrong on the way is not told: the failure that led here is.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	for _, s := range w.conn.prepared {
		_ = s.Close()
	}
	// Makes database/sql close it rather than keep it.
	_ = w.conn.conn.Raw(func(any) error { return driver.ErrBadConn })
	w.conn = nil
}

// disconnect gives up the connection and its statements.
func (w *writer) disconnect() error {
	if w.conn == nil {
		return nil
	}
	var errs []error
	for _, s := range w.conn.prepared {
		errs = append(errs, s.Close())
	}
	errs = append(errs, w.conn.conn.Close())
	w.conn = nil
	return errors.Join(errs...)
}

// close refuses further writes and returns when the last one is done. The turn
// is never given back.
func (w *writer) close() {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return
	}
	w.turn <- struct{}{}
	for r := w.next(^uint64(0)); r != nil; r = w.next(^uint64(0)) {
		r.err = errClosed
		close(r.done)
	}
}

// A connection is the one that writes, with the statements that are kept
// prepared on it, by their text.
type connection struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

func (c *connection) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s, ok := c.prepared[text]; ok {
		return s, nil
	}
	s, err := c.conn.PrepareContext(ctx, text)
	if err == nil {
		c.prepared[text] = s
	}
	return s, err
}

func (c *connection) exec(ctx context.Context, text string, args ...any) error {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(ctx, args...)
	return err
}

// A transaction is a write's view of the one that it is part of. Errors of the
// database must be passed on, for the rest of it may be lost as well.
type transaction struct {
	ctx  context.Context
	conn *connection
}

// query implements queries.
func (t *transaction) query(text string, args ...any) (*sql.Rows, error) {
	s, err := t.conn.prepare(t.ctx, text)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(t.ctx, args...)
}

// exec runs a statement that gives no rows; it is kept prepared as well.
func (t *transaction) exec(text string, args ...any) (sql.Result, error) {
	s, err := t.conn.prepare(t.ctx, text)
	if err != nil {
		return nil, err
	}
	return s.ExecContext(t.ctx, args...)
}

// write runs f as part of a transaction. An error that f returned comes back
// as it is if caller says that it is the caller's own.
func (d *DB) write(ctx context.Context, doing string, f func(*transaction) (own, err error)) error {
	var own error
	err := d.writer.do(ctx, func(tx *transaction) error {
		var err error
		if own, err = f(tx); own != nil {
			return own
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case own != nil:
		return own
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%s: waiting for the database: %w", doing, err)
	case errors.Is(err, errClosed):
		return errClosed
	}
	return d.explain(doing, err)
}
