package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"jobd/internal/e2e/rig"
)

const (
	sdk      = "github.com/modelcontextprotocol/go-sdk"
	database = "modernc.org/sqlite"
	detach   = "github.com/sevlyar/go-daemon"
	yaml     = "github.com/goccy/go-yaml"
)

// A program stays small and cannot do what is not its duty by what it does not
// link.
func TestPrograms_LinkOnlyWhatTheirDutyNeeds(t *testing.T) {
	forbidden := map[string][]string{
		"jobd/cmd/mcp-stdio": {database, detach, yaml, "database/sql",
			"jobd/internal/jobs", "jobd/internal/sqlite", "jobd/internal/shim", "jobd/internal/jobfile"},
		"jobd/cmd/jobd": {sdk,
			"jobd/internal/mcptasks", "jobd/internal/stdio", "jobd/internal/frontend"},
		"jobd/cmd/jobd-shim": {sdk, database, detach, yaml, "database/sql", "net/http",
			"jobd/internal/ipc", "jobd/internal/sqlite", "jobd/internal/frontend", "jobd/internal/mcptasks", "jobd/internal/stdio", "jobd/internal/jobfile"},
	}
	for _, goos := range []string{"linux", "darwin"} {
		for program, names := range forbidden {
			t.Run(goos+"/"+program, func(t *testing.T) {
				for _, p := range list(t, goos, "-deps", program) {
					for _, name := range names {
						if within(p.ImportPath, name) {
							t.Errorf("%s links %s", program, p.ImportPath)
						}
					}
				}
			})
		}
	}
}

// Imports point at the domain or at nothing. What a package may import of
// this module is listed here; a package that is not listed may import none
// but those below the same name.
func TestPackages_ImportOnlyWhatTheDesignAllows(t *testing.T) {
	allowed := map[string][]string{
		"jobd/internal/clock":    {"jobd/internal/jobs"},
		"jobd/internal/sqlite":   {"jobd/internal/jobs"},
		"jobd/internal/shim":     {"jobd/internal/jobs", "jobd/internal/clock", "jobd/internal/config"},
		"jobd/internal/jobfile":  {"jobd/internal/jobs"},
		"jobd/internal/form":     {"jobd/internal/jobs"},
		"jobd/internal/frontend": {"jobd/internal/caller", "jobd/internal/ipc", "jobd/internal/mcptasks", "jobd/internal/stdio", "jobd/internal/config"},
		// A server for the conformance suite: the front end, over HTTP.
		"jobd/internal/frontend/conformancefront": {"jobd/internal/caller", "jobd/internal/ipc", "jobd/internal/mcptasks/httpfront", "jobd/internal/config"},
		"jobd/cmd/mcp-stdio":                      {"jobd/internal/caller", "jobd/internal/frontend", "jobd/internal/ipc", "jobd/internal/stdio", "jobd/internal/mcptasks", "jobd/internal/config"},
		"jobd/cmd/jobd-shim":                      {"jobd/internal/shim", "jobd/internal/clock", "jobd/internal/config"},
	}
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range list(t, goos, "./...") {
			for _, imported := range p.Imports {
				if within(imported, "jobd") && p.ImportPath != "jobd/cmd/jobd" && !slices.Contains(allowed[p.ImportPath], imported) && top(imported) != top(p.ImportPath) {
					t.Errorf("%s: %s imports %s", goos, p.ImportPath, imported)
				}
				if p.ImportPath == "jobd/internal/jobs" && strings.Contains(imported, ".") {
					t.Errorf("%s: the domain imports %s, which is not of the standard library", goos, imported)
				}
			}
		}
	}
}

// The protocol and the domain do not know each other; one program joins them.
func TestProtocolAndDomain_MeetOnlyInTheDaemon(t *testing.T) {
	for _, p := range list(t, "linux", "./...") {
		if slices.Contains(p.Imports, "jobd/internal/ipc") && slices.Contains(p.Imports, "jobd/internal/jobs") && p.ImportPath != "jobd/cmd/jobd" {
			t.Errorf("%s imports both the protocol and the domain", p.ImportPath)
		}
	}
}

// pkg is what "go list -json" says of a package, tests left out.
type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, goos string, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	cmd.Dir = rig.Root(t)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	var packages []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("reading what go list printed: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatalf("go list %s found nothing", strings.Join(args, " "))
	}
	return packages
}

// top is the package below internal or cmd that a package belongs to.
func top(path string) string {
	parts := strings.SplitN(path, "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// within reports whether a package is root or below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}
