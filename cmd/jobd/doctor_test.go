package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorFindsHowClaudeCodeKnowsJobd(t *testing.T) {
	project := realPath(t.TempDir())
	t.Chdir(project)
	program := filepath.Join(project, "mcp-stdio")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // a program
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
