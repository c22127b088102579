package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/config/limits"
	"jobd/internal/ipc"
)

// checks are the steps that look at the installation and change nothing.
func checks(c *cli) []step {
	return []step{
		{"programs", checkPrograms},
		{"state directory", checkStateDir},
		{"settings", checkSettings},
		{"damage", checkDamage},
		{"socket and locks", checkSocket},
		{"version of the daemon", checkDaemon},
		{"PATH", checkPath},
		{"Claude Code", func(context.Context) (string, error) { return checkRegistration(c.getenv) }},
	}
}

// checkPrograms looks for the siblings of this program, of the same build.
func checkPrograms(context.Context) (string, error) {
	own, err := config.Sibling("jobd")
	if err != nil {
		return "", err
	}
	mine, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this program carries no build information")
	}
	for _, name := range []string{"mcp-stdio", "jobd-shim"} {
		path := filepath.Join(filepath.Dir(own), name)
		if err := unix.Access(path, unix.X_OK); err != nil {
			return "", fault("install jobd again: make install", "the program %s cannot be run: %w", path, err)
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return "", fault("install jobd again: make install", "the program %s is none of jobd's: %w", path, err)
		}
		if a, b := revision(mine), revision(info); a != b {
			return "", fault("install all programs of one version: make install", "%s is of another version (%s) than this program (%s)", path, b, a)
		}
	}
	return fmt.Sprintf("%s, in %s", buildVersion(), filepath.Dir(own)), nil
}

// revision names the source that a program was built of.
func revision(info *debug.BuildInfo) string {
	s := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" || setting.Key == "vcs.modified" {
			s += " " + setting.Value
		}
	}
	return s
}

// The free space below which the doctor warns, and fails.
const (
	littleSpace = 1 << 30
	noSpace     = 16 << 20
)

