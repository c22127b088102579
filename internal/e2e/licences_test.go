package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated pages")

// TestLicences_AreListed holds docs/licences.md against the modules that the
// three programs are linked from, and refuses a licence that is not known to
// allow it.
func TestLicences_AreListed(t *testing.T) {
	const page = "../../docs/licences.md"
	want := licencesPage(t)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not list the modules as they are; run: go test ./internal/e2e -run Licences -update", page)
	}
}

func licencesPage(t *testing.T) string {
	t.Helper()
	rows := map[string]string{}
	for _, goos := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", "./cmd/...")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) == 3 && rows[f[0]] == "" {
				rows[f[0]] = fmt.Sprintf("| %s | %s | %s |", f[0], f[1], licence(t, f[2]))
			}
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		lines = append(lines, row)
	}
	slices.Sort(lines)
	return "# Licences\n\njobd is under the MIT licence (`LICENSE`). Its programs are linked from these modules, besides the Go standard library (BSD-3-Clause).\n" +
		"Written by `go test ./internal/e2e -run Licences -update`.\n\n| module | version | licence |\n| --- | --- | --- |\n" + strings.Join(lines, "\n") + "\n"
}

// licence names the licence of the module in dir by what is particular to its
// text.
func licence(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "[Ll][Ii][Cc][Ee][Nn][SsCc][Ee]*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no licence file", dir)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	var found []string
	for _, known := range []struct{ name, mark string }{
		{"Apache-2.0", "Apache License Version 2.0"},
		{"MIT-0", "MIT No Attribution"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"BSD-3-Clause", "Neither the name"},
		{"BSD-3-Clause", "The names of the authors may not be used"},
		{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
		{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	} {
		if strings.Contains(text, known.mark) && !slices.Contains(found, known.name) && !covered(found, known.name) {
			found = append(found, known.name)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the licence in %s is not known", files[0])
	}
	return strings.Join(found, " and ")
}

// covered reports whether a licence that was found holds the text of this one.
func covered(found []string, name string) bool {
	return name == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause") || name == "MIT" && slices.Contains(found, "MIT-0")
}
