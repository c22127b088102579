// Package caller takes from a process what the jobs that it submits are
// started with beside their command: project, session, environment, umask and
// limits. The front end and the command line share it.
package caller

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
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

// A Caller is what a process was started with, and so what its jobs are started
// with. It is taken once, at the start: see [Capture].
type Caller struct {
	// Session owns the jobs: CLAUDE_CODE_SESSION_ID, or a random name for a
	// client that gives none.
	Session string
	// Client names the client's process for as long as it lives, "" = it gives
	// no name. Its hooks get the same.
	Client string
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
	mask := Umask()
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	c := Of(os.Environ(), dir)
	c.Umask = mask
	c.NoFile = sync.OnceValues(FileLimits)
	return c
}

// Umask reads the file mode creation mask. It sets it for a moment, so nothing
// else may create files meanwhile.
func Umask() uint32 {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return uint32(mask)
}

// Of makes a caller of an environment and a working directory.
// The rest is for Capture to fill in.
func Of(environ []string, dir string) Caller {
	c := Caller{Environ: Environ(environ)}
	var named, entry string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "CLAUDE_CODE_SESSION_ID":
			c.Session = value
		case "CLAUDE_PROJECT_DIR":
			named = value
		case "CLAUDE_CODE_ENTRYPOINT":
			entry = value
		case "CLAUDE_CODE_MESSAGING_TOKEN":
			c.Client = ClientID(value)
		}
	}
	if c.Session == "" {
		c.Session = "connection-" + strings.ToLower(rand.Text())
	}
	c.Headless = entry != "" && entry != "cli"
	c.Project = Project(named, dir)
	return c
}

// Environ returns the environment for jobs, less what belongs to one Claude Code
// process: each NAME=VALUE ended by a NUL byte.
func Environ(environ []string) []byte {
	var b []byte
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains(private, name) {
			b = append(append(b, kv...), 0)
		}
	}
	return b
}

// ClientID names a client's process by the token that only it and its children
// know, without giving that away. An empty token gives an empty name.
func ClientID(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("jobd client\x00" + token))
	return hex.EncodeToString(sum[:16])
}

// Project returns the real path of the directory that the client named, else
// of the nearest one at or above dir that holds .jobd or .git, else of dir.
func Project(named, dir string) string {
	if filepath.IsAbs(named) {
		return Real(named)
	}
	dir = Real(dir)
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

// Real resolves links; a path that is not there stays as it is.
func Real(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// FileLimits returns the soft and the hard limit of open files that this
// process was started with, 0 where they cannot be known. It asks a child: the
// Go runtime raises the soft one of this process before main, restores it in
// children only, and does not tell what it was (syscall/rlimit.go).
func FileLimits() (soft, hard uint64) {
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
