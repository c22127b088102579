package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestADirectoryIsMadeClosedWhateverTheUmask(t *testing.T) {
	base := t.TempDir()
	for _, umask := range []int{0, 0o022, 0o077, 0o277, 0o777} {
		dir := filepath.Join(base, "u", strings.Repeat("x", umask%7+1), "state")
		old := unix.Umask(umask)
		err := EnsureDir(dir)
		unix.Umask(old)
		if err != nil {
			t.Fatalf("umask %#o: %v", umask, err)
		}
		for d := dir; d != base; d = filepath.Dir(d) {
			if fi, err := os.Stat(d); err != nil || fi.Mode() != fs.ModeDir|0o700 {
				t.Errorf("umask %#o: %s is %v, %v", umask, d, fi.Mode(), err)
			}
		}
		if err := EnsureDir(dir); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := os.RemoveAll(filepath.Join(base, "u")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADirectoryThatIsNotOursAloneIsRefused(t *testing.T) {
	base := t.TempDir()
	in := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(in("fine"), 0o700))
	must(os.Symlink(in("fine"), in("link")))
	must(os.Symlink(in("nowhere"), in("dangling")))
	must(os.WriteFile(in("file"), nil, 0o600))
	must(os.Mkdir(in("open dir"), 0o700))
	must(os.Chmod(in("open dir"), 0o750))
	must(os.Mkdir(in("loose"), 0o700))
	must(os.Chmod(in("loose"), 0o500))
	must(unix.Mkfifo(in("fifo"), 0o600))
	for name, want := range map[string]string{
		"link":     "symbolic link",
		"dangling": "symbolic link",
		"file":     "is no directory",
		"fifo":     "is no directory",
		"file/sub": "file",
		"open dir": "chmod 700 '" + in("open dir") + "'",
		"loose":    "chmod 700 " + in("loose"),
	} {
		err := EnsureDir(in(name))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, want)
		}
	}
	if err := checkDir("/d", 1, 2, 0o700); err == nil || !strings.Contains(err.Error(), "belongs to user 1") {
		t.Errorf("foreign: %v", err)
	}
	if err := EnsureDir("/jobd-test-never-made/x"); err == nil || !strings.Contains(err.Error(), "makes none in /") {
		t.Errorf("in /: %v", err)
	}
	if _, err := os.Lstat("/jobd-test-never-made"); err == nil {
		t.Error("a directory was made in /")
	}
}

func TestAMissingHomeIsNotMade(t *testing.T) {
	base := t.TempDir()
	p, err := find(env(map[string]string{"HOME": filepath.Join(base, "nobody")}), passwdIs(""), 1000, "linux")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ensure(); err == nil || !strings.Contains(err.Error(), "home directory "+p.StateDir[:len(p.StateDir)-len("/.local/state/jobd")]+" does not exist") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(base, "nobody")); err == nil {
		t.Error("the home was made")
	}
}

func TestEnsureMakesStateAndSocketDirectories(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := find(env(map[string]string{"JOBD_HOME": filepath.Join(base, strings.Repeat("y", 100))}), passwdIs(""), os.Getuid(), "linux")
	if err != nil {
		t.Fatal(err)
	}
	p.Socket = filepath.Join(base, "sockets", filepath.Base(p.Socket)) // not in the real /tmp
	if err := p.Ensure(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{p.StateDir, filepath.Dir(p.Socket)} {
		fi, err := os.Lstat(d)
		if err != nil || fi.Mode() != fs.ModeDir|0o700 || int(fi.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
			t.Errorf("%s: %v, %v", d, fi, err)
		}
	}
}
