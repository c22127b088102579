package shim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// The files of a bundle.
const (
	fileSpec    = "spec.json"
	fileEnv     = "env"
	fileLock    = "shim.lock"
	fileLaunch  = "launch.json"
	fileStarted = "started.json"
	fileStop    = "stop"
	fileExit    = "exit.json"
	fileLog     = "shim.log"
	dirOutput   = "output"
)

// A bundle is the absolute path of a job's directory.
type bundle string

func (b bundle) file(name string) string { return filepath.Join(string(b), name) }
func (b bundle) id() string              { return filepath.Base(string(b)) }

// exists reports whether the bundle has a file of this name. A file that
// cannot be looked at counts as there: nothing is run or removed in doubt.
func (b bundle) exists(name string) bool {
	_, err := os.Lstat(b.file(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// checkID refuses what cannot be the name of a bundle.
func checkID(id string) error {
	ok := id != "" && len(id) <= 64
	for _, c := range []byte(id) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_')
	}
	if !ok {
		return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("%q is not the id of a job: it must be 1 to 64 letters, digits, - or _", id)}
	}
	return nil
}

// create makes a file of mode 0600, whatever the umask, with this content. flag
// says what happens if it is there. A durable one is synced after done was
// called, which may be nil.
func create(path string, content []byte, flag int, durable bool, done func() error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|flag, 0o600)
	if err != nil {
		return err
	}
	err = closeToOthers(f)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil && done != nil {
		err = done()
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// closeToOthers gives a file the mode 0600. A file that the umask left it with
// is not changed: that costs the file system more than a look.
func closeToOthers(f *os.File) error {
	fi, err := f.Stat()
	if err == nil && fi.Mode().Perm() == 0o600 {
		return nil
	}
	return f.Chmod(0o600)
}

// replace puts content under path, so that readers see all or nothing of it.
// When it returns, a durable one is on disk with its name. It is synced after it
// was renamed, which costs a journal one commit instead of two: a power failure
// in between can leave an empty file, which then tells as little as none.
func replace(path string, content []byte, durable bool) error {
	tmp := path + ".tmp"
	renamed := false
	err := create(tmp, content, os.O_TRUNC, durable, func() error {
		err := os.Rename(tmp, path)
		renamed = err == nil
		return err
	})
	if err != nil && !renamed {
		_ = os.Remove(tmp)
	}
	if err == nil && durable {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// load reads a regular file, no link to one, of at most limit bytes.
func load(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case fi.Size() > limit:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	// Exactly so much memory: a shim keeps what it has once taken.
	b := make([]byte, fi.Size())
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// held reports whether the bundle's shim is alive. Probing takes the lock
// shared for a moment, which take waits out.
func (b bundle) held() (bool, error) {
	f, err := os.OpenFile(b.file(fileLock), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probing the lock of the shim: %w", err)
	}
	defer f.Close()
	taken, err := flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err != nil {
		return false, fmt.Errorf("probing %s: %w", f.Name(), err)
	}
	return !taken, nil
}

// take opens and locks shim.lock for a shim that is about to be started. The
// lock is held by the descriptor and all its copies.
func (b bundle) take() (*os.File, error) {
	f, err := os.OpenFile(b.file(fileLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	// A probe holds the lock for microseconds, a process that is being forked
	// somewhere in the daemon for a little longer.
	deadline := time.Now().Add(time.Second)
	for wait := 100 * time.Microsecond; ; wait *= 2 {
		taken, err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		case taken:
			// Which shim held it before does not matter any more.
			if err := errors.Join(f.Truncate(0), f.Chmod(0o600)); err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		case time.Now().After(deadline):
			f.Close()
			return nil, &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("job %s has a shim already", b.id())}
		}
		time.Sleep(wait)
	}
}

// flock is flock(2); false means that somebody else holds the lock.
func flock(f *os.File, how int) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}
