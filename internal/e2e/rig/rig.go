package rig

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Rig is one installation: binaries, a home folder, a state directory and a
// project, with nothing of the environment that the test runs in.
type Rig struct {
	t testing.TB
	// Bin holds the binaries; Dir holds the rest.
	Bin, Dir string
	// Home is HOME, State is JOBD_HOME, Project is a folder with a .git in it.
	// State may be set to "": then the state lies where a person has it.
	Home, State, Project string
}

// New makes an installation. When the test ends every process with its
// HOME is ended, and its folder removed; after a failure the
// daemon's log and the processes that were left go to the test's log first.
func New(t testing.TB) *Rig {
	t.Helper()
	bin := Bin(t)
	// Not t.TempDir: the name of a socket is short.
	dir, err := os.MkdirTemp(Base(), "jobd-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	r := &Rig{t: t, Bin: bin, Dir: dir, Home: dir + "/home", State: dir + "/state", Project: dir + "/project"}
	for _, d := range []string{r.Home, r.Project + "/.git"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(r.close)
	return r
}

// Base is the directory that installations are made in: JOBD_BASE, else /tmp.
func Base() string { return cmp.Or(os.Getenv("JOBD_BASE"), "/tmp") }

// For is the same installation for a part of the test, whose failure ends that
// part.
func (r *Rig) For(t testing.TB) *Rig {
	part := *r
	part.t = t
	return &part
}

func (r *Rig) close() {
	// Of binaries with the race detector in them, which goes on after a race.
	if log, err := os.ReadFile(r.StateDir() + "/jobd.log"); err == nil && bytes.Contains(log, []byte("WARNING: DATA RACE")) {
		r.t.Error("the daemon had a data race; its log has the report")
	}
	if r.t.Failed() {
		r.t.Logf("processes left:\n%s", r.processList())
		r.dumpStuck()
		if log, err := os.ReadFile(r.StateDir() + "/jobd.log"); err == nil {
			r.t.Logf("the end of jobd.log:\n%s", log[max(0, len(log)-20000):])
		}
	}
	end("HOME=" + r.Home)
	if r.t.Failed() && os.Getenv("JOBD_KEEP") == "1" {
		r.t.Logf("kept %s", r.Dir)
		return
	}
	if err := os.RemoveAll(r.Dir); err != nil {
		r.t.Errorf("removing %s: %v", r.Dir, err)
	}
}

// dumpStuck makes a daemon that does not answer write its goroutines to its
// log.
func (r *Rig) dumpStuck() {
	if _, err := r.Ask(); err == nil {
		return
	}
	for _, p := range r.Processes("jobd") {
		if p.Session == p.PID && syscall.Kill(p.PID, syscall.SIGQUIT) == nil {
			for range 100 {
				if !Alive(p.PID) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

func (r *Rig) processList() string {
	var b strings.Builder
	for _, p := range Find("HOME=" + r.Home) {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// StateDir is the state directory.
func (r *Rig) StateDir() string {
	if r.State != "" {
		return r.State
	}
	return r.Home + "/.local/state/jobd"
}

// Env is the environment that the rig's commands get, with more on top; a name
// given twice has its last value.
func (r *Rig) Env(more ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + r.Home,
		"LANG=C.UTF-8",
	}
	if r.State != "" {
		env = append(env, "JOBD_HOME="+r.State)
	}
	return append(env, more...)
}

// Command prepares one of the binaries, to be run in the project.
func (r *Rig) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, name), args...)
	cmd.Env, cmd.Dir = r.Env(), r.Project
	return cmd
}

// An Outcome is how a command ended.
type Outcome struct {
	Stdout, Stderr string
	Code           int // -1 where a signal ended it
}

// Try runs jobd and returns how it ended. It may take a minute.
func (r *Rig) Try(args ...string) Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Run(r.t, r.Command(ctx, "jobd", args...))
}

// Run runs a prepared command and returns how it ended.
func Run(t testing.TB, cmd *exec.Cmd) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("running %s: %v", strings.Join(cmd.Args, " "), err)
		return Outcome{Code: -1}
	}
	return Outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Jobd runs jobd, which must succeed, and returns what it printed.
func (r *Rig) Jobd(args ...string) string {
	r.t.Helper()
	out := r.Try(args...)
	if out.Code != 0 {
		r.t.Fatalf("jobd %s ended with %d: %s%s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// A Job is a job as "jobd status --json" prints it. The names are a promise to
// scripts, so they are written down here once more.
type Job struct {
	ID            string     `json:"id"`
	Name          string     `json:"name"`
	Tool          string     `json:"tool"`
	State         string     `json:"state"`
	TaskStatus    string     `json:"task_status"`
	StatusMessage string     `json:"status_message"`
	Project       string     `json:"project"`
	Session       string     `json:"session"`
	Cwd           string     `json:"cwd"`
	PID           int        `json:"pid"`
	ExitCode      *int       `json:"exit_code"`
	Signal        *string    `json:"signal"`
	CreatedAt     time.Time  `json:"created_at"`
	StartedAt     *time.Time `json:"started_at"`
	EndedAt       *time.Time `json:"ended_at"`
	DeliveredAt   *time.Time `json:"delivered_at"`
	OutputBytes   int64      `json:"output_bytes"`
}

// Code is the exit code, -1 where there is none.
func (j Job) Code() int {
	if j.ExitCode == nil {
		return -1
	}
	return *j.ExitCode
}

// Final reports whether the job has ended.
func (j Job) Final() bool { return j.EndedAt != nil }

// Jobs are all jobs, newest first, as the shell sees them.
func (r *Rig) Jobs() []Job {
	r.t.Helper()
	return decodeJobs(r.t, r.Jobd("status", "--all", "--json"))
}

// Job is one job, as the shell sees it.
func (r *Rig) Job(id string) Job {
	r.t.Helper()
	jobs := decodeJobs(r.t, r.Jobd("status", id, "--json"))
	if len(jobs) != 1 {
		r.t.Fatalf("status %s printed %d jobs", id, len(jobs))
	}
	return jobs[0]
}

// decodeJobs reads an array of jobs, or one job alone.
func decodeJobs(t testing.TB, text string) []Job {
	t.Helper()
	var jobs []Job
	if err := json.Unmarshal([]byte(text), &jobs); err != nil {
		t.Fatalf("status --json printed %q: %v", text, err)
	}
	return jobs
}

// UntilState waits until a job is in one of the states, and returns it.
func (r *Rig) UntilState(within time.Duration, id string, states ...string) Job {
	r.t.Helper()
	var job Job
	Until(r.t, within, fmt.Sprintf("job %s is %s", id, strings.Join(states, " or ")), func() bool {
		job = r.Job(id)
		for _, s := range states {
			if job.State == s {
				return true
			}
		}
		if job.Final() {
			r.t.Fatalf("job %s ended as %s (%s)", id, job.State, job.StatusMessage)
		}
		return false
	})
	return job
}

// DaemonStatus is the frozen answer to GET /status.
type DaemonStatus struct {
	Protocol   int    `json:"protocol"`
	Version    string `json:"version"`
	PID        int    `json:"pid"`
	Executable string `json:"executable"`
	StateDir   string `json:"state_dir"`
	LiveJobs   int    `json:"live_jobs"`
}

// Ask sends the frozen status request to the daemon that serves now. It never
// starts one.
func (r *Rig) Ask() (DaemonStatus, error) {
	socket := filepath.Join(r.StateDir(), "jobd.sock")
	client := http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://jobd/status", nil)
	if err != nil {
		return DaemonStatus{}, err
	}
	req.Header.Set("Jobd-Protocol", "1")
	resp, err := client.Do(req)
	if err != nil {
		return DaemonStatus{}, err
	}
	defer resp.Body.Close()
	var status DaemonStatus
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		return DaemonStatus{}, fmt.Errorf("reading the status: %w", err)
	}
	if resp.StatusCode != http.StatusOK || status.PID == 0 {
		return status, fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return status, nil
}

// Daemon is the process id of the daemon that serves now; there must be one.
func (r *Rig) Daemon() int {
	r.t.Helper()
	status, err := r.Ask()
	if err != nil {
		r.t.Fatalf("asking the daemon: %v", err)
	}
	return status.PID
}

// KillDaemon ends the daemon by KILL and returns the process id that it had.
func (r *Rig) KillDaemon() int {
	r.t.Helper()
	pid := r.Daemon()
	Kill(r.t, pid)
	return pid
}

// Processes are the rig's processes that run one of the binaries, or all of
// them for the name "".
func (r *Rig) Processes(name string) []Process {
	var found []Process
	for _, p := range Find("HOME=" + r.Home) {
		if name == "" || p.Exe == name {
			found = append(found, p)
		}
	}
	return found
}

// Write puts a file into the project and returns its path.
func (r *Rig) Write(name, text string, mode os.FileMode) string {
	r.t.Helper()
	path := filepath.Join(r.Project, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// Lines reads a file of the project, which may not exist yet.
func (r *Rig) Lines(name string) []string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.Project, name))
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		r.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[:strings.Count(string(data), "\n")]
}
