package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/ipc"
	"jobd/internal/jobfile"
	"jobd/internal/jobs"
)

// A toolSite is a real daemon, a project in which it finds a job file, and a
// client that calls tools as a front end does.
type toolSite struct {
	*site
	daemon  *ipc.Client
	project string
	session string
	calls   int
}

func newToolSite(t *testing.T) *toolSite {
	t.Helper()
	s := &toolSite{site: newSite(t), session: "one"}
	s.project = caller.Real(filepath.Dir(s.dir)) + "/project"
	if err := os.MkdirAll(s.project+"/.jobd", 0o700); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.daemon = ipc.New(ipc.Options{Socket: s.p.Socket, Log: s.p.Log, Stopped: s.p.Stopped, Version: buildVersion()})
	t.Cleanup(s.daemon.Close)
	return s
}

// write writes a file of the project.
func (s *toolSite) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.project, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// jobs writes and trusts the project's job file.
func (s *toolSite) jobs(text string) {
	s.t.Helper()
	s.write(".jobd/jobs.yaml", text)
	s.must("trust", s.project)
}

// copyProject makes the project a copy of a folder, trusted.
func (s *toolSite) copyProject(from string) {
	s.t.Helper()
	if err := os.RemoveAll(s.project); err != nil {
		s.t.Fatal(err)
	}
	if err := os.CopyFS(s.project, os.DirFS(from)); err != nil {
		s.t.Fatal(err)
	}
	s.must("trust", s.project)
}

func (s *toolSite) tools(r ipc.ToolsRequest) ipc.ToolsReply {
	s.t.Helper()
	r.Project = s.project
	reply, err := s.daemon.Tools(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// request is a call of a tool.
func (s *toolSite) request(tool string, arguments any) ipc.SubmitRequest {
	s.t.Helper()
	js, err := json.Marshal(arguments)
	if err != nil {
		s.t.Fatal(err)
	}
	var environ []byte
	// A program with the race detector stays for a second at its end, unless told.
	for _, kv := range s.env("JOBD_ARG_leak=of another job", "GORACE=atexit_sleep_ms=0") {
		environ = append(append(environ, kv...), 0)
	}
	return ipc.SubmitRequest{Tool: tool, Arguments: js, Project: s.project, Session: s.session, Environ: environ, Umask: 0o077}
}

func (s *toolSite) submit(r ipc.SubmitRequest) (ipc.SubmitReply, error) {
	s.calls++
	return s.daemon.Submit(s.t.Context(), fmt.Sprint("call ", s.calls), r)
}

// call calls a tool, which must be accepted.
func (s *toolSite) call(tool string, arguments any) ipc.Job {
	s.t.Helper()
	reply, err := s.submit(s.request(tool, arguments))
	if err != nil {
		s.t.Fatal(err)
	}
	return reply.Job
}

// await returns a job and its result when it is final, or asks.
func (s *toolSite) await(id, until string) ipc.Result {
	s.t.Helper()
	for range 60 {
		res, err := s.daemon.Result(s.t.Context(), ipc.GetRequest{ID: id, WaitMS: 10_000, Until: until})
		if err != nil {
			s.t.Fatal(err)
		}
		if res.Job.Final || (until == "settled" && len(res.Job.Questions) > 0) {
			return res
		}
	}
	s.t.Fatalf("job %s does not become %s", id, until)
	return ipc.Result{}
}

// run calls a tool and returns how it ended.
func (s *toolSite) run(tool string, arguments any) ipc.Result {
	s.t.Helper()
	return s.await(s.call(tool, arguments).ID, "final")
}

func (s *toolSite) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.project, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// refused requires that an error has a code and says something.
func refused(t *testing.T, err error, code ipc.Code, says string) {
	t.Helper()
	var e *ipc.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), says) {
		t.Errorf("got %v, want %s with %q", err, code, says)
	}
}

