package jobfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Trust is the list of the project files that the person trusts, by path and
// SHA-256 of their bytes. It is a file of its own in the state directory, not a
// table of the database: it is kept where the database is set aside, and
// trusting needs no daemon.
type Trust struct {
	// Path is the file. Its directory is closed to other users.
	Path string
}

// A Trusted is one file that is trusted.
type Trusted struct {
	// Path is the job file's real path.
	Path string `json:"path"`
	// Sum is the SHA-256 of its bytes in hexadecimal.
	Sum string `json:"sha256"`
	// At is when it was trusted.
	At time.Time `json:"at"`
}

type trustFile struct {
	Version int       `json:"version"`
	Files   []Trusted `json:"files"`
}

const trustVersion = 1

// List returns what is trusted, by path. A list that is not there is empty; one
// that others could have written, or that cannot be read, is an error.
func (t Trust) List() ([]Trusted, error) {
	f, err := os.OpenFile(t.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of trusted job files: %w", err)
	}
	defer f.Close()
	data, _, err := readOwn(f, maxTrust)
	if err != nil {
		return nil, fmt.Errorf("the list of trusted job files %s cannot be used: %w", t.Path, err)
	}
	var list trustFile
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("the list of trusted job files %s is damaged (%w); remove it and trust them again", t.Path, err)
	}
	if list.Version > trustVersion {
		return nil, fmt.Errorf("the list of trusted job files %s is of a newer jobd (version %d); use that one", t.Path, list.Version)
	}
	return list.Files, nil
}

const maxTrust = 4 << 20

// Sum returns the hash that is trusted for a path, "" if none is.
func (t Trust) Sum(path string) (string, error) {
	list, err := t.List()
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if e.Path == path {
			return e.Sum, nil
		}
	}
	return "", nil
}

// Add trusts a file, in place of what was trusted under its path.
func (t Trust) Add(entry Trusted) error {
	return t.change(func(list []Trusted) []Trusted {
		list = slices.DeleteFunc(list, func(e Trusted) bool { return e.Path == entry.Path })
		return append(list, entry)
	})
}

// Remove takes back the trust in a path and reports whether there was any.
func (t Trust) Remove(path string) (bool, error) {
	there := false
	err := t.change(func(list []Trusted) []Trusted {
		return slices.DeleteFunc(list, func(e Trusted) bool {
			there = there || e.Path == path
			return e.Path == path
		})
	})
	return there, err
}

// change rewrites the list under a lock, so that two at once lose nothing.
func (t Trust) change(edit func([]Trusted) []Trusted) error {
	lock, err := os.OpenFile(t.Path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("locking the list of trusted job files: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the list of trusted job files: %w", err)
	}
	list, err := t.List()
	if err != nil {
		return err
	}
	list = edit(list)
	slices.SortFunc(list, func(a, b Trusted) int { return strings.Compare(a.Path, b.Path) })
	data, err := json.MarshalIndent(trustFile{trustVersion, list}, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the list of trusted job files: %w", err)
	}
	if err := replace(t.Path, append(data, '\n')); err != nil {
		return fmt.Errorf("writing the list of trusted job files: %w", err)
	}
	return nil
}

// replace writes a file of mode 0600 so that a reader sees the old content or
// the new, even after a loss of power.
func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o600), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
