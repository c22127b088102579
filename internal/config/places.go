// Package config says where jobd's files lie and what its limits are. Both are
// resolved once, by a main, and handed on as values.
//
// [Find] gives the [Places]; package config/limits reads config.yaml, apart so
// that the front end, which only needs the places, does not link a YAML parser.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Places are the files and directories of one jobd. All paths are absolute.
// Equal environments give equal places in every binary.
type Places struct {
	// Home is JOBD_HOME, "" where it is not set.
	Home string

	StateDir  string // everything below but socket and configuration
	DB        string // the database
	Bundles   string // one directory per job
	Log       string // the daemon's log
	PIDFile   string // locked by the one daemon; its content is for people
	AliveLock string // held by the daemon while it lives, for shims to wait on
	StartLock string // held by a client while it starts a daemon
	Stopped   string // there = the daemon was stopped on purpose

	// Socket is in StateDir, or in /tmp/jobd-<uid> where that path would be too
	// long for a socket's address.
	Socket string

	ConfigDir  string
	ConfigFile string // config.yaml
	JobFiles   string // the directory of the user's job files
}

// The names of the variables that place jobd.
const (
	EnvHome   = "JOBD_HOME"   // one directory for everything
	EnvJob    = "JOBD_JOB_ID" // set inside a job
	EnvSocket = "JOBD_SOCKET" // inside a job: the daemon that runs it
)

// Find resolves the places from the environment of this process. It touches
// nothing. Its error is one line.
//
// JOBD_HOME puts everything into one directory. Otherwise the XDG base
// directory specification holds: XDG_STATE_HOME and XDG_CONFIG_HOME where they
// are absolute, else .local/state and .config below HOME, and where that is not
// an absolute path, below the home directory of the user database.
func Find() (Places, error) {
	return find(os.Getenv, passwdHome, os.Getuid(), runtime.GOOS)
}

func find(getenv func(string) string, passwd func() (string, error), uid int, goos string) (Places, error) {
	var p Places
	if home := getenv(EnvHome); home != "" {
		if !usable(home) {
			return Places{}, fmt.Errorf("%s is %q; it must be an absolute path other than /", EnvHome, home)
		}
		p.Home = realParent(home)
		p.StateDir, p.ConfigDir = p.Home, p.Home
	} else {
		state, err := xdg(getenv, passwd, "XDG_STATE_HOME", ".local/state")
		if err != nil {
			return Places{}, err
		}
		conf, err := xdg(getenv, passwd, "XDG_CONFIG_HOME", ".config")
		if err != nil {
			return Places{}, err
		}
		p.StateDir, p.ConfigDir = realParent(filepath.Join(state, "jobd")), filepath.Join(conf, "jobd")
	}
	in := func(name string) string { return filepath.Join(p.StateDir, name) }
	p.DB, p.Bundles, p.Log = in("jobd.db"), in("bundles"), in("jobd.log")
	p.PIDFile, p.AliveLock, p.StartLock, p.Stopped = in("jobd.pid"), in("alive.lock"), in("start.lock"), in("stopped")
	p.ConfigFile, p.JobFiles = filepath.Join(p.ConfigDir, "config.yaml"), filepath.Join(p.ConfigDir, "jobs")

	limit := SocketPathMax(goos)
	p.Socket = in("jobd.sock")
	if len(p.Socket) > limit {
		sum := sha256.Sum256([]byte(p.StateDir))
		p.Socket = filepath.Join("/tmp", "jobd-"+strconv.Itoa(uid), hex.EncodeToString(sum[:12])+".sock")
	}
	// A job's command may have changed HOME; its daemon stays the one that runs it.
	if s := getenv(EnvSocket); s != "" && getenv(EnvJob) != "" {
		if !usable(s) || len(s) > limit {
			return Places{}, fmt.Errorf("%s is %q; it must be an absolute path of at most %d bytes", EnvSocket, s, limit)
		}
		p.Socket = s
	}
	return p, nil
}

// SocketPathMax is how many bytes of a path fit a Unix socket's address
// (sun_path less its NUL byte; unix(7) on Linux, unix(4) on macOS).
func SocketPathMax(goos string) int {
	if goos == "linux" {
		return 107
	}
	return 103
}

// usable reports whether a path from the environment can hold files of ours:
// relative ones would depend on the working directory, and / is not a home.
func usable(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) != "/" && !strings.ContainsRune(path, 0)
}

func xdg(getenv func(string) string, passwd func() (string, error), name, below string) (string, error) {
	if dir := getenv(name); usable(dir) {
		return filepath.Clean(dir), nil
	}
	if home := getenv("HOME"); usable(home) {
		return filepath.Join(home, below), nil
	}
	home, err := passwd()
	if err == nil && !usable(home) {
		err = fmt.Errorf("it says %q", home)
	}
	if err != nil {
		return "", fmt.Errorf("HOME is %q and the user database gives no home directory (%w); set HOME, or %s to a directory of your own",
			getenv("HOME"), err, EnvHome)
	}
	return filepath.Join(home, below), nil
}

func passwdHome() (string, error) {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "", err
	}
	return u.HomeDir, nil
}

// realParent resolves the links in the directory that holds path, as far as it
// exists, so that every spelling of a home gives the same socket. The last
// element stays: [EnsureDir] refuses it where it is a link.
func realParent(path string) string {
	path = filepath.Clean(path)
	rest := filepath.Base(path)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if r, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(r, rest)
		}
		if dir == "/" || dir == "." {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// Sibling returns the path of another of jobd's programs: the file called name
// beside the running one, links resolved. PATH is never asked. It does not
// check that the file is there.
func Sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the directory of this program: %w", err)
	}
	if r, err := filepath.EvalSymlinks(exe); err == nil {
		exe = r
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("finding the directory of this program: %w", err)
	}
	return filepath.Join(filepath.Dir(exe), name), nil
}

// DaemonEnv returns of environ what a daemon starts with. It outlives whoever
// started it and must not differ by that, nor keep a secret of theirs.
func DaemonEnv(environ []string) []string {
	kept := make([]string, 0, 16)
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		switch name {
		case "HOME", "USER", "LANG", "PATH", "TMPDIR", EnvHome, "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS":
			kept = append(kept, kv)
		default:
			if strings.HasPrefix(name, "XDG_") {
				kept = append(kept, kv)
			}
		}
	}
	return kept
}
