//go:build e2e

package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// The commands that the README shows as typed into a terminal work as printed,
// in order, after the set-up it prints; what it shows of their output has the
// form of the real one.
func TestReadme_CommandsWorkAsPrinted(t *testing.T) {
	i := newInstallation(t)
	text := string(read(t, rig.Root(t)+"/README.md"))
	if !strings.Contains(text, "make install ") || !strings.Contains(text, "make test ") {
		t.Error("the README does not name make install and make test")
	}
	i.make("install")

	commands := 0
	for _, block := range blocks(text, "console") {
		for _, step := range steps(block) {
			commands++
			out := i.shell(step.command)
			// A person looks a moment later than a program.
			for end := time.Now().Add(10 * time.Second); strings.HasPrefix(step.command, "jobd status") && form(out.Stdout) != form(step.output) && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
				out = i.shell(step.command)
			}
			if out.Code != 0 {
				t.Errorf("%s ended with %d: %s%s", step.command, out.Code, out.Stdout, out.Stderr)
			}
			got, want := form(out.Stdout), form(step.output)
			if got != want {
				t.Errorf("%s printed\n%s\nwhich is of the form\n%s\nnot\n%s", step.command, out.Stdout, got, want)
			}
		}
	}
	if commands < 3 {
		t.Errorf("the README shows %d commands", commands)
	}

	// Those that have no terminal around them are commands at least.
	for _, line := range strings.Split(strings.Join(blocks(text, "sh"), "\n"), "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "jobd":
			if out := i.shell("jobd " + words[1] + " --help"); out.Code != 0 {
				t.Errorf("%s is no command: %s", line, out.Stderr)
			}
		case "make":
			if out := i.shell("make -n -C " + rig.Root(t) + " " + words[1]); out.Code != 0 {
				t.Errorf("%s is no target: %s", line, out.Stderr)
			}
		default:
			t.Errorf("%q is neither jobd nor make", line)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(rig.Root(t) + "/" + link[1]); err != nil {
			t.Errorf("the README links to %s: %v", link[1], err)
		}
	}
}

// blocks are the fenced blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

type step struct{ command, output string }

// steps are the commands of a block, behind "$ ", with what follows each; a
// line behind "> " goes on with the command.
func steps(block string) []step {
	var found []step
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			found = append(found, step{command: strings.TrimSpace(command)})
		} else if command, ok := strings.CutPrefix(line, "> "); ok && len(found) > 0 && found[len(found)-1].output == "" {
			found[len(found)-1].command += "\n" + strings.TrimRight(command, "\n")
		} else if len(found) > 0 {
			found[len(found)-1].output += line
		}
	}
	return found
}

var (
	ids    = regexp.MustCompile(`\b[0-9a-f]{8,32}\b`)
	ages   = regexp.MustCompile(`\b\d+(\.\d+)?\s?(ms|s|m|h|d|B|bytes)\b( ago)?`)
	blanks = regexp.MustCompile(`[ \t]+`)
)

// form replaces what differs from run to run: ids, times, sizes and how wide
// columns are.
func form(s string) string {
	s = ids.ReplaceAllString(s, "ID")
	s = ages.ReplaceAllString(s, "AGE")
	return strings.TrimSpace(blanks.ReplaceAllString(s, " "))
}
