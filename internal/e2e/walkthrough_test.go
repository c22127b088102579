package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/config/limits"
	"jobd/internal/e2e/rig"
)

// The tour leads past files that are there, in ten steps, and its table of
// imports is that of the packages as they are.
func TestWalkthrough_IsTrue(t *testing.T) {
	root := rig.Root(t)
	path := filepath.Join(root, "docs", "walkthrough.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	files := regexp.MustCompile("`((?:cmd|internal)/[\\w/.-]+\\.go)`").FindAllStringSubmatch(text, -1)
	if len(files) < 25 {
		t.Errorf("it names %d files", len(files))
	}
	for _, m := range files {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("it names %s: %v", m[1], err)
		}
	}
	if n := len(regexp.MustCompile(`(?m)^\d+\. \*\*`).FindAllString(text, -1)); n != 10 {
		t.Errorf("it has %d steps", n)
	}

	const begin, end = "<!-- imports -->\n", "<!-- end of imports -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("it has no place for the table of imports")
	}
	want := before + begin + importTable(t) + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("its table of imports is not that of the code; go test ./internal/e2e -run Walkthrough -update (-want +got):\n%s", diff)
	}
}

// importTable says of each package that is linked into a program what of this
// module it imports.
func importTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| package | imports |\n| --- | --- |\n")
	packages := list(t, "linux", "-deps", "./cmd/...")
	slices.SortFunc(packages, func(a, b pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	for _, p := range packages {
		if !within(p.ImportPath, "jobd") {
			continue
		}
		var own []string
		for _, imported := range p.Imports {
			if within(imported, "jobd") {
				own = append(own, "`"+strings.TrimPrefix(strings.TrimPrefix(imported, "jobd/"), "internal/")+"`")
			}
		}
		slices.Sort(own)
		if len(own) == 0 {
			own = []string{"nothing"}
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimPrefix(p.ImportPath, "jobd/"), strings.Join(own, ", "))
	}
	return b.String()
}

// The operator's page shows every key of config.yaml, with its default.
func TestOperating_ShowsEverySetting(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(rig.Root(t), "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "```yaml\n")
	block, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("it shows no config.yaml")
	}
	got, err := limits.Parse("operating.md", []byte(block))
	if err != nil {
		t.Fatal(err)
	}
	want := limits.Default()
	want.MaxRunning, got.Notify = got.MaxRunning, nil // the one depends on the machine, the other is empty
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what it calls defaults are not (-want +got):\n%s", diff)
	}
	_, err = limits.Parse("x", []byte("qqqqqqqqqqqqqqqqqqqq: 1\n"))
	if err == nil {
		t.Fatal("there is a setting of that name")
	}
	_, names, ok := strings.Cut(err.Error(), "; there are ")
	if !ok {
		t.Fatalf("an unknown setting is told as %v", err)
	}
	for name := range strings.SplitSeq(names, ", ") {
		if !strings.Contains("\n"+block, "\n"+name+": ") {
			t.Errorf("it does not show %s", name)
		}
	}
}
