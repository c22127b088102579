//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/claudecode"
	"jobd/internal/e2e/rig"
)

// Each page of docs is tried out by somebody who has just installed jobd: what
// stands behind "$ " in a block "console" is typed into one shell, in order
// ("> " goes on with the line before), and prints what is printed below it,
// where "…" stands for anything. The calls in a block "sh" are understood.
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
			t.Parallel()
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
	console := blocks(text, "console")
	if name == "questions" {
		console = nil // its commands are played in conversations; see question_docs_test.go
	}
	for _, block := range console {
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
	for _, block := range blocks(text, "sh") {
		understood(t, i, block)
	}
}

// understood has a shell run a block in which jobd, make and claude only write
// down how they are called, and checks each call: jobd's and claude's flags by
// their help, make's targets by what would be done.
func understood(t *testing.T, i *installation, block string) {
	t.Helper()
	dir, err := os.MkdirTemp(i.rig.Dir, "block-")
	if err != nil {
		t.Fatal(err)
	}
	// No other program is there, and nothing ends the block before its end.
	stubs := `note() { printf '%s\0' "$@" >>"$HOME/calls"; printf '\n' >>"$HOME/calls"; }
		jobd() { note jobd "$@"; echo 3f2a9c1d; }; make() { note make "$@"; }; claude() { note claude "$@"; }
		exit() { :; }; wait() { :; }
	`
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, bash, "--norc", "-c", stubs+block)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + dir}
	if out := rig.Run(t, cmd); strings.Contains(out.Stderr, "syntax error") || ctx.Err() != nil {
		t.Errorf("a shell does not understand %s: %s", block, out.Stderr)
	}
	calls := strings.Split(strings.TrimSuffix(string(read(t, dir+"/calls")), "\x00\n"), "\x00\n")
	for _, call := range calls {
		args := strings.Split(call, "\x00")
		var check *exec.Cmd
		switch args[0] {
		case "make":
			check = exec.CommandContext(ctx, "make", append([]string{"-n", "-C", rig.Root(t)}, args[1:]...)...)
		case "claude":
			check = exec.CommandContext(ctx, claudecode.Executable(t), append(args[1:], "--help")...)
		default:
			at := len(args)
			if n := slices.Index(args, "--"); n > 0 {
				at = n
			}
			check = exec.CommandContext(ctx, i.lib+"/jobd", slices.Insert(slices.Clone(args[1:]), at-1, "--help")...)
		}
		check.Dir, check.Env = i.rig.Project, i.environ()
		if out := rig.Run(t, check); out.Code != 0 {
			t.Errorf("%q is not understood: %s%s", args, out.Stdout, out.Stderr)
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
