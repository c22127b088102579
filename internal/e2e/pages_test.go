//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// Each page of docs is tried out by somebody who has just installed jobd: what
// stands behind "$ " in a block "console" is typed into one shell, in order
// ("> " goes on with the line before), and prints what is printed below it,
// where "…" stands for anything. Lines of a block "sh" are understood.
func TestPages_CommandsWorkAsPrinted(t *testing.T) {
	pages, err := filepath.Glob(rig.Root(t) + "/docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("there are %d pages (%v)", len(pages), err)
	}
	ran := 0
	for _, page := range append(pages, rig.Root(t)+"/examples/README.md") {
		text := string(read(t, page))
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !strings.Contains(text, "```console\n") && !strings.Contains(text, "```sh\n") {
			checkLinks(t, page, text)
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			checkLinks(t, page, text)
			tryPage(t, name, text)
		})
	}
	if ran < 4 {
		t.Errorf("%d pages show commands", ran)
	}
}

func tryPage(t *testing.T, name, text string) {
	i := newInstallation(t)
	install := "install"
	if name == "claude-code" {
		install = "install-plugin"
	}
	i.make(install)
	claude := claudecode.Executable(t)
	sh := newShell(t, i.rig.Project, i.environ("PATH="+i.rig.Home+"/.local/bin:"+filepath.Dir(claude)+":"+os.Getenv("PATH"), "CHECKOUT="+rig.Root(t)))
	if name == "claude-code" {
		// The page installs the plugin by hand.
		sh.run("claude plugin uninstall jobd@jobd && claude plugin marketplace remove jobd")
	}
	for _, block := range blocks(text, "console") {
		for _, step := range steps(block) {
			output, _ := sh.run(step.command)
			for end := time.Now().Add(10 * time.Second); !printed(step.output, output) && strings.HasPrefix(step.command, "jobd status") && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond) // a person looks a moment later than a program
				output, _ = sh.run(step.command)
			}
			if !printed(step.output, output) {
				t.Errorf("%s printed\n%s\nand the page says\n%s", step.command, output, step.output)
			}
		}
	}
	for _, line := range strings.Split(strings.Join(blocks(text, "sh"), "\n"), "\n") {
		line, _, _ = strings.Cut(line, " #")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		switch program, _, _ := strings.Cut(line, " "); program {
		case "jobd", "claude":
			before, after, parted := strings.Cut(line, " -- ")
			if parted {
				after = " -- " + after
			}
			if output, code := sh.run(before + " --help" + after); code != 0 {
				t.Errorf("%s is not understood: %s", line, output)
			}
		case "make":
			if output, code := sh.run("make -n -C " + rig.Root(t) + strings.TrimPrefix(line, "make")); code != 0 {
				t.Errorf("%s is no target: %s", line, output)
			}
		default:
			t.Errorf("%q is a command of another program; show it in a block that is run", line)
		}
	}
}

// printed reports whether a command printed what a page says: the same but for
// ids, times and widths, with anything in the place of "…".
func printed(page, output string) bool {
	pattern := regexp.QuoteMeta(form(page))
	pattern = strings.ReplaceAll(pattern, "\n…\n", "\n(?s:.*)\n")
	pattern = strings.ReplaceAll(pattern, "…", "(?s:.*)")
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(form(output))
}

var (
	link    = regexp.MustCompile(`\]\(([^):]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// checkLinks sees that the files and headings are there that a page links to.
func checkLinks(t *testing.T, page, text string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		path, anchor, _ := strings.Cut(m[1], "#")
		target := page
		if path != "" {
			target = filepath.Join(filepath.Dir(page), path)
		}
		if _, err := os.Stat(target); err != nil {
			t.Errorf("%s links to %s: %v", filepath.Base(page), m[1], err)
			continue
		}
		if anchor == "" {
			continue
		}
		found := false
		for _, h := range heading.FindAllStringSubmatch(string(read(t, target)), -1) {
			found = found || strings.ReplaceAll(strings.ToLower(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(h[1], "")), " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s links to %s, and there is no such heading", filepath.Base(page), m[1])
		}
	}
}
