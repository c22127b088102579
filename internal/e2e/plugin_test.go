//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// A pluginRig is a home folder with the programs of "make install-plugin", and the
// plugin installed from a folder by Claude Code's own commands.
type pluginRig struct {
	*installation
	// checkout is the folder that the plugin is installed from.
	checkout string
}

// installPlugin installs the programs, and then the plugin from a copy of the
// checkout's files, as a person does who has cloned it.
func installPlugin(t *testing.T) *pluginRig {
	t.Helper()
	i := newInstallation(t)
	i.make("install-plugin")
	// What make registered is taken back: here the checkout itself is the marketplace.
	i.must("plugin", "uninstall", "jobd@jobd")
	i.must("plugin", "marketplace", "remove", "jobd")
	p := &pluginRig{i, i.rig.Dir + "/checkout"}
	if err := os.Mkdir(p.checkout, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{".claude-plugin", "plugin.json", "hooks", "skills", "commands", "README.md", "LICENSE"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(rig.Root(t), part), p.checkout).CombinedOutput(); err != nil {
			t.Fatalf("copying %s: %v: %s", part, err, out)
		}
	}
	p.allow("mcp__plugin_jobd_jobd")
	i.must("plugin", "marketplace", "add", p.checkout)
	i.must("plugin", "install", "jobd@jobd")
	return p
}

