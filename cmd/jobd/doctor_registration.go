package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"jobd/internal/caller"
	"jobd/internal/config"
)

// A registration is one way by which Claude Code starts jobd.
type registration struct {
	what   string // for people
	remove string // the command that takes it back
	// command is the program that is started, "" for a plugin.
	command string
	// project is where it holds, "" = everywhere.
	project string
}

// checkRegistration reads how Claude Code knows jobd, and changes nothing.
func checkRegistration(getenv func(string) string) (string, error) {
	found, err := registrations(getenv)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", warning("register it: make install, or: claude mcp add -s user jobd -- "+sibling("mcp-stdio"), "Claude Code does not know jobd yet")
	}
	for i, a := range found {
		if a.command != "" {
			if err := unix.Access(a.command, unix.X_OK); err != nil {
				return "", fault("register it anew: make install", "%s starts %s, which cannot be run: %w", a.what, a.command, err)
			}
		}
		for _, b := range found[:i] {
			if a.project == "" || b.project == "" || a.project == b.project {
				return "", fault("keep one of them; take the other back with one of:\n  "+b.remove+"\n  "+a.remove,
					"Claude Code starts jobd twice: %s, and %s", b.what, a.what)
			}
		}
	}
	if own := sibling("mcp-stdio"); found[0].command != "" && caller.Real(found[0].command) != own {
		return "", warning("to use this one: make install", "%s starts %s; this is %s", found[0].what, found[0].command, own)
	}
	var names []string
	for _, r := range found {
		names = append(names, r.what)
	}
	return strings.Join(names, ", "), nil
}

func sibling(name string) string {
	path, err := config.Sibling(name)
	if err != nil {
		return name
	}
	return path
}

// registrations reads Claude Code's configuration.
func registrations(getenv func(string) string) ([]registration, error) {
	home := getenv("HOME")
	state, dir := filepath.Join(home, ".claude.json"), filepath.Join(home, ".claude")
	if d := getenv("CLAUDE_CONFIG_DIR"); d != "" {
		state, dir = filepath.Join(d, ".claude.json"), d
	}
	type servers map[string]struct {
		Command string `json:"command"`
	}
	var user struct {
		Servers  servers `json:"mcpServers"`
		Projects map[string]struct {
			Servers servers `json:"mcpServers"`
		} `json:"projects"`
	}
	if err := readConfig(state, &user); err != nil {
		return nil, err
	}
	var found []registration
	add := func(s servers, scope, project, where string) {
		for name, server := range s {
			command := expandHome(server.Command, home)
			if name != "jobd" && filepath.Base(command) != "mcp-stdio" {
				continue
			}
			found = append(found, registration{
				what:    fmt.Sprintf("the server %q (%s)", name, where),
				remove:  fmt.Sprintf("claude mcp remove -s %s %s", scope, shellWord(name)),
				command: command, project: project,
			})
		}
	}
	add(user.Servers, "user", "", "all projects")
	for project, p := range user.Projects {
		add(p.Servers, "local", project, project)
	}
	if cwd, err := os.Getwd(); err == nil {
		project := caller.Project(getenv("CLAUDE_PROJECT_DIR"), cwd)
		var shared struct {
			Servers servers `json:"mcpServers"`
		}
		if err := readConfig(filepath.Join(project, ".mcp.json"), &shared); err != nil {
			return nil, err
		}
		add(shared.Servers, "project", project, filepath.Join(project, ".mcp.json"))
	}
	var settings struct {
		Plugins map[string]bool `json:"enabledPlugins"`
	}
	if err := readConfig(filepath.Join(dir, "settings.json"), &settings); err != nil {
		return nil, err
	}
	for name, enabled := range settings.Plugins {
		if plugin, _, _ := strings.Cut(name, "@"); plugin == "jobd" && enabled {
			found = append(found, registration{what: fmt.Sprintf("the plugin %q", name), remove: "claude plugin uninstall " + shellWord(name)})
		}
	}
	slices.SortFunc(found, func(a, b registration) int { return strings.Compare(a.project+"\x00"+a.what, b.project+"\x00"+b.what) })
	return found, nil
}

// expandHome replaces what Claude Code replaces in a server's command.
func expandHome(command, home string) string {
	command = strings.ReplaceAll(command, "${HOME}", home)
	if rest, ok := strings.CutPrefix(command, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return command
}

// readConfig reads a JSON file of Claude Code; one that is not there says
// nothing.
func readConfig(path string, into any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return warning("look at the file; jobd only reads it", "Claude Code's configuration %s cannot be read: %w", path, err)
	}
	return nil
}
