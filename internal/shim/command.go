package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// A command is what is to be executed.
type command struct {
	argv    []string
	dir     string
	environ []string
	umask   uint32
	soft    uint64 // limit of open files, 0 = leave
	hard    uint64
}

// start runs the command with stdin and with output as both standard output and
// standard error, as the leader of a process group of its own in this process's
// session, and returns its process id. Nothing else is inherited: every
// descriptor of this process must be close-on-exec. An error is a sentence for
// the person who wrote the command.
func (c command) start(stdin, output *os.File) (pid int, err error) {
	if err := checkDir(c.dir); err != nil {
		return 0, err
	}
	path, err := c.find()
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Dir:   c.dir,
		Env:   c.environ,
		Files: []uintptr{stdin.Fd(), output.Fd(), output.Fd()},
		// Not a session of its own: a session leader without a terminal would get
		// one by opening one.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	defer c.limit()()
	preferForOOM(func() {
		old := syscall.Umask(int(c.umask & 0o777))
		defer syscall.Umask(old)
		pid, err = syscall.ForkExec(path, c.argv, attr)
		if errors.Is(err, unix.ENOEXEC) && c.isText(path) {
			// A script without a #! line: what execvp(3) and every shell do.
			pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", path}, c.argv[1:]...), attr)
		}
	})
	if err != nil {
		return 0, c.fault(path, err)
	}
	return pid, nil
}

// ownFiles is how many open files a shim itself needs at most, also between
// fork and exec. The limits of a command are not set below.
const ownFiles = 64

// limit sets the limits of open files, as far as this process may. It does so
// for itself, since they are inherited; the function it returns takes the soft
// one back.
func (c command) limit() (restore func()) {
	var l syscall.Rlimit
	if c.soft == 0 && c.hard == 0 || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return func() {}
	}
	want := l
	if c.hard != 0 {
		want.Max = max(c.hard, ownFiles)
	}
	if c.soft != 0 {
		want.Cur = max(c.soft, ownFiles)
	}
	want.Cur = min(want.Cur, want.Max)
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want) != nil {
		// The hard limit cannot be raised without privilege.
		want.Max = min(want.Max, l.Max)
		want.Cur = min(want.Cur, want.Max)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want)
	}
	return func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want.Max, Max: want.Max}) }
}

// checkDir says why a command cannot run in a directory.
func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no such directory: %s", dir)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("permission denied: %s", dir)
	case err != nil:
		return fmt.Errorf("cannot use the directory %s: %w", dir, err)
	case !fi.IsDir():
		return fmt.Errorf("not a directory: %s", dir)
	case !executableFile(dir):
		return fmt.Errorf("permission denied: %s cannot be entered", dir)
	}
	return nil
}

// defaultPath is where commands are looked up for a job without PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// find returns the path to execute for argv[0], as a shell would with the job's
// own PATH and directory.
func (c command) find() (string, error) {
	name := c.argv[0]
	if name == "" {
		return "", errors.New("command not found: the name of the command is empty")
	}
	if strings.Contains(name, "/") {
		full := c.abs(name)
		fi, err := os.Stat(full)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
			return "", fmt.Errorf("command not found: %s: no such file", name)
		case err != nil && !errors.Is(err, os.ErrPermission):
			return "", fmt.Errorf("cannot run %s: %w", name, err)
		case err == nil && fi.IsDir():
			return "", fmt.Errorf("cannot run %s: it is a directory", name)
		case err != nil || !executableFile(full):
			return "", fmt.Errorf("permission denied: %s", name)
		}
		return name, nil
	}
	denied := ""
	for _, dir := range filepath.SplitList(c.path()) {
		if dir == "" {
			dir = "." // an empty entry is the working directory
		}
		// Not filepath.Join: a command finds its own path as the shell would
		// give it.
		path := strings.TrimSuffix(dir, "/") + "/" + name
		fi, err := os.Stat(c.abs(path))
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if executableFile(c.abs(path)) {
			return path, nil
		}
		denied = path
	}
	if denied != "" {
		return "", fmt.Errorf("permission denied: %s", denied)
	}
	return "", fmt.Errorf("command not found: %s", name)
}

// path returns the PATH that the command itself sees: the last one counts for
// most programs only where there are two, so the first is taken, as getenv does.
func (c command) path() string {
	for _, kv := range c.environ {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			return p
		}
	}
	return defaultPath
}

// abs returns a path as seen from the job's directory.
func (c command) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.dir, path)
}

// executableFile reports whether this user may execute, or enter, a path.
func executableFile(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil
}

// isText reports whether a file may be a script: binary files have a NUL byte
// early on.
func (c command) isText(path string) bool {
	f, err := os.Open(c.abs(path))
	if err != nil {
		return false
	}
	defer f.Close()
	var head [512]byte
	n, err := io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	return bytes.IndexByte(head[:n], 0) < 0
}

// fault says why exec failed.
func (c command) fault(path string, err error) error {
	name := c.argv[0]
	switch {
	case errors.Is(err, unix.E2BIG):
		size := 0
		for _, s := range c.argv {
			size += len(s) + 1
		}
		env := 0
		for _, s := range c.environ {
			env += len(s) + 1
		}
		return fmt.Errorf("cannot run %s: arguments (%d bytes) and environment (%d bytes) are more than the system takes", name, size, env)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("cannot run %s: it is not an executable file for this machine", path)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("cannot run %s: the interpreter or loader that it names does not exist", path)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("permission denied: %s, its interpreter, or the file system it is on", path)
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("cannot run %s: the limit of processes of this user is reached", name)
	}
	return fmt.Errorf("cannot run %s: %w", name, err)
}

// exitOf translates how a command ended.
func exitOf(status syscall.WaitStatus) exitRecord {
	if status.Signaled() {
		sig := status.Signal()
		return exitRecord{Version: recordVersion, Code: -1, Signal: int(sig), SignalName: signalName(sig)}
	}
	return exitRecord{Version: recordVersion, Code: status.ExitStatus()}
}

// signalName returns a signal's name, which for real-time signals (signal(7))
// is a number.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}

// validate refuses a spec that can never be run.
func validate(spec jobs.Spec) error {
	bad := func(format string, a ...any) error {
		return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf(format, a...)}
	}
	switch {
	case len(spec.Argv) == 0:
		return bad("the command is empty; give at least its name")
	case !filepath.IsAbs(spec.Dir):
		return bad("the working directory %q is not an absolute path", spec.Dir)
	case spec.OutputLimit < 0:
		return bad("the output limit is %d bytes; it must be 0 (the default) or more", spec.OutputLimit)
	case spec.Grace < 0:
		return bad("the grace is %v; it must be 0 (the default) or more", spec.Grace)
	}
	for i, s := range append([]string{spec.Dir}, spec.Argv...) {
		what := "the working directory"
		if i > 0 {
			what = fmt.Sprintf("argument %d of the command", i-1)
		}
		switch {
		case strings.IndexByte(s, 0) >= 0:
			return bad("%s has a NUL byte in it, which no command can be given", what)
		case strings.ToValidUTF8(s, "") != s:
			// JSON could not keep it, and another command would run.
			return bad("%s is not valid UTF-8: %q", what, s)
		}
	}
	return nil
}
