//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// Whoever needs the daemon starts it. However many do so at once, by the
// command line or by mcp-stdio, there is one, and each gets its answer.
func TestColdStarts_GiveOneDaemon(t *testing.T) {
	const rounds, starters = 20, 50
	r := rig.New(t)
	for round := range rounds {
		outcomes := make([]rig.Outcome, starters)
		wants := make([]string, starters)
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range starters {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var cmd *exec.Cmd
			switch i % 5 {
			case 0: // its input ends at once: it still answers
				cmd = r.Command(ctx, "mcp-stdio")
				cmd.Stdin = strings.NewReader(callOnly("list_jobs") + "\n")
				wants[i] = `"id":1,`
			case 1:
				cmd = r.Command(ctx, "jobd", "run", "--name", "starter", "--", "true")
			default:
				cmd = r.Command(ctx, "jobd", "start")
			}
			all.Go(func() {
				<-begin
				outcomes[i] = rig.Run(t, cmd)
			})
		}
		close(begin)
		all.Wait()

		for i, out := range outcomes {
			if out.Code != 0 || !strings.Contains(out.Stdout, wants[i]) || strings.Contains(out.Stdout, `"error"`) {
				t.Errorf("round %d: starter %d ended with %d: %s%s", round, i, out.Code, out.Stdout, out.Stderr)
			}
		}
		daemon := r.Daemon()
		// A starter is gone before it returns, a loser of the race too.
		var others []string
		rig.Until(t, 10*time.Second, "one process of jobd is left", func() bool {
			others = nil
			for _, p := range r.Processes("jobd") {
				if p.PID != daemon {
					others = append(others, p.String())
				}
			}
			return len(others) == 0
		})
		if now := r.Daemon(); now != daemon {
			t.Errorf("round %d: the daemon was %d and is %d", round, daemon, now)
		}
		if t.Failed() {
			t.FailNow()
		}
		// Every second round it dies, and leaves its socket and lock files.
		if round%2 == 0 {
			rig.Kill(t, daemon)
		} else {
			r.Jobd("stop")
			rig.Until(t, 10*time.Second, "the daemon has ended", func() bool { return !rig.Alive(daemon) })
		}
	}
	jobs := r.Jobs()
	if len(jobs) != rounds*starters/5 {
		t.Errorf("there are %d jobs, not %d", len(jobs), rounds*starters/5)
	}
	for _, job := range jobs {
		if done := r.UntilState(30*time.Second, job.ID, "succeeded"); done.Code() != 0 {
			t.Errorf("job %s ended with %d", job.ID, done.Code())
		}
	}
}

// callOnly is a whole request to call a tool without arguments.
func callOnly(tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool)
}

// The command that starts the daemon returns, and the daemon holds nothing of
// it: no pipe, no directory, no terminal, no session.
func TestDaemon_HoldsNothingOfItsStarter(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	// A shell that reads a pipe to its end waits for all who hold the pipe.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", `exec 9>leak; x=$("$0" start 2>&1); echo "$?"`, r.Bin+"/jobd")
	shell.Dir, shell.Env = r.Project, r.Env()
	if out := rig.Run(t, shell); out.Code != 0 || !strings.HasPrefix(out.Stdout, "0\n") {
		t.Fatalf("the shell ended with %d: %s%s", out.Code, out.Stdout, out.Stderr)
	}
	daemon := r.Daemon()
	fds, err := exec.CommandContext(ctx, "ls", "-l", fmt.Sprintf("/proc/%d/fd", daemon)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(fds), "\n") {
		if strings.Contains(line, "leak") || strings.Contains(line, "pipe:") && strings.Contains(line, " 1 ->") || strings.Contains(line, "/dev/pts") {
			t.Errorf("the daemon holds %s", line)
		}
	}
	cwd, err := exec.CommandContext(ctx, "readlink", fmt.Sprintf("/proc/%d/cwd", daemon)).Output()
	if dir := strings.TrimSpace(string(cwd)); err != nil || dir != "/" && dir != r.State {
		t.Errorf("the daemon's directory is %q (%v)", dir, err)
	}
	for _, p := range r.Processes("jobd") {
		if p.Session != p.PID {
			t.Errorf("the daemon is in the session of another: %s", p)
		}
	}
}
