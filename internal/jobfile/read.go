package jobfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ProjectFile is the path of a project's job file within the project.
const ProjectFile = ".jobd/jobs.yaml"

// ProjectPath is the path by which a project's job file is known. project is
// an absolute real path.
func ProjectPath(project string) string { return filepath.Join(project, ProjectFile) }

// ReadProject returns the bytes of a project's job file and their SHA-256 in
// hexadecimal. A link is followed as long as it stays within the project: what
// a link elsewhere points at could be changed by whoever cannot change the
// project. An error wraps [fs.ErrNotExist] if there is no file.
//
// The owner does not matter: the bytes are trusted or not.
func ReadProject(project string) (data []byte, sum string, err error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	// A pipe in the file's place must not make the daemon wait for a writer.
	f, err := root.OpenFile(ProjectFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if strings.Contains(err.Error(), "escapes") { // the error has no name (os/root.go)
			return nil, "", errors.New("it is a link that leads out of the project; put the file itself there")
		}
		return nil, "", plainPathError(err)
	}
	defer f.Close()
	if data, _, err = read(f, MaxFile); err != nil {
		return nil, "", err
	}
	return data, Sum(data), nil
}

// Sum is the SHA-256 of a file's bytes in hexadecimal.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// readUser returns the bytes of a job file of the user. A link is followed:
// the file that it leads to must belong to the user or to root, and nobody else
// may write to it.
func readUser(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plainPathError(err)
	}
	defer f.Close()
	data, _, err := readOwn(f, MaxFile)
	return data, err
}

// readOwn reads a file that only the user, or root, can write to.
func readOwn(f *os.File, most int64) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := own(info); err != nil {
		return nil, nil, err
	}
	return read(f, most)
}

// own refuses a file or directory that another user could have written to.
func own(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner cannot be told")
	}
	return ownedBy(st.Uid, os.Geteuid(), info.Mode())
}

func ownedBy(uid uint32, self int, mode fs.FileMode) error {
	if int(uid) != self && uid != 0 {
		return fmt.Errorf("it belongs to user %d, not to you (%d); make a copy of your own", uid, self)
	}
	if mode.Perm()&0o022 != 0 {
		return fmt.Errorf("other users may write to it (mode %#o); take that from them with chmod go-w", mode.Perm())
	}
	return nil
}

// read reads a regular file of a bounded size.
func read(f *os.File, most int64) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, plainPathError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, nil, plainPathError(err)
	}
	if int64(len(data)) > most {
		return nil, nil, fmt.Errorf("it is larger than %d bytes; move long scripts into files of their own", most)
	}
	return data, info, nil
}

// plainPathError leaves out the path, which the sentence around it names.
func plainPathError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
