package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BuildVersion builds the product into a directory of the rig as another
// version of it would be: with this version's name, and speaking this protocol.
// It returns the directory. Nothing in the checkout is changed.
func (r *Rig) BuildVersion(version string, protocol int) string {
	r.t.Helper()
	root := Root(r.t)
	dir := filepath.Join(r.Dir, "bin-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs are for all
		r.t.Fatal(err)
	}
	source := filepath.Join(root, "internal", "ipc", "protocol.go")
	text, err := os.ReadFile(source)
	if err != nil {
		r.t.Fatal(err)
	}
	const declaration = "const Protocol = 1\n"
	if !strings.Contains(string(text), declaration) {
		r.t.Fatalf("%s does not hold %q", source, declaration)
	}
	changed := filepath.Join(dir, "protocol.go.txt")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), declaration, fmt.Sprintf("const Protocol = %d\n", protocol), 1)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", file, "-ldflags", "-X main.version="+version, "-o", dir+"/",
		"./cmd/mcp-stdio", "./cmd/jobd", "./cmd/jobd-shim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("building version %s: %v\n%s", version, err, out)
	}
	return dir
}

// Install puts the programs of a directory in the place of those in Bin, as
// "make install" does: each by a rename over the old one, which those who run
// it keep. Where Bin is not a directory of the rig's own it becomes one first.
func (r *Rig) Install(from string) {
	r.t.Helper()
	if own := filepath.Join(r.Dir, "bin"); r.Bin != own {
		if err := os.MkdirAll(own, 0o755); err != nil { //nolint:gosec // programs are for all
			r.t.Fatal(err)
		}
		r.Bin = own
	}
	for _, name := range []string{"mcp-stdio", "jobd", "jobd-shim"} {
		program, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			r.t.Fatal(err)
		}
		to := filepath.Join(r.Bin, name)
		if err := os.WriteFile(to+".new", program, 0o755); err != nil { //nolint:gosec // a program
			r.t.Fatal(err)
		}
		if err := os.Rename(to+".new", to); err != nil {
			r.t.Fatal(err)
		}
	}
}

// With is the same installation with the programs of another directory.
func (r *Rig) With(t testing.TB, bin string) *Rig {
	other := r.For(t)
	other.Bin = bin
	return other
}