const greeter = `jobs:
  greet:
    title: Greeter
    description: Greet somebody.
    params:
      name: {type: string, minLength: 1}
      times: {type: integer, minimum: 1, default: 2}
    required: [name]
    cwd: sub
    env: {GREETING: "hello, $(id)", PATH: "/usr/bin:/bin"}
    run: |
      pwd
      for i in $(seq "$JOBD_ARG_times"); do echo "$GREETING $JOBD_ARG_name${JOBD_ARG_leak-}"; done
      cmp "$JOBD_ARGS_FILE" - <<END && stat -c %a "$JOBD_ARGS_FILE"
      {"name":"you","times":2}
      END
      printf %s "$JOBD_ARGS" | cmp - "$JOBD_ARGS_FILE" && echo same
    timeout: 45m
    question_timeout: 30m
    answer_within: 0s
    answer_by: anyone
    grace: 30s
    annotations: {read_only: true}
`

func TestAScriptBecomesATool(t *testing.T) {
	s := newToolSite(t)
	if err := os.Mkdir(s.project+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	none := s.tools(ipc.ToolsRequest{})
	if len(none.Tools)+len(none.Faults) > 0 || !none.RunJob || none.Version == "" {
		t.Errorf("without a file: %+v", none)
	}

	// Somebody waits for a change while the file is written, then trusted.
	wait := func(have string, change func()) ipc.ToolsReply {
		t.Helper()
		got := make(chan ipc.ToolsReply, 1)
		go func() {
			reply, err := s.daemon.Tools(context.WithoutCancel(t.Context()), ipc.ToolsRequest{Project: s.project, Version: have, WaitMS: 60_000})
			if err != nil {
				t.Error(err)
			}
			got <- reply
		}()
		change()
		select {
		case reply := <-got:
			return reply
		case <-time.After(30 * time.Second):
			t.Fatal("the change was not told")
			return ipc.ToolsReply{}
		}
	}
	untrusted := wait(none.Version, func() { s.write(".jobd/jobs.yaml", greeter) })
	if len(untrusted.Tools) > 0 || len(untrusted.Faults) != 1 || !strings.Contains(untrusted.Faults[0], "jobd trust "+s.project) {
		t.Errorf("not trusted: %+v", untrusted)
	}
	_, err := s.submit(s.request("greet", map[string]any{"name": "you"}))
	refused(t, err, ipc.CodeRefused, untrusted.Faults[0])

	trusted := wait(untrusted.Version, func() { s.must("trust", s.project) })
	want := []ipc.Tool{{
		Name: "greet", Title: "Greeter", Description: "Greet somebody.", Task: "optional", AnswerBy: "anyone",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1},"times":{"type":"integer","minimum":1,"default":2}},"required":["name"],"additionalProperties":false}`),
		Annotations: json.RawMessage(`{"readOnlyHint":true}`),
	}}
	if d := cmp.Diff(want, trusted.Tools); d != "" || len(trusted.Faults) > 0 {
		t.Errorf("%s%v", d, trusted.Faults)
	}

	_, err = s.submit(s.request("greet", map[string]any{}))
	refused(t, err, ipc.CodeInvalid, `greet needs the argument "name", a string of at least 1 characters`)
	_, err = s.submit(s.request("gret", map[string]any{}))
	refused(t, err, ipc.CodeNotFound, "gret")
	bad := s.request("greet", map[string]any{"name": "you"})
	bad.Command = "id"
	_, err = s.submit(bad)
	refused(t, err, ipc.CodeInvalid, "takes its command, directory and env from its job file")

	res := s.run("greet", map[string]any{"name": "you"})
	wantOut := s.project + "/sub\nhello, $(id) you\nhello, $(id) you\n"
	if got := string(res.Tail.Data); !strings.HasPrefix(got, wantOut) || !strings.HasSuffix(got, "same\n") || res.Job.State != "succeeded" {
		t.Errorf("it ended as %s with %q", res.Job.State, got)
	}
	j := res.Job
	if j.Tool != "greet" || j.Name != "greet" || j.TimeoutMS != 45*60_000 || j.AnswerWithinMS != 0 || j.AnswerBy != "anyone" || j.Cwd != s.project+"/sub" {
		t.Errorf("the job is %+v", j)
	}
	info, err := os.Stat(filepath.Join(s.dir, "bundles", j.ID, "args.json"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file with the arguments: %v, %v", info, err)
	}

	changed := wait(trusted.Version, func() { s.write(".jobd/jobs.yaml", greeter+"# changed\n") })
	if len(changed.Tools) > 0 || len(changed.Faults) != 1 || !strings.Contains(changed.Faults[0], "has changed since it was trusted") {
		t.Errorf("changed: %+v", changed)
	}
	_, err = s.submit(s.request("greet", map[string]any{"name": "you"}))
	refused(t, err, ipc.CodeRefused, "has changed since it was trusted")

	// A wait that sees no change ends by itself, one whose asker is gone at once.
	if same := s.tools(ipc.ToolsRequest{Version: changed.Version, WaitMS: 50}); same.Version != changed.Version {
		t.Errorf("nothing has changed, and the version is another")
	}
}

func TestDirectoriesOfJobs(t *testing.T) {
	s := newToolSite(t)
	s.jobs(`jobs:
  here: {description: d, argv: [pwd]}
  there: {description: d, argv: [pwd], cwd: /tmp}
  nowhere: {description: d, argv: [pwd], cwd: missing}
`)
	for tool, want := range map[string]string{"here": s.project + "\n", "there": "/tmp\n"} {
		if got := string(s.run(tool, struct{}{}).Tail.Data); got != want {
			t.Errorf("%s ran in %q", tool, got)
		}
	}
	_, err := s.submit(s.request("nowhere", struct{}{}))
	refused(t, err, ipc.CodeInvalid, s.project+"/missing does not exist")
}

// The user's own file needs no trust and holds in every project.
func TestTheUsersJobs(t *testing.T) {
	s := newToolSite(t)
	dir := filepath.Join(s.dir, "jobs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/mine.yaml", []byte("jobs:\n  mine: {description: d, run: 'echo mine in $PWD'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/bad.yaml", []byte("jobs: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reply := s.tools(ipc.ToolsRequest{})
	if len(reply.Tools) != 1 || len(reply.Faults) != 1 || !strings.Contains(reply.Faults[0], "bad.yaml:1:7") {
		t.Errorf("got %+v", reply)
	}
	if got := string(s.run("mine", struct{}{}).Tail.Data); got != "mine in "+s.project+"\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestIdenticalCallsJoinUnlessTheFileSaysOff(t *testing.T) {
	s := newToolSite(t)
	s.jobs(`jobs:
  once: {description: d, params: {n: {type: integer, default: 1}}, run: sleep 60}
  each: {description: d, run: sleep 60, dedupe: off}
`)
	first := s.call("once", map[string]any{})
	for _, args := range []map[string]any{{}, {"n": 1}, {"n": nil}} {
		if again := s.call("once", args); again.ID != first.ID {
			t.Errorf("%v is another job", args)
		}
	}
	if other := s.call("once", map[string]any{"n": 2}); other.ID == first.ID {
		t.Error("other arguments joined")
	}
	if a, b := s.call("each", map[string]any{}), s.call("each", map[string]any{}); a.ID == b.ID {
		t.Error("a job whose file says off was joined")
	}
	s.session = "two"
	if other := s.call("once", map[string]any{}); other.ID == first.ID {
		t.Error("another session joined")
	}
}

func TestAskFirstComesBeforeTheJob(t *testing.T) {
	s := newToolSite(t)
	s.jobs(`jobs:
  drop:
    description: Drop a table.
    params: {table: {type: string}}
    required: [table]
    ask_first:
      confirm: {type: boolean, title: Really?}
      note: {type: string, default: none}
    run: |
      echo "$JOBD_ARG_table $JOBD_ARG_confirm $JOBD_ARG_note"
      until [ -e go ]; do sleep 0.05; done
`)
	tool := s.tools(ipc.ToolsRequest{}).Tools[0]
	if want := `{"type":"object","properties":{"confirm":{"type":"boolean","title":"Really?"},"note":{"type":"string","default":"none"}},"required":["confirm"]}`; string(tool.AskFirst) != want {
		t.Errorf("the form is %s", tool.AskFirst)
	}
	call := s.request("drop", map[string]any{"table": "t"})
	_, err := s.submit(call)
	refused(t, err, ipc.CodeAnswers, `drop asks the person for confirm, note before it starts`)
	list, err := s.daemon.List(t.Context(), ipc.ListRequest{})
	if err != nil || len(list.Jobs) > 0 {
		t.Fatalf("nothing was answered, and there are %d jobs, %v", len(list.Jobs), err)
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, "bundles")); err != nil || len(left) > 0 {
		t.Errorf("bundles are left: %v, %v", left, err)
	}
	wrong := call
	wrong.Answers = json.RawMessage(`{"confirm":"yes"}`)
	_, err = s.submit(wrong)
	refused(t, err, ipc.CodeInvalid, `drop needs "confirm" to be true or false; it got "yes"`)

	answered := call
	answered.Answers = json.RawMessage(`{"confirm":true}`)
	reply, err := s.submit(answered)
	if err != nil || reply.Joined != "" {
		t.Fatalf("got %+v, %v", reply, err)
	}
	// While it runs the same call joins it, and nobody is asked.
	joined, err := s.submit(call)
	if err != nil || joined.Job.ID != reply.Job.ID || joined.Joined != "session" {
		t.Errorf("got %s by %q, %v", joined.Job.ID, joined.Joined, err)
	}
	s.write("go", "")
	if res := s.await(reply.Job.ID, "final"); string(res.Tail.Data) != "t true none\n" {
		t.Errorf("it printed %q", res.Tail.Data)
	}
	if err := s.daemon.Delivered(t.Context(), ipc.DeliveredRequest{ID: reply.Job.ID, Session: s.session}); err != nil {
		t.Fatal(err)
	}
	_, err = s.submit(call)
	refused(t, err, ipc.CodeAnswers, "confirm")
	// A client without forms passes the values as arguments.
	if res := s.run("drop", map[string]any{"table": "t", "confirm": false, "note": "by argument"}); string(res.Tail.Data) != "t false by argument\n" {
		t.Errorf("it printed %q", res.Tail.Data)
	}
}

// What a model or a web page put into an argument reaches the script as it is,
// through socket, database, shim and shell, and runs nothing.
func TestHostileArgumentsReachTheScript(t *testing.T) {
	s := newToolSite(t)
	s.jobs(`jobs:
  by_variable:
    description: d
    params: {text: {type: string}}
    required: [text]
    run: printf %s "$JOBD_ARG_text" >got
  by_element:
    description: d
    params: {text: {type: string}}
    required: [text]
    argv: [/bin/sh, -c, 'printf %s "$1" >got', sh, $text]
  by_file:
    description: d
    params: {text: {type: string}}
    required: [text]
    run: cp "$JOBD_ARGS_FILE" got
`)
	planes := ""
	for plane := range rune(17) {
		planes += string([]rune{plane<<16 + 0x41, plane<<16 + 0xfffd})
	}
	for _, text := range []string{
		"", "-n", "--help", "'\"`", "$(touch PWNED)", "`touch PWNED`;touch PWNED&&\n touch PWNED\n", "a\nb\n\n", "$HOME ${IFS} * ? ~ ! \\ %s", "\x01\x1b[2J\x7f", planes,
		strings.Repeat("$(touch PWNED) 'x' \"y\"\n", 4000),
		strings.Repeat("$(touch PWNED) 'é' \"𝄞\"\n", 1<<20/25+1), // over 1 MB
	} {
		for _, tool := range []string{"by_variable", "by_element", "by_file"} {
			if len(text) > 100_000 && tool != "by_file" {
				_, err := s.submit(s.request(tool, map[string]any{"text": text}))
				refused(t, err, ipc.CodeInvalid, "takes at most 100000 bytes")
				continue
			}
			if res := s.run(tool, map[string]any{"text": text}); res.Job.State != "succeeded" {
				t.Errorf("%s of %.40q ended as %s: %s", tool, text, res.Job.State, res.Tail.Data)
				continue
			}
			got := s.read("got")
			if tool == "by_file" {
				var all map[string]string
				if err := json.Unmarshal([]byte(got), &all); err != nil {
					t.Fatal(err)
				}
				got = all["text"]
			}
			if got != text {
				t.Errorf("%s: %.100q arrived as %.100q", tool, text, got)
			}
		}
	}
	_, err := s.submit(s.request("by_variable", map[string]any{"text": "a\x00b"}))
	refused(t, err, ipc.CodeInvalid, "NUL")
	if _, err := os.Stat(filepath.Join(s.project, "PWNED")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an argument was run: %v", err)
	}
}

