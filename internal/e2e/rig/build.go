// Package rig gives an end-to-end test the real binaries and an installation
// of its own to run them in: a home folder, a state directory, a project. It
// talks to them as the world does: by the command line, by raw lines to
// mcp-stdio, by the frozen status request on the socket, and by signals.
package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Root is the folder of the checkout, found from the working directory of the
// test.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.mod above the working directory (%v)", err)
	return ""
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// Bin returns a directory with mcp-stdio, jobd, jobd-shim and the test's own
// tap. It builds them once for a run of the tests; with JOBD_RACE=1 the
// product's have the race detector in them. [RemoveBin] removes it. With
// JOBD_BIN it is that directory, as it is.
func Bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("JOBD_BIN"); dir != "" {
		return dir
	}
	built.once.Do(func() {
		root := Root(t)
		built.dir, built.err = os.MkdirTemp("", "jobd-bin-")
		if built.err != nil {
			return
		}
		for _, args := range [][]string{
			{"./cmd/mcp-stdio", "./cmd/jobd", "./cmd/jobd-shim"},
			{"./internal/e2e/tap"},
		} {
			build := []string{"build", "-trimpath", "-o", built.dir + "/"}
			if os.Getenv("JOBD_RACE") == "1" && len(args) > 1 {
				build = append(build, "-race")
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", append(build, args...)...)
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				built.err = fmt.Errorf("building %s: %w\n%s", strings.Join(args, " "), err, out)
				return
			}
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// RemoveBin removes what [Bin] built. TestMain calls it last.
func RemoveBin() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
