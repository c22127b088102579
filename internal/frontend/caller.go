package frontend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Caller is what the front end was started with, and so what its jobs are
// started with. It is taken once, at the start: see [Capture].
type Caller struct {
	// Session owns the jobs: CLAUDE_CODE_SESSION_ID, or a random name for a
	// client that gives none.
	Session string
	// Project is an absolute real path.
	Project string
	// Headless: Claude Code runs without a screen (its entry point is not
	// "cli"), so nobody sees a question.
	Headless bool
	// Environ is the environment for jobs, each NAME=VALUE ended by a NUL byte.
	Environ []byte
	// Umask is the file mode creation mask.
	Umask uint32
	// NoFile returns the soft and the hard limit of open files, 0 where they
	// cannot be known; nil = both are 0.
	NoFile func() (soft, hard uint64)
}

// private are the variables that belong to one Claude Code process; a job must
// not take itself for a part of it.
var private = []string{
	"AI_AGENT",
	"CLAUDECODE",
	"CLAUDE_CODE_CHILD_NOTES_DIR",
	"CLAUDE_CODE_ENTRYPOINT",
	"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
	"CLAUDE_CODE_MESSAGING_SOCKET",
	"CLAUDE_CODE_MESSAGING_TOKEN",
	"CLAUDE_CODE_SESSION_ID",
}

// Capture takes the caller from this process. It must run before other
// goroutines create files, because reading the umask sets it for a moment.
func Capture() Caller {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	c := callerOf(os.Environ(), dir)
	c.Umask = uint32(mask)
	c.NoFile = sync.OnceValues(fileLimits)
	return c
}

// callerOf makes a caller of an environment and a working directory.
func callerOf(environ []string, dir string) Caller {
	var c Caller
	var named, entry string
	for _, entryLine := range environ {
		name, value, _ := strings.Cut(entryLine, "=")
		switch name {
		case "CLAUDE_CODE_SESSION_ID":
			c.Session = value
		case "CLAUDE_PROJECT_DIR":
			named = value
		case "CLAUDE_CODE_ENTRYPOINT":
			entry = value
		}
		if !slices.Contains(private, name) {
			c.Environ = append(append(c.Environ, entryLine...), 0)
		}
	}
	if c.Session == "" {
		c.Session = "connection-" + strings.ToLower(rand.Text())
	}
	c.Headless = entry != "" && entry != "cli"
	c.Project = project(named, dir)
	return c
}

// project returns the real path of the directory that the client named, else
// of the nearest one at or above dir that holds .jobd or .git, else of dir.
func project(named, dir string) string {
	if filepath.IsAbs(named) {
		return real(named)
	}
	dir = real(dir)
	for at := dir; ; at = filepath.Dir(at) {
		for _, mark := range []string{".jobd", ".git"} {
			if _, err := os.Stat(filepath.Join(at, mark)); err == nil {
				return at
			}
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// real resolves links; a path that is not there stays as it is.
func real(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// fileLimits asks a child for the limits of open files: the Go runtime raises
// the soft one of this process before main and restores it in children only,
// and does not tell what it was (syscall/rlimit.go).
func fileLimits() (soft, hard uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(out))
	if len(fields) != 2 {
		return 0, 0
	}
	return limit(fields[0]), limit(fields[1])
}

// limit reads a limit as the shell prints it.
func limit(s string) uint64 {
	if s == "unlimited" {
		return ^uint64(0)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// requestKey identifies one call of a client across its retries. call is the
// client's own id of it, unique within the session.
func requestKey(session, tool, call string, arguments []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(session), []byte(tool), []byte(call), arguments} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
