package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What a job is started with, beside its command, is taken from the process
// that submits it.

// shellSession is the session of every job that is started in a shell.
const shellSession = "shell"

// jobEnviron returns the environment for a job, less what must not leave this
// process: each NAME=VALUE ended by a NUL byte.
func jobEnviron(environ []string) []byte {
	var b []byte
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains(notHandedOn, name) {
			b = append(append(b, kv...), 0)
		}
	}
	return b
}

// umask reads the file mode creation mask. It sets it for a moment, so nothing
// else may create files meanwhile.
func umask() uint32 {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return uint32(mask)
}

// fileLimits returns the soft and hard limit of open files that this process
// was started with, 0 where they cannot be known. The Go runtime raises the
// soft limit before main and restores it in children only, so a child is asked.
func fileLimits(ctx context.Context) (soft, hard uint64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	if err != nil {
		return 0, 0
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return 0, 0
	}
	return shellLimit(lines[0]), shellLimit(lines[1])
}

// shellLimit reads a limit as a shell prints it (POSIX, ulimit).
func shellLimit(s string) uint64 {
	if s == "unlimited" {
		return ^uint64(0)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// projectOf returns the project of a working directory: the real path of the
// directory that Claude Code names, else of the nearest one at or above dir
// that holds .jobd or .git, else of dir.
func projectOf(named, dir string) string {
	if filepath.IsAbs(named) {
		return realPath(named)
	}
	dir = realPath(dir)
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

// realPath resolves links; what is not there stays as it is.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
