//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A shell is one bash in which commands are run in turn, as in a terminal that
// stays open: variables and the directory last.
type shell struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Reader
	marks int
}

func newShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, "bash", "--norc", "--noprofile", "-s")
	cmd.Dir, cmd.Env = dir, env
	cmd.WaitDelay = time.Second
	s := &shell{t: t}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.in.Close()
		_ = cmd.Wait()
		cancel()
	})
	return s
}

// run runs one command, which may have several lines, and returns what it wrote
// on standard output and error, and its exit code.
func (s *shell) run(command string) (output string, code int) {
	s.t.Helper()
	s.marks++
	mark := fmt.Sprintf("--e2e-mark-%d--", s.marks)
	// The input of the commands is not that of the shell.
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null\nprintf '\\n%s %%d\\n' $?\n", command, mark); err != nil {
		s.t.Fatalf("the shell has ended before %s", command)
	}
	var b strings.Builder
	for {
		line, err := s.lines.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, mark+" "); ok {
			code, err = strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				s.t.Fatalf("the shell wrote %q", line)
			}
			return strings.TrimSuffix(b.String(), "\n"), code
		}
		b.WriteString(line)
		if err != nil {
			s.t.Fatalf("the shell ended in %s: %v; it wrote %s", command, err, b.String())
		}
	}
}
