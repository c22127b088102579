package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ensure makes the directories of state and socket, or checks those that are
// there: see [EnsureDir]. It refuses a state directory on a network file
// system, where SQLite's shared memory does not work.
func (p Places) Ensure() error {
	if p.Home == "" && !exists(filepath.Dir(p.StateDir)) {
		// A home that is missing is a mistake in the environment; the rest of the
		// path may be new.
		if home := homeOf(p.StateDir); home != "" && !exists(home) {
			return fmt.Errorf("the home directory %s does not exist; set HOME to your own, or %s to a directory for jobd", home, EnvHome)
		}
	}
	if err := EnsureDir(p.StateDir); err != nil {
		return err
	}
	if kind, err := networkFS(p.StateDir); err != nil {
		return fmt.Errorf("looking at the file system of %s: %w", p.StateDir, err)
	} else if kind != "" {
		return fmt.Errorf("the state directory %s is on a network file system (%s), where SQLite's write-ahead log has no shared memory; set XDG_STATE_HOME or %s to a directory on a local disk",
			p.StateDir, kind, EnvHome)
	}
	if dir := filepath.Dir(p.Socket); dir != p.StateDir {
		return EnsureDir(dir)
	}
	return nil
}

// homeOf returns the directory above .local/state/jobd, "" where the state
// directory was not derived from a home.
func homeOf(state string) string {
	home, ok := strings.CutSuffix(state, "/.local/state/jobd")
	if !ok {
		return ""
	}
	return home
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// EnsureDir makes a directory of mode 0700, whatever the umask, with those
// above it that are missing. One that is there must be a directory itself, no
// link to one, belong to this user and be closed to all others; the error says
// how to mend it. It never makes a directory in /.
func EnsureDir(dir string) error {
	if err := mkdirs(dir); err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return openFault(dir, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	return checkDir(dir, int(st.Uid), os.Geteuid(), uint32(st.Mode))
}

func checkDir(dir string, owner, self int, mode uint32) error {
	if owner != self {
		return fmt.Errorf("the directory %s belongs to user %d, not to you (%d); remove it, or set %s to a directory of your own", dir, owner, self, EnvHome)
	}
	if mode&0o077 != 0 {
		return fmt.Errorf("the directory %s is open to other users (mode %#o); close it with: chmod 700 %s", dir, mode&0o777, quote(dir))
	}
	if mode&0o700 != 0o700 {
		return fmt.Errorf("the directory %s has the mode %#o and cannot be used even by you; mend it with: chmod 700 %s", dir, mode&0o777, quote(dir))
	}
	return nil
}

// openFault says why a path is not a directory that can be used.
func openFault(dir string, err error) error {
	fi, lerr := os.Lstat(dir)
	switch {
	case lerr == nil && fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("the directory %s is a symbolic link, which jobd does not follow; remove the link, or set %s to the directory itself", dir, EnvHome)
	case lerr == nil && !fi.IsDir():
		return fmt.Errorf("%s is no directory; remove it, or set %s to a directory of your own", dir, EnvHome)
	case lerr == nil:
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			if err := checkDir(dir, int(st.Uid), os.Geteuid(), uint32(st.Mode)); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("opening the directory %s: %w", dir, err)
}

// mkdirs makes dir and those above it that are missing, each of mode 0700.
func mkdirs(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at the directory %s: %w", dir, err)
	}
	parent := filepath.Dir(dir)
	if parent == "/" {
		return fmt.Errorf("the directory %s does not exist, and jobd makes none in /; make it, or set %s to a directory of your own", dir, EnvHome)
	}
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := mkdirs(parent); err != nil {
			return err
		}
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil // another process of ours was quicker
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		return fmt.Errorf("the directory %s cannot be made, since %s is not writable: %w", dir, parent, err)
	case err != nil:
		return fmt.Errorf("making the directory: %w", err)
	}
	// The umask may have taken bits of the owner.
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory: %w", err)
	}
	return nil
}

// quote makes a path one word of a shell.
func quote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+@%", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
