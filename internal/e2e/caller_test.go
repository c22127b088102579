//go:build e2e

package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

const secret = "s3cr3t-value-of-the-caller"

// tells prints what a job got of its caller.
const tells = `pwd; umask; command -v mytool; echo "$FLAVOUR $TOKEN"; ulimit -n; env | cut -d= -f1 | sort | tr '\n' ' '; sleep 2`

// A job runs as its caller does, whoever started the daemon.
func TestJob_RunsAsItsCallerDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	// Somebody else starts the daemon, as cron would.
	cron := exec.CommandContext(t.Context(), "sh", "-c", `umask 077; ulimit -n 512; exec "$0" start`, r.Bin+"/jobd")
	cron.Dir, cron.Env = "/", []string{"HOME=" + r.Home, "JOBD_HOME=" + r.State, "PATH=/usr/bin:/bin", "CRON=yes"}
	if out := rig.Run(t, cron); out.Code != 0 {
		t.Fatalf("starting the daemon: %s%s", out.Stdout, out.Stderr)
	}

	tools, dir := r.Dir+"/tools", r.Project+"/sub"
	for _, d := range []string{tools, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tools+"/mytool", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	caller := []string{"PATH=" + tools + ":/usr/bin:/bin", "FLAVOUR=vanilla", "TOKEN=" + secret,
		"CLAUDE_PROJECT_DIR=" + r.Project, "CLAUDE_CODE_SESSION_ID=session", "CLAUDECODE=1", "AI_AGENT=claude",
		"CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_CODE_MESSAGING_TOKEN=private", "CLAUDE_CONFIG_DIR=/kept"}
	check := func(t *testing.T, output, limit string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(output), "\n")
		if len(lines) != 6 {
			t.Fatalf("the job printed %q", output)
		}
		for i, want := range []string{dir, "0027", tools + "/mytool", "vanilla " + secret, limit} {
			if lines[i] != want {
				t.Errorf("the job printed %q, not %q", lines[i], want)
			}
		}
		names := strings.Fields(lines[5])
		for _, name := range []string{"HOME", "JOBD_JOB_ID", "JOBD_SOCKET", "JOBD_HOME"} {
			if !slices.Contains(names, name) {
				t.Errorf("the job has no %s", name)
			}
		}
		for _, name := range []string{"CRON", "CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_MESSAGING_TOKEN", "_GO_DAEMON"} {
			if slices.Contains(names, name) {
				t.Errorf("the job has %s", name)
			}
		}
	}

	t.Run("from Claude Code", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", `umask 027; ulimit -n 300; exec "$0"`, r.Bin+"/mcp-stdio")
		cmd.Dir, cmd.Env = r.Project, r.Env(caller...)
		front := rig.StartFront(t, cmd)
		id := front.Run(map[string]any{"command": tells, "cwd": "sub"})
		result := front.UntilDone(30*time.Second, id)
		if result.Result == nil || result.Result.IsError {
			t.Fatalf("the task is %+v", result)
		}
		check(t, r.Jobd("logs", id), "300")
	})
	t.Run("from a shell", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 027; ulimit -n 301; exec "$0" run --wait -- sh -c "$1"`, r.Bin+"/jobd", tells)
		cmd.Dir, cmd.Env = dir, r.Env(caller...)
		out := rig.Run(t, cmd)
		if out.Code != 0 {
			t.Fatalf("jobd run ended with %d: %s", out.Code, out.Stderr)
		}
		check(t, out.Stdout, "301")
	})
}

// The caller's environment may hold secrets: it is on disk while the job waits
// for its launch, readable by nobody else, and nowhere after that.
func TestJob_EnvironmentIsOnDiskOnlyUntilTheLaunch(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte("max_running: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	front := r.Front("session", "TOKEN="+secret)
	first := front.Run(map[string]any{"command": "sleep 4; echo done", "env": map[string]any{"OTHER": secret + "-in-env"}})
	r.UntilState(10*time.Second, first, "running")
	if files := holding(t, r.State, secret); len(files) != 0 {
		t.Errorf("the first job runs, and its environment is in %v", files)
	}
	second := front.Run(map[string]any{"command": "sleep 1; echo done"})
	files := holding(t, r.State, secret)
	if len(files) != 1 || filepath.Base(files[0]) != "env" || !strings.Contains(files[0], second) {
		t.Errorf("while the second job is queued, the environment is in %v", files)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v)", f, info.Mode(), err)
		}
	}
	front.UntilDone(30*time.Second, second)
	if files := holding(t, r.State, secret); len(files) != 0 {
		t.Errorf("all jobs have ended, and their environment is in %v", files)
	}
	private(t, r.State)
}

// private checks that nobody else can read what jobd keeps.
func private(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// holding lists the files below a directory that hold a text.
func holding(t *testing.T, dir, text string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			files = append(files, path)
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ignoreGone forgives files that vanish during a walk.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
