//go:build bench

package bench

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"text/template"
	"time"

	"jobd/internal/e2e/rig"
)

//go:embed benchmarks.md.tmpl
var pageText string

// A page collects what was measured, and is what the template is filled with.
type page struct {
	Machine  string // processor, memory, disk, kernel
	Versions string
	Date     string
	Load     string // of the machine, before and after
	Aims     []aim
	tables   map[string]string

	limit  limit
	rates  []bar
	curves []curve
}

// An aim is a figure that has to be reached.
type aim struct {
	What, Want, Got string
	Met             bool
}

// limit holds what parts compare with.
type limit struct{ fsync, fork sample }

func newPage(t testing.TB) *page {
	t.Helper()
	return &page{
		Machine: strings.Join([]string{
			fmt.Sprintf("%d × %s", runtime.NumCPU(), fact("/proc/cpuinfo", "model name")),
			strings.TrimSpace(fact("/proc/meminfo", "MemTotal")),
			"Linux " + version("uname", "-r"),
			fileSystem(),
		}, ", "),
		Versions: strings.Join([]string{
			"jobd " + version("git", "-C", rootOf(t), "describe", "--tags", "--always", "--dirty"), runtime.Version(),
			"task-spooler " + packaged("task-spooler"), "nq " + packaged("nq"), "Node " + version("node", "--version"),
		}, ", "),
		Date:   time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		Load:   loadAverage(),
		tables: map[string]string{},
	}
}

func rootOf(t testing.TB) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	return root
}

// fact returns the value of a line "name: value".
func fact(file, name string) string {
	raw, _ := os.ReadFile(file)
	for line := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// fileSystem returns the device and the type of the file system that is measured
// on.
func fileSystem() string { return version("findmnt", "-nT", rig.Base(), "-o", "SOURCE,FSTYPE") }

func packaged(name string) string { return version("dpkg-query", "-W", "-f", "${Version}", name) }

func loadAverage() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(raw), " ")
	return one
}

// table adds a table of Markdown, by the name that the template has for it.
func (p *page) table(name string, head []string, rows ...[]string) {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	b.WriteString("| --- |" + strings.Repeat(" ---: |", len(head)-1) + "\n")
	for _, cells := range rows {
		line(cells)
	}
	p.tables[name] = b.String()
}

func (p *page) aim(what, want, got string, met bool) {
	p.Aims = append(p.Aims, aim{what, want, got, met})
}

// finish notes how loaded the machine is at the end.
func (p *page) finish(testing.TB) { p.Load += " before and " + loadAverage() + " after" }

// Table is for the template; a part that was not run has none.
func (p *page) Table(name string) string {
	if text, ok := p.tables[name]; ok {
		return text
	}
	return "(not measured)\n"
}

func (p *page) render(t testing.TB) string {
	t.Helper()
	parsed, err := template.New("benchmarks.md").Parse(pageText)
	must(t, err)
	var b strings.Builder
	must(t, parsed.Execute(&b, p))
	return b.String()
}

// write puts the page and its plots in place.
func (p *page) write(t testing.TB, file string) {
	t.Helper()
	plots := strings.TrimSuffix(file, ".md")
	must(t, os.MkdirAll(plots, 0o755))
	must(t, plotRates(p.rates, filepath.Join(plots, "rates.svg")))
	must(t, plotCurves(p.curves, filepath.Join(plots, "stored.svg")))
	must(t, os.WriteFile(file, []byte(p.render(t)), 0o644))
}