// checkStateDir looks whether jobs can be stored.
func checkStateDir(context.Context) (string, error) {
	p, err := config.Find()
	if err != nil {
		return "", err
	}
	const remedy = "make it writable for you, or set JOBD_HOME to a directory that is"
	dir := p.StateDir
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		// It is made at the first use, in the nearest directory that is there.
		for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			_, err = os.Stat(dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return "", fault(remedy, "the state directory %s cannot be made in %s: %w", p.StateDir, dir, err)
		}
	} else {
		if err := p.Ensure(); err != nil {
			return "", err // its sentence ends with the remedy
		}
		probe, err := os.CreateTemp(dir, ".doctor-")
		if err != nil {
			return "", fault(remedy, "no file can be made in the state directory: %w", err)
		}
		probe.Close()
		if err := os.Remove(probe.Name()); err != nil {
			return "", fault(remedy, "no file can be removed from the state directory: %w", err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("looking at the free space of %s: %w", dir, err)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	switch {
	case free < noSpace:
		return "", fault("make room on that file system; 'jobd prune' removes old jobs", "only %s are free for %s", size(free), p.StateDir)
	case free < littleSpace:
		return "", warning("make room on that file system; 'jobd prune' removes old jobs", "only %s are free for %s", size(free), p.StateDir)
	}
	return fmt.Sprintf("%s, %s free", p.StateDir, size(free)), nil
}

// checkDamage looks for what was set aside because it could not be read.
func checkDamage(context.Context) (string, error) {
	p, err := config.Find()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(p.DB + ".damaged-*")
	if err != nil {
		return "", fmt.Errorf("looking for what was set aside: %w", err)
	}
	var databases, rows int
	var newest time.Time
	for _, path := range found {
		fi, err := os.Lstat(path)
		switch name := strings.TrimPrefix(path, p.DB+".damaged-"); {
		case err != nil:
			continue // removed since
		case strings.HasPrefix(name, "row-"):
			rows++
		case !strings.Contains(name, "-"): // with its -wal and -shm it is one
			databases++
		default:
			continue
		}
		if fi.ModTime().After(newest) {
			newest = fi.ModTime()
		}
	}
	if databases+rows == 0 {
		return "none was found", nil
	}
	return "", warning(fmt.Sprintf("look at the disk's health; what could not be read is kept in %s.damaged-*, remove it when it is of no use", p.DB),
		"damage was found, last on %s: %s, and %s, were set aside and made anew from what the jobs' bundles tell",
		newest.Format(time.DateTime), count(databases, "database"), count(rows, "job's row"))
}

// checkSettings reads config.yaml, without which no daemon starts.
func checkSettings(context.Context) (string, error) {
	p, err := config.Find()
	if err != nil {
		return "", err
	}
	if _, err := limits.Load(p.ConfigFile); err != nil {
		return "", fault("correct the file; a daemon that runs keeps its settings until jobd restart", "%w", err)
	}
	if _, err := os.Lstat(p.ConfigFile); errors.Is(err, fs.ErrNotExist) {
		return "the defaults; there is no " + p.ConfigFile, nil
	}
	return p.ConfigFile, nil
}

// checkSocket looks whether a daemon answers or could be started.
func checkSocket(ctx context.Context) (string, error) {
	p, err := config.Find()
	if err != nil {
		return "", err
	}
	if limit := config.SocketPathMax(goos); len(p.Socket) > limit {
		return "", fault("set JOBD_HOME to a directory with a shorter path", "the socket's path %s has %d bytes, and a socket can have %d", p.Socket, len(p.Socket), limit)
	}
	dialing, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dialing, "unix", p.Socket)
	if err == nil {
		conn.Close()
		if _, err := askStatus(ctx, p); err != nil {
			return "", fault("end the daemon and let another one start: jobd restart", "the daemon does not answer: %w", err)
		}
		return "a daemon answers on " + p.Socket, nil
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		_, err := askStatus(ctx, p) // says it with the remedy
		return "", err
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("connecting to %s: %w", p.Socket, err)
	}
	for _, lock := range []string{p.PIDFile, p.AliveLock} {
		if held(lock) {
			return "", fault(fmt.Sprintf("end process %d (it may hang: kill -9), then try again", claimant(p)),
				"no daemon answers on %s, and %s is locked", p.Socket, lock)
		}
	}
	return "no daemon runs; one starts when it is needed", nil
}

// held reports whether a process holds a lock file. The lock is taken for a
// moment where nobody does.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	// Shims hold the locks shared for moments.
	for range 20 {
		if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// checkDaemon compares the daemon that runs with this program.
func checkDaemon(ctx context.Context) (string, error) {
	p, err := config.Find()
	if err != nil {
		return "", err
	}
	s, err := askStatus(ctx, p)
	switch {
	case codeIs(err, ipc.CodeUnavailable):
		return "none runs", nil
	case err != nil:
		return "", err
	case s.Version != buildVersion():
		return "", warning("replace it by this version, its jobs go on: jobd restart", "the daemon (process %d) is of version %s, this program of %s", s.PID, s.Version, buildVersion())
	}
	own, err := config.Sibling("jobd")
	if err != nil {
		return "", err
	}
	if s.Executable != own {
		return "", warning("to use this one, its jobs go on: jobd restart", "the daemon (process %d) is %s, this program is %s", s.PID, s.Executable, own)
	}
	return fmt.Sprintf("%s, process %d, %s", s.Version, s.PID, count(s.LiveJobs, "live job")), nil
}

// checkPath looks which jobd the shell finds.
func checkPath(context.Context) (string, error) {
	own, err := config.Sibling("jobd")
	if err != nil {
		return "", err
	}
	found, err := exec.LookPath("jobd")
	if err != nil {
		return "", warning("add the directory of the link to your PATH, for example: export PATH=\"$HOME/.local/bin:$PATH\"", "the shell does not find jobd")
	}
	if caller.Real(found) != own {
		return "", warning("remove it, or put the other directory first on your PATH", "the shell finds another jobd, %s; this is %s", found, own)
	}
	return found, nil
}
