package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/caller"
	"jobd/internal/ipc"
)

// A hooked is a run of "jobd hook session-start" as Claude Code runs it.
type hooked struct {
	text           string // what the model and the person are told
	stdout, stderr string
	took           time.Duration
}

const hookToken = "the token of a client's process"

// hook runs the hook with this on its standard input. It must end well.
func (s *site) hook(project string, in io.Reader, env ...string) hooked {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(testBin, "jobd"), "hook", "session-start")
	cmd.Dir = "/"
	cmd.Env = append(s.env("CLAUDE_PROJECT_DIR="+project, "CLAUDE_CODE_MESSAGING_TOKEN="+hookToken, "CLAUDECODE=1",
		"GORACE=atexit_sleep_ms=0"), env...) // else the race detector's end takes a second
	cmd.Stdin = in
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	h := hooked{stdout: out.String(), stderr: errs.String(), took: time.Since(began)}
	if err != nil || h.stderr != "" {
		s.t.Errorf("the hook ended with %v and said %q", err, h.stderr)
	}
	if h.stdout == "" {
		return h
	}
	reply := asJSON[struct {
		Output struct {
			Event string `json:"hookEventName"`
			Model string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
		Person string `json:"systemMessage"`
	}](s.t, h.stdout)
	if h.text = reply.Output.Model; reply.Output.Event != "SessionStart" || reply.Person != h.text {
		s.t.Errorf("the reply is %s", h.stdout)
	}
	return h
}

// starting is what Claude Code tells the hook.
func starting(source, session string) io.Reader {
	b, err := json.Marshal(map[string]string{"hook_event_name": "SessionStart", "source": source, "session_id": session, "cwd": "/"})
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(b)
}

// says checks the lines that a hook tells.
func (h hooked) says(t *testing.T, lines ...string) {
	t.Helper()
	want := ""
	if len(lines) > 0 {
		want = "jobd, this project's jobs. " + strings.Join(lines, "\n")
	}
	if h.text != want {
		t.Errorf("it said %q, want %q", h.text, want)
	}
}