// What a reboot interrupted is run again as the file says now, with the
// arguments and answers of the old call and nothing of its environment.
func TestARerunIsMadeOfFileAndArguments(t *testing.T) {
	dir := caller.Real(t.TempDir())
	project := dir + "/project"
	for _, d := range []string{project + "/.jobd", dir + "/bundles/lost"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := config.Places{StateDir: dir, JobFiles: dir + "/jobs"}
	a := &api{files: newCatalog(p), bundles: dir + "/bundles", binDir: "/bin", socket: "/s", log: slog.New(slog.DiscardHandler),
		defaults: jobDefaults{Timeout: time.Hour, QuestionTimeout: time.Hour, Unattended: jobs.UnattendedCancel}}
	lost := jobs.New("lost", jobs.Spec{Tool: "sync", Name: "sync", Project: project, Session: "s", Umask: 0o027, NoFile: 77, RerunInterrupted: true}, jobs.Keys{}, jobs.Instant{})
	write := func(text string, trusted bool) {
		t.Helper()
		if err := os.WriteFile(project+"/.jobd/jobs.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if trusted {
			if err := a.files.Trust.Add(jobfile.Trusted{Path: jobfile.ProjectPath(project), Sum: jobfile.Sum([]byte(text))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := `jobs:
  sync:
    description: d
    params: {host: {type: string}, depth: {type: integer, default: 1}}
    required: [host]
    ask_first: {confirm: {type: boolean}}
    argv: [sync, $host, $depth, $confirm]
    env: {MODE: full}
    rerun: if_interrupted
`
	write(file, true)
	if _, err := a.rerun(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "reading its arguments") {
		t.Errorf("without arguments: %v", err)
	}
	arguments := `{"host":"h","depth":2,"confirm":true}`
	if err := os.WriteFile(a.argumentsFile("lost"), []byte(arguments), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_OF_THE_TEST", "1")
	sub, err := a.rerun(t.Context(), lost)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"sync", "h", "2", "true"}, sub.Spec.Argv); d != "" {
		t.Error(d)
	}
	if sub.Spec.Session != "s" || sub.Spec.Umask != 0o027 || sub.Spec.NoFile != 77 || !sub.Spec.RerunInterrupted || sub.Refuse != nil || !sub.Join {
		t.Errorf("got %+v", sub)
	}
	environ := sub.Environ("new")
	for _, want := range []string{"MODE=full", "JOBD_ARG_host=h", "JOBD_ARGS=" + arguments, "JOBD_ARGS_FILE=" + dir + "/bundles/new/args.json", "JOBD_JOB_ID=new"} {
		if !slices.Contains(environ, want) {
			t.Errorf("%s is not in %q", want, environ)
		}
	}
	if slices.Contains(environ, "SECRET_OF_THE_TEST=1") {
		t.Error("the environment of who started the daemon is in it")
	}
	// It is the same call to whoever repeats it without the answer.
	again, err := a.resolve(ipc.SubmitRequest{Tool: "sync", Project: project, Arguments: json.RawMessage(`{"depth":2,"host":"h"}`)})
	if err != nil || string(again.Identity) != string(sub.Identity) {
		t.Errorf("got %s, %v, want %s", again.Identity, err, sub.Identity)
	}

	write(file+"# changed\n", false)
	if _, err := a.rerun(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "has changed since it was trusted") {
		t.Errorf("a changed file: %v", err)
	}
	write(strings.Replace(file, "if_interrupted", "never", 1), true)
	if _, err := a.rerun(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "no longer says rerun") {
		t.Errorf("a file that says never: %v", err)
	}
}
