package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"jobd/internal/jobs"
)

// applicationID marks the file as ours ("jobd"), in the header field that
// SQLite keeps for that (https://www.sqlite.org/fileformat2.html, "Application
// ID").
const applicationID = 0x6a6f6264

// suspect is the ending of the file that is left beside a database in which
// damage was seen, so that the next [Open] looks at all of it.
const suspect = "-suspect"

// The files that lie beside the database: those of SQLite, and ours.
var sidecars = []string{"-wal", "-shm", suspect}

// A header is what the first page of a database says of it.
type header struct {
	application uint32
	version     int  // of the schema
	empty       bool // there is no table yet
}

// create makes an empty database file, for SQLite would let others read it. A
// file that is there is left as it is.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// protect makes the database and its sidecars their owner's alone, whatever the
// umask was and however they came there. SQLite gives new sidecars the mode of
// the database.
func protect(path string) error {
	for _, name := range append([]string{""}, sidecars...) {
		info, err := os.Lstat(path + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file; move it away", path+name)
		}
		if info.Mode().Perm() != 0o600 {
			if err := os.Chmod(path+name, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// inspect reads the header of the database at path without SQLite, which would
// recover, create or remove files beside it. It returns nil for a file that is
// empty or not there. An error that wraps [ErrDamaged] says that the file is
// no database.
//
// POSIX drops a process's locks on a file when it closes any descriptor of it,
// so this must not be called while the process has the database open.
func inspect(path string) (*header, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link; move it away, or name the file that it points to", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file; move it away", path)
	}
	if info.Size() == 0 {
		return nil, nil
	}
	page := make([]byte, 108)
	if _, err := io.ReadFull(f, page); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	} else if err != nil || !bytes.HasPrefix(page, []byte("SQLite format 3\x00")) {
		return nil, fmt.Errorf("%s does not start as an SQLite database does: %w", path, ErrDamaged)
	}
	if newer, err := firstPage(path + "-wal"); err != nil {
		return nil, err
	} else if newer != nil {
		page = newer
	}
	return &header{
		application: binary.BigEndian.Uint32(page[68:]),
		version:     int(binary.BigEndian.Uint32(page[60:])),
		empty:       page[100] == 0x0d && binary.BigEndian.Uint16(page[103:]) == 0, // a leaf without cells
	}, nil
}

// firstPage returns the newest committed first page in a write-ahead log, nil
// if there is none (https://www.sqlite.org/fileformat2.html, "The Write-Ahead
// Log"). A log that another process writes to is read up to some commit.
func firstPage(wal string) ([]byte, error) {
	f, err := os.OpenFile(wal, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var order binary.ByteOrder
	head := make([]byte, 32)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, ignoreEOF(err)
	}
	switch binary.BigEndian.Uint32(head) {
	case 0x377f0682:
		order = binary.LittleEndian
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return nil, nil // SQLite ignores such a log too
	}
	size := binary.BigEndian.Uint32(head[8:])
	if size < 512 || size > 65536 || size&(size-1) != 0 {
		return nil, nil
	}
	sum := checksum{order: order}
	sum.add(head[:24])
	if !sum.equals(head[24:]) {
		return nil, nil
	}
	var pending, committed []byte
	frame := make([]byte, 24+size)
	for {
		if _, err := io.ReadFull(f, frame); err != nil {
			return committed, ignoreEOF(err)
		}
		sum.add(frame[:8])
		sum.add(frame[24:])
		if !bytes.Equal(frame[8:16], head[16:24]) || !sum.equals(frame[16:]) {
			return committed, nil // left over from before the log was last reset
		}
		if binary.BigEndian.Uint32(frame) == 1 {
			pending = bytes.Clone(frame[24:])
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 && pending != nil {
			committed = pending
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// A checksum is the running one of a write-ahead log (ibid., "Checksum
// Algorithm").
type checksum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (c *checksum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		c.s0 += c.order.Uint32(b) + c.s1
		c.s1 += c.order.Uint32(b[4:]) + c.s0
	}
}

func (c *checksum) equals(b []byte) bool {
	return binary.BigEndian.Uint32(b) == c.s0 && binary.BigEndian.Uint32(b[4:]) == c.s1
}

// unclean reports whether the database was not closed in order, or damage was
// seen in it. SQLite removes the log when the last connection closes.
func unclean(path string) bool {
	wal, err := os.Lstat(path + "-wal")
	if err == nil && wal.Size() > 0 {
		return true
	}
	_, err = os.Lstat(path + suspect)
	return err == nil
}

// admit decides by its header whether the file at path may be opened.
func admit(path string, h *header, known int) error {
	switch {
	case h == nil:
		return nil
	case h.application == applicationID && h.version > known:
		return &NewerError{Path: path, Found: h.version, Known: known}
	case h.application == applicationID:
		return nil
	case h.application == 0 && h.version == 0 && h.empty:
		return nil // a jobd was killed between creating it and filling it
	}
	return &jobs.Error{Kind: jobs.ErrUnavailable, Err: ErrForeign,
		Message: fmt.Sprintf("%s is a database of another program (application id %#x, not %#x); move it away, then start jobd again", path, h.application, uint32(applicationID))}
}

// SetAside moves a damaged database and its sidecars out of the way, to the
// first free name of the form path.damaged-N, and returns that name. No
// process may have the database open. It links before it removes, so that a
// crash in between loses nothing.
func SetAside(path string) (string, error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.damaged-%d", path, n)
		err := os.Link(path, to)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("setting the damaged database %s aside: %w", path, err)
		}
		for _, name := range sidecars {
			if err := os.Link(path+name, to+name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("setting the damaged database %s aside: %w", path, err)
			}
		}
		for _, name := range append([]string{""}, sidecars...) {
			if err := os.Remove(path + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("setting the damaged database %s aside: %w", path, err)
			}
		}
		return to, syncDir(filepath.Dir(path))
	}
}

// syncDir makes changes to a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