func TestTheHookTellsEachSessionOfItsProjectsJobs(t *testing.T) {
	s := newToolSite(t)
	id := func(command, session string) string {
		t.Helper()
		r := s.request("run_job", struct{}{})
		r.Arguments, r.Command, r.Name, r.Session = nil, command, strings.Fields(command)[0], session
		reply, err := s.submit(r)
		if err != nil {
			t.Fatal(err)
		}
		return reply.Job.ID
	}
	ended, own, asking, running := id("true", "one"), id("false", "two"), id("jobd ask 'Which colour?' --field colour:string", "one"), id("sleep 600", "one")
	elsewhere := s.request("run_job", struct{}{})
	elsewhere.Arguments, elsewhere.Command, elsewhere.Project = nil, "true", "/tmp"
	if _, err := s.submit(elsewhere); err != nil {
		t.Fatal(err)
	}
	s.await(ended, "final")
	s.await(own, "final")
	s.question(asking)
	waits := fmt.Sprintf("waiting for the person's answer: jobd (job %s; Which colour?; in a shell: jobd answer %s)", asking[:8], asking[:8])
	runs := fmt.Sprintf("still running: sleep (job %s)", running[:8])

	s.hook(s.project, starting("compact", "two")).says(t)
	first := s.hook(s.project, starting("resume", "two"))
	first.says(t, waits,
		fmt.Sprintf("ended while this session was away (get_job gives the result, if it does not come by itself): false (job %s, failed)", own[:8]),
		fmt.Sprintf("ended, and nobody was told (get_job gives the result): true (job %s, succeeded)", ended[:8]), runs)
	// What ended is told once; what lives, to every session.
	s.hook(s.project, starting("startup", "three")).says(t, waits, runs)
	s.hook(s.project, starting("clear", "four")).says(t, waits, runs)
	t.Logf("the hook took %v", first.took.Round(time.Millisecond))

	if _, err := s.daemon.Cancel(t.Context(), ipc.CancelRequest{ID: running, Session: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.daemon.Cancel(t.Context(), ipc.CancelRequest{ID: asking}); err != nil {
		t.Fatal(err)
	}
	s.await(running, "final")
	s.await(asking, "final")
	// Its session cancelled one of them, so somebody was told.
	s.hook(s.project, starting("startup", "five")).says(t,
		fmt.Sprintf("ended, and nobody was told (get_job gives the result): jobd (job %s, cancelled)", asking[:8]))
	s.hook(s.project, starting("startup", "six")).says(t)
}

func TestTheHookNamesAFewJobsOnly(t *testing.T) {
	var list []ipc.Job
	for i := range 5 {
		list = append(list, ipc.Job{ID: fmt.Sprintf("%032x", i), Name: "a\x1b[31m\nname " + strings.Repeat("x", 100), State: "timed_out", Final: true})
	}
	got := announcement(list, "s")
	if len(got) > 600 || strings.ContainsAny(got, "\x1b\n") || !strings.Contains(got, "timed out)") || !strings.HasSuffix(got, "and 2 more (list_jobs)") {
		t.Errorf("it said %q", got)
	}
}

// Where there is nothing to say the hook starts nothing and leaves nothing.
func TestTheHookStartsADaemonOnlyToTellSomething(t *testing.T) {
	s := newSite(t)
	project := filepath.Dir(s.dir)
	s.hook(project, starting("startup", "a")).says(t)
	if exists(s.dir) {
		t.Error("the hook made a state directory")
	}

	s.start()
	s.must("run", "--wait", "--", "true")
	stopped := func(how string) {
		t.Helper()
		if how == "stop" {
			s.must("stop")
		} else {
			s.kill(s.pid())
		}
		eventually(t, "the daemon is gone", func() bool { return len(s.daemons()) == 0 })
	}
	stopped("kill")
	s.hook("/tmp", starting("startup", "a")).says(t) // the job's result was read
	if len(s.daemons()) > 0 {
		t.Error("the hook started a daemon, and had nothing to say")
	}

	s.start()
	id := strings.TrimSpace(s.must("run", "--", "true"))
	eventually(t, "the job has ended", func() bool { return strings.Contains(s.must("status", id), "succeeded") })
	stopped("stop") // on purpose
	s.hook("/tmp", starting("startup", "a")).says(t)
	if len(s.daemons()) > 0 {
		t.Error("the hook started a daemon that was stopped on purpose")
	}
	s.start()
	stopped("kill")
	// On a machine so slow that the daemon does not come up in time it says
	// nothing, and the next session is told.
	var h hooked
	eventually(t, "a session is told", func() bool {
		h = s.hook("/tmp", starting("startup", "a"))
		return h.text != ""
	})
	h.says(t, fmt.Sprintf("ended, and nobody was told (get_job gives the result): true (job %s, succeeded)", id[:8]))
	stopped("kill")
	s.hook("/tmp", starting("startup", "a")).says(t)
	if len(s.daemons()) > 0 {
		t.Error("the hook started a daemon to tell what it had told")
	}
}

// The session that the hook reports is kept where no daemon runs.
func TestTheHookReportsASessionWithoutADaemon(t *testing.T) {
	s := newSite(t)
	client := caller.ClientID(hookToken)
	s.hook("/tmp", starting("clear", "two")).says(t)
	if len(s.daemons()) > 0 {
		t.Error("the hook started a daemon")
	}
	d := s.client()
	reply, err := d.Submit(t.Context(), "", ipc.SubmitRequest{Tool: "run_job", Argv: []string{"true"}, Project: "/tmp", Session: "one", Client: client})
	if err != nil || reply.Job.Session != "two" {
		t.Errorf("the job belongs to %q, %v", reply.Job.Session, err)
	}
}

// Whatever is wrong, the session starts in time and is not disturbed.
func TestTheHookNeverDisturbsASession(t *testing.T) {
	// A pipe that nobody writes to and nobody closes.
	silent, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close(); hold.Close() }) // after the parallel parts
	state := func(content string) func(*site) []string {
		return func(s *site) []string {
			if err := os.MkdirAll(s.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.p.DB, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		in    io.Reader
		ready func(*site) []string // more of the environment
	}{
		"nothing on its input":      {strings.NewReader(""), nil},
		"garbage on its input":      {strings.NewReader("\x00\xff}{"), nil},
		"other JSON on its input":   {strings.NewReader(`{"session_id": ["a"], "cwd": 7}`), nil},
		"an input that never ends":  {silent, nil},
		"a session with a bad name": {starting("clear", "../../x\n"), nil},
		"no home": {starting("clear", "a"), func(s *site) []string {
			return []string{"HOME=", "JOBD_HOME=", "XDG_STATE_HOME=" + s.dir, "XDG_CONFIG_HOME=" + s.dir}
		}},
		"a home that is no path":      {starting("clear", "a"), func(*site) []string { return []string{"JOBD_HOME=relative"} }},
		"a state that is no folder":   {starting("clear", "a"), func(*site) []string { return []string{"JOBD_HOME=/dev/null"} }},
		"a state below a file":        {starting("clear", "a"), func(*site) []string { return []string{"JOBD_HOME=/dev/null/x"} }},
		"a state that is read-only":   {starting("clear", "a"), func(*site) []string { return []string{"JOBD_HOME=/proc/self"} }},
		"a database of garbage":       {starting("startup", "a"), state(strings.Repeat("not a database", 1000))},
		"an empty database":           {starting("startup", "a"), state("")},
		"no project":                  {starting("startup", "a"), func(*site) []string { return []string{"CLAUDE_PROJECT_DIR="} }},
		"a project that is not there": {starting("startup", "a"), func(*site) []string { return []string{"CLAUDE_PROJECT_DIR=/not/there"} }},
		"a daemon that hangs": {starting("clear", "a"), func(s *site) []string {
			s.start()
			s.must("run", "--", "true")
			freeze(t, s.pid())
			return []string{"CLAUDE_PROJECT_DIR=/tmp"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var env []string
			if c.ready != nil {
				env = c.ready(s)
			}
			h := s.hook("/tmp", c.in, env...)
			if h.stdout != "" {
				t.Errorf("it said %s", h.stdout)
			}
			// It gives up after hookTime; the rest is for a machine that is busy.
			if h.took > hookTime+time.Second {
				t.Errorf("it took %v", h.took)
			}
			if name == "a daemon that hangs" {
				// The daemon could not be told, and knows all the same.
				if got, err := sessionsOf(s.p).of(caller.ClientID(hookToken)); err != nil || len(got) != 1 || got[0] != "a" {
					t.Errorf("recorded %q, %v", got, err)
				}
			}
			for _, pid := range s.daemons() {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		})
	}
}
