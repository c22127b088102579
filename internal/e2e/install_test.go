//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// An installation is a home folder that "make install" is run for, with its
// state where a person has it.
type installation struct {
	t      *testing.T
	rig    *rig.Rig
	claude *claudecode.Claude
	lib    string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	r := rig.New(t)
	// Where a person has it, who sets no JOBD_HOME.
	r.State = ""
	return &installation{t, r, claudecode.New(t, r), r.Home + "/.local/lib/jobd"}
}

// environ is the person's environment, with what a build needs.
func (i *installation) environ(more ...string) []string {
	i.t.Helper()
	env := i.rig.Env(append([]string{"CLAUDE=" + claudecode.Executable(i.t), "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}, more...)...)
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN", "GONOSUMDB", "GOSUMDB", "GOPRIVATE"} {
		out, err := exec.CommandContext(i.t.Context(), "go", "env", name).Output()
		if err != nil {
			i.t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env
}

// making lets one make after the other build into the checkout's bin/.
var making sync.Mutex

func (i *installation) make(args ...string) string {
	i.t.Helper()
	making.Lock()
	defer making.Unlock()
	ctx, cancel := context.WithTimeout(i.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-s"}, args...)...)
	cmd.Dir, cmd.Env = rig.Root(i.t), i.environ()
	out := rig.Run(i.t, cmd)
	if out.Code != 0 {
		i.t.Fatalf("make %s ended with %d:\n%s%s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// shell runs a line as a person would, with the installed jobd on PATH.
func (i *installation) shell(line string) rig.Outcome {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir, cmd.Env = i.rig.Project, i.rig.Env("PATH="+i.rig.Home+"/.local/bin:"+os.Getenv("PATH"))
	return rig.Run(i.t, cmd)
}

// Installing twice, as a plugin, and taking it back: each time exactly one
// registration, and nothing left at the end but the jobs.
func TestInstall_RegistersOnceAndTakesBackAll(t *testing.T) {
	i := newInstallation(t)
	before := tree(t, i.rig.Home)

	said := i.make("install")
	for _, name := range []string{"mcp-stdio", "jobd", "jobd-shim"} {
		if info, err := os.Stat(filepath.Join(i.lib, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s is not installed as a program: %v", name, err)
		}
	}
	if link, err := filepath.EvalSymlinks(i.rig.Home + "/.local/bin/jobd"); err != nil || link != i.lib+"/jobd" {
		t.Errorf("the link leads to %q (%v)", link, err)
	}
	if list := i.claude.Run("mcp", "list"); !strings.Contains(list.Stdout, "jobd: "+i.lib+"/mcp-stdio") || !strings.Contains(list.Stdout, "Connected") {
		t.Errorf("after make install, which said\n%s\nclaude mcp list says:\n%s", said, list.Stdout)
	}
	configured := read(t, i.rig.Home+"/.claude.json")
	i.shell("jobd run -- sleep 300")
	rig.Until(t, 10*time.Second, "the job runs", func() bool { return strings.Contains(i.shell("jobd status").Stdout, "running") })
	running := i.shell("jobd status --json").Stdout

	again := i.make("install")
	if !strings.Contains(again, "already") {
		t.Errorf("the second make install says:\n%s", again)
	}
	if now := read(t, i.rig.Home+"/.claude.json"); servers(t, now) != servers(t, configured) {
		t.Errorf("the second make install changed the entry:\n%s\n%s", servers(t, configured), servers(t, now))
	}
	var first, second []rig.Job
	decode(t, []byte(running), &first)
	decode(t, []byte(i.shell("jobd status --json").Stdout), &second)
	if len(first) != 1 || len(second) != 1 || first[0].PID != second[0].PID || second[0].State != "running" {
		t.Errorf("the job did not live through the second make install: %+v, then %+v", first, second)
	}

	i.make("install-plugin")
	list := i.claude.Run("mcp", "list").Stdout
	if !strings.Contains(list, "plugin:jobd:jobd") || !strings.Contains(list, "Connected") || strings.Contains(list, "\njobd: ") {
		t.Errorf("after make install-plugin claude mcp list says:\n%s", list)
	}
	i.make("install")
	list = i.claude.Run("mcp", "list").Stdout
	if strings.Contains(list, "plugin:jobd:jobd") || !strings.Contains(list, "jobd: "+i.lib+"/mcp-stdio") {
		t.Errorf("after make install again claude mcp list says:\n%s", list)
	}

	i.shell("jobd cancel " + first[0].ID)
	i.make("uninstall")
	if list := i.claude.Run("mcp", "list").Stdout; strings.Contains(list, "jobd") {
		t.Errorf("after make uninstall claude mcp list says:\n%s", list)
	}
	var left []string
	for _, path := range tree(t, i.rig.Home) {
		if !strings.HasPrefix(path, ".claude") && !strings.HasPrefix(path, ".cache") && !strings.HasPrefix(path, ".config/go/") && !strings.HasPrefix(path, ".local/state/jobd") &&
			!strings.Contains(strings.Join(before, "\n"), path) {
			left = append(left, path)
		}
	}
	if len(left) != 0 {
		t.Errorf("make uninstall left %v", left)
	}
	if _, err := os.Stat(i.rig.Home + "/.local/state/jobd/jobd.db"); err != nil {
		t.Errorf("make uninstall took the jobs away: %v", err)
	}
	i.make("uninstall", "PURGE=1")
	if _, err := os.Stat(i.rig.Home + "/.local/state/jobd"); !os.IsNotExist(err) {
		t.Errorf("make uninstall PURGE=1 left the state directory (%v)", err)
	}
}

// Where Claude Code is not there, make install says what to run later.
func TestInstall_WithoutClaudeCodeSaysWhatToRun(t *testing.T) {
	i := newInstallation(t)
	cmd := exec.CommandContext(t.Context(), "make", "-s", "install", "CLAUDE=")
	cmd.Dir = rig.Root(t)
	cmd.Env = append(i.environ("CLAUDE="), "PATH="+withoutClaude(t))
	out := rig.Run(t, cmd)
	if out.Code != 0 || !strings.Contains(out.Stdout, "claude mcp add -s user jobd -- ") {
		t.Errorf("make install ended with %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

// withoutClaude is PATH without folders that hold a claude.
func withoutClaude(t *testing.T) string {
	t.Helper()
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "claude")); err != nil {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// The first conversation after make install, without any other setting.
func TestInstall_IsEnoughForAFirstConversation(t *testing.T) {
	i := newInstallation(t)
	i.make("install")
	pane := i.claude.Start()
	pane.Type("CALL " + runJob(4) + " please")
	pane.Until("1 MCP task")
	i.claude.API.Told(t, secondsToTell, claudecode.Notification, "the answer is 42")
	if runs := i.rig.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
	pane.Exit()
}

// The manifest is where Claude Code reads it, and the file at the top is it.
func TestPlugin_IsValid(t *testing.T) {
	root := rig.Root(t)
	if link, err := os.Readlink(root + "/plugin.json"); err != nil || link != ".claude-plugin/plugin.json" {
		t.Errorf("plugin.json leads to %q (%v)", link, err)
	}
	i := newInstallation(t)
	if out := i.claude.Run("plugin", "validate", "--strict", "--profile", "directory", root); out.Code != 0 {
		t.Errorf("claude plugin validate says:\n%s%s", out.Stdout, out.Stderr)
	}
}

// servers is the part of Claude Code's configuration that is about servers.
func servers(t *testing.T, config []byte) string {
	t.Helper()
	var c struct {
		Servers map[string]any `json:"mcpServers"`
	}
	decode(t, config, &c)
	var b bytes.Buffer
	for name, server := range c.Servers {
		if m, ok := server.(map[string]any); ok {
			b.WriteString(name + " " + m["command"].(string) + "\n")
		}
	}
	return b.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tree lists the files below a directory, relative to it.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, err := filepath.Rel(dir, path)
			files = append(files, rel)
			return err
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What was not made by make install stays: other servers and plugins, settings,
// and files that somebody put beside the programs.
func TestUninstall_LeavesWhatIsNotItsOwn(t *testing.T) {
	i := newInstallation(t)
	i.must("mcp", "add", "-s", "user", "other", "--", "/bin/true")
	other := i.rig.Dir + "/other-market"
	for path, text := range map[string]string{
		"/.claude-plugin/marketplace.json":     `{"name":"others","owner":{"name":"x"},"plugins":[{"name":"notes","source":"./notes","description":"x"}]}`,
		"/notes/.claude-plugin/plugin.json":    `{"name":"notes","version":"1.0.0","description":"x","author":{"name":"x"}}`,
		"/notes/commands/take-a-note.md":       "---\ndescription: x\n---\nx\n",
		"/notes/.claude-plugin/.keep-this-dir": "",
	} {
		if err := os.MkdirAll(filepath.Dir(other+path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other+path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i.must("plugin", "marketplace", "add", other)
	i.must("plugin", "install", "notes@others")
	config, settings := read(t, i.rig.Home+"/.claude.json"), read(t, i.rig.Home+"/.claude/settings.json")

	i.make("install-plugin")
	mine := i.lib + "/mine.txt"
	if err := os.WriteFile(mine, []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := i.make("uninstall"); !strings.Contains(said, "holds files that are not jobd's") {
		t.Errorf("make uninstall says:\n%s", said)
	}
	if string(read(t, mine)) != "kept\n" {
		t.Error("a file beside the programs was changed")
	}
	if list, err := os.ReadDir(i.lib); err != nil || len(list) != 1 {
		t.Errorf("beside it there is %v (%v)", list, err)
	}
	if now := read(t, i.rig.Home+"/.claude.json"); servers(t, now) != servers(t, config) {
		t.Errorf("the servers are %s, not %s", servers(t, now), servers(t, config))
	}
	var before, after map[string]any
	decode(t, settings, &before)
	decode(t, read(t, i.rig.Home+"/.claude/settings.json"), &after)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the settings differ from before (-before +after):\n%s", diff)
	}
	if list := i.must("plugin", "list"); !strings.Contains(list, "notes@others") || strings.Contains(list, "jobd@") {
		t.Errorf("the plugins are:\n%s", list)
	}
}

// On a machine with nothing but git, make and Go a fresh clone is set up by the
// README's first command, as printed. Its second, "make test", is run in the
// same way by .ci/run.
func TestSetup_NeedsNothingButGitMakeAndGo(t *testing.T) {
	r := rig.New(t)
	text := string(read(t, rig.Root(t)+"/README.md"))
	var printed []string
	for _, line := range strings.Split(blocks(text, "sh")[0], "\n") {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			printed = append(printed, strings.TrimSpace(line))
		}
	}
	if len(printed) != 2 || printed[1] != "make test" {
		t.Fatalf("the README begins with %q", printed)
	}
	clone := r.Dir + "/clone"
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", rig.Root(t), clone).CombinedOutput(); err != nil {
		t.Fatalf("cloning: %v: %s", err, out)
	}
	bare := func(command string) rig.Outcome {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, rig.Root(t)+"/scripts/bare.sh", "sh", "-c", command)
		cmd.Dir, cmd.Env = clone, append(os.Environ(), "BARE_HOME="+r.Home)
		return rig.Run(t, cmd)
	}
	out := bare(printed[0])
	if out.Code != 0 || strings.Contains(out.Stderr, "not found") {
		t.Fatalf("%s ended with %d: %s%s", printed[0], out.Code, out.Stdout, out.Stderr)
	}
	for _, want := range []string{"claude mcp add -s user jobd -- '" + r.Home + "/.local/lib/jobd/mcp-stdio'", "ok    leave nothing behind"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, out.Stdout)
		}
	}
	out = bare(`export PATH="$HOME/.local/bin:$PATH"; jobd run --wait -- echo works && jobd stop >/dev/null`)
	if out.Code != 0 || out.Stdout != "works\n" {
		t.Errorf("jobd ended with %d and printed %q, %q", out.Code, out.Stdout, out.Stderr)
	}
	// And the tests are there, and compile.
	if out := bare("go vet ./internal/jobs && make -n test"); out.Code != 0 {
		t.Errorf("make test cannot be run: %s%s", out.Stdout, out.Stderr)
	}
}