// must runs a claude command that must succeed.
func (i *installation) must(args ...string) string {
	i.t.Helper()
	out := i.claude.Run(args...)
	if out.Code != 0 {
		i.t.Fatalf("claude %s ended with %d: %s%s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// allow adds a rule to the person's settings, as the README shows it.
func (i *installation) allow(rule string) {
	i.t.Helper()
	path := i.rig.Home + "/.claude/settings.json"
	var settings map[string]any
	decode(i.t, read(i.t, path), &settings)
	settings["permissions"].(map[string]any)["allow"] = []string{rule}
	data, err := json.Marshal(settings)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// setVersion writes another version into the plugin's manifest.
func (p *pluginRig) setVersion(version string) {
	p.t.Helper()
	path := p.checkout + "/.claude-plugin/plugin.json"
	var manifest map[string]any
	decode(p.t, read(p.t, path), &manifest)
	manifest["version"] = version
	data, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func pluginCall(seconds int) string {
	return strings.Replace(runJob(seconds), "mcp__jobd__", "mcp__plugin_jobd_jobd__", 1)
}

// What the plugin brings into a conversation: tools, commands, mentions, and a
// note at the start.
func TestPlugin_IsAtHomeInClaudeCode(t *testing.T) {
	t.Parallel()
	p := installPlugin(t)
	// Something happened while Claude Code was not there.
	ended := strings.TrimSpace(p.shell(`jobd run --name "nightly build" -- sh -c "echo 42 warnings; exit 3"`).Stdout)
	asks := strings.TrimSpace(p.shell(`jobd run --name release -- jobd ask "Release 1.2?" --field go:boolean`).Stdout)
	rig.Until(t, 30*time.Second, "one job has ended and one asks", func() bool {
		table := p.shell("jobd status").Stdout
		return strings.Contains(table, "failed") && strings.Contains(table, "? Release 1.2?")
	})

	pane := p.claude.Start()
	// The person reads it on the screen, the model with its first turn.
	pane.Until("ended, and nobody was told")
	pane.Until("nightly build (job " + ended[:8] + ", failed)")
	pane.Until("release (job " + asks[:8] + "; Release 1.2?")

	pane.Text("/jobd:")
	pane.Until("/jobd:jobs")
	pane.Until("/jobd:answer")
	pane.Until("Show this project's jobs, and what waits for you")
	pane.Key("C-u")

	pane.Type("/jobd:jobs nightly")
	turn := p.claude.API.Told(t, time.Minute, claudecode.Prompt, "Show me jobd's jobs of this project", "nightly")
	for _, want := range []string{"jobd, this project's jobs. ", "nightly build (job " + ended[:8], "durable-jobs", "mcp__plugin_jobd_jobd__run_job"} {
		if !strings.Contains(string(turn.Body), want) {
			t.Errorf("the model was not sent %q", want)
		}
	}
	pane.Type("/jobd:answer " + asks[:8])
	p.claude.API.Told(t, time.Minute, claudecode.Prompt, "Find the jobs of jobd that wait for an answer", asks[:8])

	// A mention gives the model what is there to read.
	pane.Text("@jobd")
	pane.Until("nightly build, failed: exit code 3")
	for range 4 { // past the two templates and the newer job
		pane.Key("Down")
	}
	pane.Key("Tab")
	pane.Until("@plugin:jobd:jobd:jobd://jobs/" + ended)
	pane.Text("what went wrong?")
	pane.Key("Enter")
	turn = p.claude.API.Told(t, time.Minute, claudecode.Prompt, "what went wrong?")
	if !strings.Contains(string(turn.Body), "42 warnings") {
		t.Error("the model was not given the job that was mentioned")
	}

	// A tool call is a task, and its result comes by itself.
	pane.Type("CALL " + pluginCall(4) + " please")
	pane.Until("1 MCP task")
	p.claude.API.Told(t, secondsToTell, claudecode.Notification, "<status>completed</status>", "the answer is 42")
	p.shell("jobd cancel " + asks)
	pane.Exit()

	// What was told once is not told again.
	again := p.claude.Start()
	again.Until("manual mode on")
	if again.Shows("nightly build") {
		t.Errorf("the second session is told again:\n%s", again.Screen())
	}
	again.Exit()
}

// The plugin is updated while a task runs: its entry stays the same, so the
// resumed session is told the result.
func TestPlugin_IsUpdatedWhileATaskRuns(t *testing.T) {
	t.Parallel()
	p := installPlugin(t)
	pane := p.claude.Start()
	pane.Type("CALL " + pluginCall(15) + " please")
	pane.Until("1 MCP task")
	p.claude.API.Told(t, time.Minute, claudecode.ToolResult, "started server-side task")
	pane.Exit()

	p.setVersion("0.9.9")
	p.must("plugin", "marketplace", "update", "jobd")
	p.must("plugin", "update", "jobd@jobd")
	if list := p.must("plugin", "list"); !strings.Contains(list, "0.9.9") {
		t.Fatalf("the plugin was not updated:\n%s", list)
	}
	p.make("install-plugin") // the programs too, over those that run
	p.must("plugin", "list")

	resumed := p.claude.Start("--resume", p.claude.Session())
	p.claude.API.Told(t, secondsToTell, claudecode.Notification, "<status>completed</status>", "the answer is 42")
	if runs := p.rig.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
	resumed.Exit()
}

// A plugin whose programs are not there says in one line how to get them, and
// disturbs nothing.
func TestPlugin_WithoutProgramsSaysHowToInstallThem(t *testing.T) {
	t.Parallel()
	p := installPlugin(t)
	if err := os.RemoveAll(p.lib); err != nil {
		t.Fatal(err)
	}
	pane := p.claude.Start()
	pane.Until("make install-plugin")
	pane.Type("hello")
	p.claude.API.Told(t, time.Minute, claudecode.Prompt, "hello")
	pane.Exit()

	hook := exec.CommandContext(t.Context(), "sh", p.checkout+"/hooks/session-start.sh")
	hook.Env = p.rig.Env()
	hook.Stdin = strings.NewReader(`{"session_id":"1","cwd":"/","source":"startup"}`)
	out := rig.Run(t, hook)
	var said struct {
		Message string `json:"systemMessage"`
	}
	decode(t, []byte(out.Stdout), &said)
	if out.Code != 0 || out.Stderr != "" || strings.Count(out.Stdout, "\n") != 1 || !strings.Contains(said.Message, "make install-plugin") {
		t.Errorf("the hook ended with %d and said %q, %q", out.Code, out.Stdout, out.Stderr)
	}
}

// Server and plugin side by side would be two sets of the same tools: the
// doctor finds that, and says how to take either back.
func TestPlugin_BesideTheServerIsFoundByTheDoctor(t *testing.T) {
	t.Parallel()
	p := installPlugin(t)
	if out := p.shell("jobd doctor"); out.Code != 0 || !strings.Contains(out.Stdout, `the plugin "jobd@jobd"`) {
		t.Errorf("with the plugin alone the doctor ended with %d:\n%s", out.Code, out.Stdout)
	}
	p.must("mcp", "add", "-s", "user", "jobd", "--", p.lib+"/mcp-stdio")
	out := p.shell("jobd doctor")
	for _, want := range []string{"Claude Code starts jobd twice", "claude plugin uninstall jobd@jobd", "claude mcp remove -s user jobd"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("the doctor does not say %q:\n%s", want, out.Stdout)
		}
	}
	if out.Code != 1 {
		t.Errorf("it ended with %d", out.Code)
	}
	p.must("mcp", "remove", "-s", "user", "jobd")
	if out := p.shell("jobd doctor"); out.Code != 0 {
		t.Errorf("after one was taken back the doctor ended with %d:\n%s", out.Code, out.Stdout)
	}
}
