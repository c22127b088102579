package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"jobd/internal/caller"
)

func TestDoctorFindsHowClaudeCodeKnowsJobd(t *testing.T) {
	project := caller.Real(t.TempDir())
	t.Chdir(project)
	program := filepath.Join(project, "mcp-stdio")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := `{"mcpServers":{"jobd":{"command":"` + program + `"}}}`
	for _, tt := range []struct {
		name                 string
		user, settings, here string
		want                 string
		warning              bool
	}{
		{"not at all", "", "", "", "Claude Code does not know jobd yet", true},
		{"no jobd among others", `{"mcpServers":{"x":{"command":"npx"}}}`, `{"enabledPlugins":{"x@y":true}}`, "", "does not know jobd yet", true},
		{"a server elsewhere", server, "", "", "starts " + program, true},
		{"the plugin", "", `{"enabledPlugins":{"jobd@market":true}}`, "", "", false},
		{"the plugin switched off", "", `{"enabledPlugins":{"jobd@market":false}}`, "", "does not know jobd yet", true},
		{"server and plugin", server, `{"enabledPlugins":{"jobd@market":true}}`, "", "Claude Code starts jobd twice", false},
		{"server in two scopes", server, "", server, "Claude Code starts jobd twice", false},
		{"under another name", `{"mcpServers":{"jobs":{"command":"` + program + `"},"jobd":{"command":"` + program + `"}}}`, "", "", "Claude Code starts jobd twice", false},
		{"in two projects", `{"projects":{"/a":{"mcpServers":{"jobd":{"command":"` + program + `"}}},"/b":{"mcpServers":{"jobd":{"command":"` + program + `"}}}}}`, "", "", "starts " + program, true},
		{"a program that is gone", `{"mcpServers":{"jobd":{"command":"${HOME}/gone/mcp-stdio"}}}`, "", "", "which cannot be run: no such file", false},
		{"not JSON", "{", "", "", "cannot be read", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			for path, content := range map[string]string{
				filepath.Join(home, ".claude.json"):             tt.user,
				filepath.Join(home, ".claude", "settings.json"): tt.settings,
				filepath.Join(project, ".mcp.json"):             tt.here,
			} {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if content == "" {
					os.Remove(path)
				} else if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			remark, err := checkRegistration(func(name string) string { return map[string]string{"HOME": home}[name] })
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no fault", err)
				}
				return
			}
			var r *remedied
			if !errors.As(err, &r) || !strings.Contains(err.Error(), tt.want) || r.warning != tt.warning || r.remedy == "" {
				t.Errorf("got %q and %#v, want %q, a warning: %t, with a remedy", remark, err, tt.want, tt.warning)
			}
		})
	}
}

// TestDoctor builds the programs as they are installed, and lets the doctor
// examine them.
func TestDoctor(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "jobd/cmd/jobd", "jobd/cmd/mcp-stdio", "jobd/cmd/jobd-shim")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v: %s", err, out)
	}
	examine := func(t *testing.T) (report struct {
		OK    bool      `json:"ok"`
		Steps []finding `json:"steps"`
	}, code int) {
		t.Helper()
		home, temp := t.TempDir(), t.TempDir()
		cmd := exec.Command(filepath.Join(bin, "jobd"), "doctor", "--json")
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "TMPDIR=" + temp, "PATH=/usr/bin:/bin"}
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
			if len(exit.Stderr) > 0 {
				t.Errorf("it wrote on standard error: %s", exit.Stderr)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		report = asJSON[struct {
			OK    bool      `json:"ok"`
			Steps []finding `json:"steps"`
		}](t, string(out))
		for _, dir := range []string{home, temp} {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v behind in %s (%v)", left, dir, err)
			}
		}
		return report, code
	}

	t.Run("a good installation", func(t *testing.T) {
		report, code := examine(t)
		if !report.OK || code != 0 || report.Steps[len(report.Steps)-1].Step != "leave nothing behind" {
			t.Errorf("got code %d and %+v", code, report)
		}
	})
	other, err := os.ReadFile(filepath.Join(bin, "mcp-stdio"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, program, content string
		step, says             string
	}{
		{"a program is missing", "mcp-stdio", "", "programs", "cannot be run: no such file"},
		{"a program is another", "mcp-stdio", "#!/bin/sh\n", "programs", "is none of jobd's"},
		{"a program does not do its work", "jobd-shim", string(other), "start a job over MCP", "the job ended before it ran: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(bin, tt.program)
			if err := os.Rename(path, path+".kept"); err != nil {
				t.Fatal(err)
			}
			defer os.Rename(path+".kept", path)
			if tt.content != "" {
				if err := os.WriteFile(path, []byte(tt.content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			report, code := examine(t)
			last := report.Steps[len(report.Steps)-1]
			if report.OK || code != 1 || last.Step != tt.step || !strings.Contains(last.Error, tt.says) || last.Remedy == "" {
				t.Errorf("got code %d and %+v", code, report)
			}
		})
	}
}
