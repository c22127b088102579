package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"jobd/internal/caller"
	"jobd/internal/config"
)

// The main job: a command that is started over MCP outlives the front end that
// started it and the daemon, runs once, and its result comes to the next front
// end. A play goes through it with the real programs in a directory of its own.
type play struct {
	getenv func(string) string

	dir     string // holds everything; "" = nothing to clear
	bin     string // the programs
	session string
	front   *front
	task    string
	daemons []int // every process that was the daemon
}

// The time that a step may take, and how often a state that must come is
// looked for.
const (
	playStep = 30 * time.Second
	playPoll = 50 * time.Millisecond
)

// doneMark is what the job prints last.
const doneMark = "jobd-doctor-done"

// script is the job: it notes that it runs, waits for leave to end, and ends
// by itself if the directory goes.
const script = `echo run >>"$1/runs"
n=0
while [ ! -e "$1/leave" ] && [ -d "$1" ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done
echo ` + doneMark

// steps returns the acts in their order.
func (p *play) steps() []step {
	bounded := func(name string, f func(context.Context) (string, error)) step {
		return step{name, func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, playStep)
			defer cancel()
			remark, err := f(ctx)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("it took longer than %v: %w", playStep, err)
			}
			return remark, p.explain(err)
		}}
	}
	return []step{
		bounded("start a front end", p.setUp),
		bounded("start a job over MCP", p.startJob),
		bounded("kill -9 the front end", p.killFront),
		bounded("kill -9 the daemon", p.killDaemon),
		bounded("start another front end", p.secondFront),
		bounded("get the result of the job", p.getResult),
		bounded("the job ran once", p.ranOnce),
		bounded("leave nothing behind", p.leave),
	}
}

// explain gives an error of the play the daemon's log as its remedy.
func (p *play) explain(err error) error {
	var r *remedied
	if err == nil || errors.As(err, &r) {
		return err
	}
	remedy := "this is a fault of jobd, or of the machine it runs on"
	if lines := lastLogLines(filepath.Join(p.dir, "home", "jobd.log"), 5); lines != "" {
		remedy += "; the end of the daemon's log:\n" + lines
	}
	return &remedied{err: err, remedy: remedy}
}

