package sqlite

import (
	"errors"
	"fmt"
	"os"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"jobd/internal/jobs"
)

var (
	// ErrDamaged: the file is no sound database. The caller can move it out of
	// the way with [SetAside] and open a new one.
	ErrDamaged = errors.New("damaged")
	// ErrForeign: the file is a database of another program.
	ErrForeign = errors.New("not a database of jobd")

	errClosed = &jobs.Error{Kind: jobs.ErrUnavailable, Message: "the database is closed, because jobd is stopping; try again"}
)

// A NewerError says that the database was written by a newer jobd, whose
// schema this one does not know. The file was not touched.
type NewerError struct {
	Path string
	// Found is the schema in the file, Known the newest that this build knows.
	Found, Known int
}

// Error implements error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the database %s has schema %d, and this jobd knows schemas up to %d: a newer jobd wrote it; "+
		"start that jobd again, or install a version at least as new (the file was left as it is)", e.Path, e.Found, e.Known)
}

// Is makes a NewerError an error of kind [jobs.ErrUnavailable].
func (e *NewerError) Is(target error) bool { return target == jobs.ErrUnavailable }

// code returns the extended result code of SQLite in err, 0 if there is none
// (https://www.sqlite.org/rescode.html).
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// machine reports whether err comes from the file, the disk or another
// program, rather than from what was asked. SQLite may have rolled the whole
// transaction back by itself then
// (https://www.sqlite.org/lang_transaction.html, "Response To Errors").
func machine(err error) bool {
	_, ok := cause(code(err), "")
	return ok
}

// cause says in words what kept SQLite from working with the file at path, and
// what to do. ok is false if the code has another meaning.
func cause(code int, path string) (text string, ok bool) {
	switch code & 0xff {
	case lib.SQLITE_FULL:
		return fmt.Sprintf("there is no space left for the database %s: free some space on its disk, then try again", path), true
	case lib.SQLITE_IOERR:
		return fmt.Sprintf("the disk failed to read or write the database %s: look at its space, quota and health, then try again", path), true
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return fmt.Sprintf("the database %s is locked by another program: end what has it open, then try again", path), true
	case lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return fmt.Sprintf("the database %s cannot be written: make the file, its directory and its file system writable for you, then try again", path), true
	case lib.SQLITE_CANTOPEN:
		return fmt.Sprintf("the database %s cannot be opened: see that it is there, that you may read and write it and its directory, and that there are file descriptors left", path), true
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return fmt.Sprintf("the database %s is damaged: restart jobd, which sets it aside and rebuilds what it can", path), true
	case lib.SQLITE_NOMEM:
		return fmt.Sprintf("there is no memory left to work with the database %s", path), true
	}
	return "", false
}

// explain makes an error of the database one for its reader. doing names the
// step, as a gerund with its object ("storing job 12ab"). A [*jobs.Error] says
// all that already.
func (d *DB) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*jobs.Error](err); ok || isDamaged(err) {
		return err
	}
	c := code(err)
	if errors.Is(err, ErrDamaged) {
		c = lib.SQLITE_CORRUPT
	}
	if text, ok := cause(c, d.path); ok {
		e := &jobs.Error{Kind: jobs.ErrUnavailable, Err: err, Message: fmt.Sprintf("%s: %s (SQLite: %v)", doing, text, err)}
		if p := c & 0xff; p == lib.SQLITE_CORRUPT || p == lib.SQLITE_NOTADB {
			e.Err = errors.Join(ErrDamaged, err)
			d.suspect.Do(func() {
				// If it cannot be left, the next Open has one reason less to look.
				_ = os.WriteFile(d.path+suspect, []byte(err.Error()+"\n"), 0o600)
				if d.opened && d.onSuspect != nil {
					d.onSuspect(err)
				}
			})
		}
		return e
	}
	if d.writer.isClosed() {
		return errClosed
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isDamaged reports whether err is about the row of one job.
func isDamaged(err error) bool {
	_, ok := errors.AsType[*jobs.DamagedError](err)
	return ok
}

// taken reports whether err says that a unique value is in use.
func taken(err error) bool {
	c := code(err)
	return c == lib.SQLITE_CONSTRAINT_UNIQUE || c == lib.SQLITE_CONSTRAINT_PRIMARYKEY || c == lib.SQLITE_CONSTRAINT_ROWID
}

// refused reports whether err says that a row would not be as the schema wants
// it.
func refused(err error) bool { return code(err)&0xff == lib.SQLITE_CONSTRAINT }
