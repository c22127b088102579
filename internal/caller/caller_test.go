package caller

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheEnvironmentOfJobsLacksWhatBelongsToTheClient(t *testing.T) {
	c := Of([]string{"PATH=/bin", "AI_AGENT=x", "CLAUDECODE=1", "CLAUDE_CODE_CHILD_NOTES_DIR=/n", "CLAUDE_CODE_ENTRYPOINT=cli",
		"CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS=a", "CLAUDE_CODE_MESSAGING_SOCKET=/s", "CLAUDE_CODE_MESSAGING_TOKEN=t", "CLAUDE_CODE_SESSION_ID=sess",
		"CLAUDE_CODE_OTHER=stays", "CLAUDE_PROJECT_DIR=/nowhere/p", "ANTHROPIC_API_KEY=k", "EMPTY=", "MULTI=a\nb=c"}, "/")
	if got, want := string(c.Environ), "PATH=/bin\x00CLAUDE_CODE_OTHER=stays\x00CLAUDE_PROJECT_DIR=/nowhere/p\x00ANTHROPIC_API_KEY=k\x00EMPTY=\x00MULTI=a\nb=c\x00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.Session != "sess" || c.Project != "/nowhere/p" || c.Headless {
		t.Errorf("got %+v", c)
	}
}

func TestAClientWithoutASessionHasOnePerConnection(t *testing.T) {
	a, b := Of(nil, "/"), Of(nil, "/")
	if a.Session == b.Session || len(a.Session) < 30 || a.Headless {
		t.Errorf("sessions %q and %q, headless %t", a.Session, b.Session, a.Headless)
	}
	for entry, headless := range map[string]bool{"cli": false, "sdk-cli": true, "mcp": true} {
		if got := Of([]string{"CLAUDE_CODE_ENTRYPOINT=" + entry}, "/").Headless; got != headless {
			t.Errorf("entry point %s: headless %t", entry, got)
		}
	}
}

func TestProject(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := func(parts ...string) string {
		d := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	dir("repo", ".git")
	deep := dir("repo", "a", "b")
	dir("repo", "jobs", ".jobd")
	inner := dir("repo", "jobs", "c")
	plain := dir("plain")
	link := filepath.Join(root, "link")
	if err := os.Symlink(deep, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ named, dir, want string }{
		{plain, deep, plain},
		{link, "/", deep},
		{"", deep, filepath.Join(root, "repo")},
		{"", link, filepath.Join(root, "repo")},
		{"", inner, filepath.Join(root, "repo", "jobs")},
		{"", plain, plain},
		{"relative", plain, plain},
	} {
		if got := Project(c.named, c.dir); got != c.want {
			t.Errorf("Project(%q, %q) = %q, want %q", c.named, c.dir, got, c.want)
		}
	}
}

func TestCaptureReadsThisProcess(t *testing.T) {
	out, err := exec.Command("sh", "-c", "umask; ulimit -Sn").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	c := Capture()
	if soft, hard := c.NoFile(); soft == 0 || hard < soft || soft != limit(fields[1]) {
		t.Errorf("limits %d and %d, a child says %s", soft, hard, fields[1])
	}
	again := Capture()
	if c.Umask != again.Umask {
		t.Errorf("reading the umask changed it from %o to %o", c.Umask, again.Umask)
	}
	if want := octal(t, fields[0]); c.Umask != want {
		t.Errorf("umask %o, a child says %o", c.Umask, want)
	}
}

func octal(t *testing.T, s string) uint32 {
	t.Helper()
	n := uint32(0)
	for _, r := range s {
		n = n<<3 | uint32(r-'0')
	}
	return n
}
