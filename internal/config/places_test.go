package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func passwdIs(home string) func() (string, error) {
	return func() (string, error) {
		if home == "" {
			return "", errors.New("no entry for user 1000")
		}
		return home, nil
	}
}

func TestPlacesFollowTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		name         string
		vars         map[string]string
		passwd       string
		state, conf  string
		errorMention string
	}{
		{"home", map[string]string{"HOME": "/h/me"}, "", "/h/me/.local/state/jobd", "/h/me/.config/jobd", ""},
		{"xdg", map[string]string{"HOME": "/h/me", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c/"}, "", "/s/jobd", "/c/jobd", ""},
		{"xdg alone", map[string]string{"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}, "", "/s/jobd", "/c/jobd", ""},
		{"xdg empty", map[string]string{"HOME": "/h/me", "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}, "", "/h/me/.local/state/jobd", "/h/me/.config/jobd", ""},
		{"xdg relative", map[string]string{"HOME": "/h/me", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "./c"}, "", "/h/me/.local/state/jobd", "/h/me/.config/jobd", ""},
		{"xdg root", map[string]string{"HOME": "/h/me", "XDG_STATE_HOME": "/", "XDG_CONFIG_HOME": "//"}, "", "/h/me/.local/state/jobd", "/h/me/.config/jobd", ""},
		{"home unset", nil, "/h/pw", "/h/pw/.local/state/jobd", "/h/pw/.config/jobd", ""},
		{"home relative", map[string]string{"HOME": "me"}, "/h/pw", "/h/pw/.local/state/jobd", "/h/pw/.config/jobd", ""},
		{"home root", map[string]string{"HOME": "/"}, "/h/pw", "/h/pw/.local/state/jobd", "/h/pw/.config/jobd", ""},
		{"no home at all", nil, "", "", "", "set HOME, or JOBD_HOME"},
		{"no home but root", nil, "/", "", "", `it says "/"`},
		{"jobd home", map[string]string{"JOBD_HOME": "/j/x", "HOME": "rel", "XDG_STATE_HOME": "/s"}, "", "/j/x", "/j/x", ""},
		{"jobd home empty", map[string]string{"JOBD_HOME": "", "HOME": "/h/me"}, "", "/h/me/.local/state/jobd", "/h/me/.config/jobd", ""},
		{"jobd home relative", map[string]string{"JOBD_HOME": "x", "HOME": "/h/me"}, "", "", "", `JOBD_HOME is "x"`},
		{"jobd home root", map[string]string{"JOBD_HOME": "/", "HOME": "/h/me"}, "", "", "", `JOBD_HOME is "/"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := find(env(test.vars), passwdIs(test.passwd), 1000, "linux")
			if test.errorMention != "" {
				if err == nil || !strings.Contains(err.Error(), test.errorMention) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line with %q", err, test.errorMention)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.StateDir != test.state || p.ConfigDir != test.conf || p.Socket != test.state+"/jobd.sock" || p.ConfigFile != test.conf+"/config.yaml" {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestALongSocketPathBecomesTheSameShortOne(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		limit := SocketPathMax(goos)
		for n := 60; n <= 300; n++ {
			home := "/" + strings.Repeat("h", n-1)
			p, err := find(env(map[string]string{"JOBD_HOME": home}), passwdIs(""), 1000, goos)
			if err != nil {
				t.Fatal(err)
			}
			inside := len(home)+len("/jobd.sock") <= limit
			if inside != (p.Socket == home+"/jobd.sock") || len(p.Socket) > limit {
				t.Errorf("%s, home of %d bytes: socket %s", goos, n, p.Socket)
			}
			if inside {
				continue
			}
			other, err := find(env(map[string]string{
				"JOBD_HOME": home, "TMPDIR": "/elsewhere", "XDG_RUNTIME_DIR": "/run/user/1000", "XDG_STATE_HOME": "/s",
			}), passwdIs("/h"), 1000, goos)
			if err != nil || other.Socket != p.Socket || !strings.HasPrefix(p.Socket, "/tmp/jobd-1000/") {
				t.Errorf("home of %d bytes: %s and %s, %v", n, p.Socket, other.Socket, err)
			}
		}
	}
}

func TestEverySpellingOfAStateDirectoryIsOnePlace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(long, link); err != nil {
		t.Fatal(err)
	}
	var sockets []string
	for _, home := range []string{long, link, link + "/", link + "/../" + filepath.Base(long)} {
		p, err := find(env(map[string]string{"HOME": home}), passwdIs(""), 1000, "linux")
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, p.Socket)
	}
	for _, s := range sockets[1:] {
		if s != sockets[0] {
			t.Errorf("%q", sockets)
		}
	}
}

func TestInsideAJobTheSocketIsTheJobs(t *testing.T) {
	vars := map[string]string{"HOME": "/changed", "JOBD_SOCKET": "/s/jobd.sock"}
	if p, err := find(env(vars), passwdIs(""), 1000, "linux"); err != nil || p.Socket == "/s/jobd.sock" {
		t.Errorf("outside a job: %s, %v", p.Socket, err)
	}
	vars["JOBD_JOB_ID"] = "0123"
	if p, err := find(env(vars), passwdIs(""), 1000, "linux"); err != nil || p.Socket != "/s/jobd.sock" {
		t.Errorf("inside a job: %s, %v", p.Socket, err)
	}
	vars["JOBD_SOCKET"] = "jobd.sock"
	if _, err := find(env(vars), passwdIs(""), 1000, "linux"); err == nil {
		t.Error("a relative socket was taken")
	}
}

func TestADaemonStartsWithTheAllowedNamesOnly(t *testing.T) {
	got := DaemonEnv([]string{
		"HOME=/h", "TOKEN=secret", "PATH=/bin", "XDG_RUNTIME_DIR=/run", "_GO_DAEMON=1", "JOBD_JOB_ID=1", "JOBD_SOCKET=/s", "LANG=C",
		"LC_ALL=C", "HOMEX=1", "garbage", "DBUS_SESSION_BUS_ADDRESS=unix:path=/b", "CLAUDECODE=1", "USER=me", "TMPDIR=/t",
		"JOBD_HOME=/j", "DISPLAY=:0", "WAYLAND_DISPLAY=w", "=x",
	})
	want := []string{
		"HOME=/h", "PATH=/bin", "XDG_RUNTIME_DIR=/run", "LANG=C", "DBUS_SESSION_BUS_ADDRESS=unix:path=/b", "USER=me", "TMPDIR=/t",
		"JOBD_HOME=/j", "DISPLAY=:0", "WAYLAND_DISPLAY=w",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestASiblingLiesBesideTheResolvedProgram(t *testing.T) {
	got, err := Sibling("jobd-shim")
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		t.Fatal(err)
	}
	if got != filepath.Join(filepath.Dir(exe), "jobd-shim") {
		t.Errorf("got %s, running %s", got, exe)
	}
}
