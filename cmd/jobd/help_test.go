package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command has a help with an example, and every example is a command
// line that is understood.
func TestEveryCommandHasExamplesThatAreRight(t *testing.T) {
	root := newRootCommand(&cli{})
	commands := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		commands++
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			help := (invocation{}).call(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
			if help.code != 0 || !strings.Contains(help.out, "\nExamples:\n  ") {
				t.Errorf("its help has no example:\n%s", help.out)
			}
			if cmd.Long == exitHelp {
				_, cmd.Example, _ = strings.Cut(cmd.Long, "Examples:\n")
			}
			name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "jobd"), " ")
			own := false
			for _, args := range calls(t, cmd.Example) {
				own = own || strings.HasPrefix(strings.Join(args, " "), name)
				understood(t, args)
			}
			if !own && cmd.Runnable() {
				t.Errorf("no example calls it:\n%s", cmd.Example)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if commands < 20 {
		t.Errorf("there are %d commands", commands)
	}
}

// calls has a shell run a text in which jobd only writes down its arguments,
// and no other program is there. It prints an id.
func calls(t *testing.T, text string) [][]string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `mkdir() { :; }; jobd() { printf '%s\0' "$@" >>"$HOME/calls"; printf '\n' >>"$HOME/calls"; echo 3f2a9c1d; }`+"\n"+text)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + dir}
	// Where an example writes to.
	if err := os.MkdirAll(dir+"/.config/jobd", 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); bytes.Contains(bytes.ToLower(out), []byte("syntax error")) {
		t.Errorf("a shell does not understand it: %v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Errorf("nothing in it calls jobd: %v\n%s", err, text)
	}
	var list [][]string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line = strings.TrimSuffix(line, "\x00"); line == "" {
			list = append(list, nil)
		} else {
			list = append(list, strings.Split(line, "\x00"))
		}
	}
	return list
}

// understood checks a command line without running it.
func understood(t *testing.T, args []string) {
	t.Helper()
	root := newRootCommand(&cli{})
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("jobd %q: %v", args, err)
	}
}