func lastLogLines(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// setUp makes the directory, and starts the first front end.
func (p *play) setUp(ctx context.Context) (string, error) {
	own, err := config.Sibling("jobd")
	if err != nil {
		return "", err
	}
	p.bin = filepath.Dir(own)
	dir, err := os.MkdirTemp("", "jobd-doctor-")
	if err != nil {
		return "", fault("make room in it, or set TMPDIR to another directory", "no directory can be made for temporary files: %w", err)
	}
	if p.dir = dir; caller.Real(dir) != dir {
		p.dir = caller.Real(dir)
	}
	p.session = filepath.Base(p.dir)
	for _, sub := range []string{"home", "project"} {
		if err := os.Mkdir(filepath.Join(p.dir, sub), 0o700); err != nil {
			return "", fmt.Errorf("making a directory: %w", err)
		}
	}
	// A job is a task at once, however quick it is.
	if err := os.WriteFile(filepath.Join(p.dir, "home", "config.yaml"), []byte("answer_within: 0s\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	return "it offers run_job", p.newFront(ctx)
}

// newFront starts a front end and sees that it offers run_job.
func (p *play) newFront(ctx context.Context) error {
	f, err := startFront(filepath.Join(p.bin, "mcp-stdio"), filepath.Join(p.dir, "project"), p.environ())
	if err != nil {
		return err
	}
	p.front = f
	var who struct {
		Meta struct {
			Server struct {
				Version string `json:"version"`
			} `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := f.call(ctx, "server/discover", nil, &who); err != nil {
		return err
	}
	// One that was built by hand has no name to compare.
	if v := who.Meta.Server.Version; v != buildVersion() && v != "devel" {
		return fault("install all programs of one version: make install", "the program mcp-stdio is of version %s, this program of %s", v, buildVersion())
	}
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := f.call(ctx, "tools/list", nil, &list); err != nil {
		return err
	}
	for _, tool := range list.Tools {
		if tool.Name == "run_job" {
			return nil
		}
	}
	return errors.New("the front end does not offer the tool run_job")
}

// environ is the environment of the play: this one's, in another home and
// outside of any job or session.
func (p *play) environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "JOBD_") && !strings.HasPrefix(name, "CLAUDE") {
			env = append(env, kv)
		}
	}
	return append(env, config.EnvHome+"="+filepath.Join(p.dir, "home"), "CLAUDE_PROJECT_DIR="+filepath.Join(p.dir, "project"),
		"CLAUDE_CODE_SESSION_ID="+p.session, "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDECODE=1")
}

func (p *play) startJob(ctx context.Context) (string, error) {
	var task struct {
		ResultType string          `json:"resultType"`
		TaskID     string          `json:"taskId"`
		Content    json.RawMessage `json:"content"`
	}
	err := p.front.call(ctx, "tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{
		"argv": []string{"/bin/sh", "-c", script, "sh", p.dir}, "name": "doctor", "timeout_seconds": 120,
	}}, &task)
	if err != nil {
		return "", err
	}
	if task.ResultType != "task" || task.TaskID == "" {
		return "", fmt.Errorf("run_job did not give a task but %q: %s", task.ResultType, task.Content)
	}
	p.task = task.TaskID
	err = until(ctx, func() error {
		if p.runs() > 0 {
			return nil
		}
		t, err := p.getTask(ctx)
		if err == nil && t.Status != "working" {
			return hopeless{fmt.Errorf("the job ended before it ran: %s", t.StatusMessage)}
		}
		return errors.Join(err, errors.New("the job has not been started"))
	})
	return "task " + shortID(p.task), err
}

// runs counts how often the job was started.
func (p *play) runs() int {
	b, err := os.ReadFile(filepath.Join(p.dir, "runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

func (p *play) killFront(context.Context) (string, error) {
	pid := p.front.cmd.Process.Pid
	p.front.kill()
	p.front = nil
	return fmt.Sprintf("process %d", pid), nil
}

func (p *play) killDaemon(ctx context.Context) (string, error) {
	pid, err := p.daemon(ctx)
	if err != nil {
		return "", err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return "", fmt.Errorf("killing process %d: %w", pid, err)
	}
	return fmt.Sprintf("process %d", pid), nil
}

// daemon returns the process of the daemon that answers.
func (p *play) daemon(ctx context.Context) (int, error) {
	out, err := p.jobd(ctx, "version", "--json")
	if err != nil {
		return 0, err
	}
	var v versions
	if err := json.Unmarshal(out, &v); err != nil || v.Daemon == nil {
		return 0, fmt.Errorf("no daemon answers; jobd version --json says: %s", out)
	}
	p.daemons = append(p.daemons, v.Daemon.PID)
	return v.Daemon.PID, nil
}

// jobd runs the command line in the play's home.
func (p *play) jobd(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "jobd"), args...)
	cmd.Env = p.environ()
	cmd.Dir = p.dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, fmt.Errorf("jobd %s: %s", strings.Join(args, " "), strings.TrimPrefix(strings.TrimSpace(string(exit.Stderr)), "jobd: "))
	}
	if err != nil {
		return out, fmt.Errorf("running jobd %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// A playTask is the answer to tasks/get.
type playTask struct {
	Status        string `json:"status"`
	StatusMessage string `json:"statusMessage"`
	Result        *struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
}

func (p *play) getTask(ctx context.Context) (playTask, error) {
	var t playTask
	err := p.front.call(ctx, "tasks/get", map[string]any{"taskId": p.task}, &t)
	return t, err
}

func (p *play) secondFront(ctx context.Context) (string, error) {
	if err := p.newFront(ctx); err != nil {
		return "", err
	}
	t, err := p.getTask(ctx)
	if err != nil {
		return "", err
	}
	if t.Status != "working" {
		return "", fmt.Errorf("the task should be working and is %s: %s", t.Status, t.StatusMessage)
	}
	pid, err := p.daemon(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the task is working, the daemon is process %d", pid), nil
}

func (p *play) getResult(ctx context.Context) (string, error) {
	if err := os.WriteFile(filepath.Join(p.dir, "leave"), nil, 0o600); err != nil {
		return "", fmt.Errorf("letting the job end: %w", err)
	}
	var t playTask
	err := until(ctx, func() (err error) {
		switch t, err = p.getTask(ctx); {
		case err != nil:
			return err
		case t.Status == "working":
			return errors.New("the task is still working")
		case t.Status != "completed":
			return hopeless{fmt.Errorf("the task is %s: %s", t.Status, t.StatusMessage)}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if t.Result == nil || t.Result.IsError {
		return "", fmt.Errorf("the job did not succeed: %s", t.StatusMessage)
	}
	for _, block := range t.Result.Content {
		if strings.Contains(block.Text, doneMark) {
			return "with the output of the job", nil
		}
	}
	return "", errors.New("the result lacks the output of the job")
}

func (p *play) ranOnce(context.Context) (string, error) {
	if n := p.runs(); n != 1 {
		return "", fmt.Errorf("it ran %d times", n)
	}
	return "it was started one time", nil
}

func (p *play) leave(ctx context.Context) (string, error) {
	if err := p.clear(ctx); err != nil {
		return "", err
	}
	return "no process and no file is left", nil
}

// clear ends every process of the play and removes its files. It may be called
// at any time, and again.
func (p *play) clear(ctx context.Context) error {
	if p.dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, playStep)
	defer cancel()
	if p.front != nil {
		p.front.close()
		p.front = nil
	}
	if _, err := p.jobd(ctx, "stop", "--kill-jobs"); err != nil {
		// Whoever does not answer is killed; the job ends when its directory goes.
		for _, pid := range livingDaemons(p.dir, p.daemons) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	err := until(ctx, func() error {
		if left := leftBehind(p.dir); len(left) > 0 {
			return fmt.Errorf("the processes %v have not ended", left)
		}
		return nil
	})
	if rerr := os.RemoveAll(p.dir); rerr != nil {
		return errors.Join(err, fmt.Errorf("removing %s: %w", p.dir, rerr))
	}
	p.dir = ""
	return err
}

// livingDaemons returns those of the processes that belong to the play still.
func livingDaemons(dir string, pids []int) []int {
	var living []int
	for _, pid := range leftBehind(dir) {
		for _, d := range pids {
			if d == pid {
				living = append(living, pid)
			}
		}
	}
	return living
}

// A hopeless error will not mend with time.
type hopeless struct{ error }

// until repeats a look until it finds nothing wrong, or something hopeless, or
// ctx ends; then it returns what was wrong last.
func until(ctx context.Context, look func() error) error {
	for {
		err := look()
		var end hopeless
		switch {
		case err == nil:
			return nil
		case errors.As(err, &end):
			return end.error
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(playPoll):
		}
	}
}
