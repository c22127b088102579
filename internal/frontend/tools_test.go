package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/ipc"
)

// names lists the names of tools.
func names(list map[string]any) []string {
	var out []string
	for _, t := range list["tools"].([]any) {
		out = append(out, t.(map[string]any)["name"].(string))
	}
	return out
}

var builtinNames = "run_job get_job read_job_output list_jobs cancel_job"

func TestToolListIsGolden(t *testing.T) {
	bubble(t, withNone, func(t *testing.T, d *fakeDaemon, p *peer) {
		raw, err := json.Marshal(p.request("tools/list", nil)["tools"])
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			t.Fatal(err)
		}
		golden(t, "tools.json", b.String()+"\n")
		if n := len(raw); n > 7_000 {
			t.Errorf("the list has %d bytes; descriptions cost context", n)
		}
	})
}

func TestListsAreNotCached(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		for _, method := range []string{"tools/list", "resources/list", "resources/templates/list"} {
			r := p.request(method, nil)
			if r["ttlMs"] != 0.0 || r["cacheScope"] != "private" || r["resultType"] != "complete" {
				t.Errorf("%s: %v %v %v", method, r["ttlMs"], r["cacheScope"], r["resultType"])
			}
		}
	})
}

func TestDiscoverNeedsNoDaemon(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.holdTools = make(chan struct{})
		start := time.Now()
		r := p.request("server/discover", nil)
		if time.Since(start) != 0 || len(d.toolCalls) != 0 {
			t.Errorf("it took %v and asked the daemon %d times", time.Since(start), len(d.toolCalls))
		}
		caps := r["capabilities"].(map[string]any)
		if caps["extensions"].(map[string]any)["io.modelcontextprotocol/tasks"] == nil || caps["prompts"] != nil || caps["logging"] != nil {
			t.Errorf("capabilities %v", caps)
		}
		if s := r["instructions"].(string); !strings.Contains(s, "run_job") || !strings.Contains(s, "Never answer for the person") {
			t.Errorf("instructions %q", s)
		}
		for _, method := range []string{"prompts/list", "completion/complete"} {
			if r := p.send(method, nil).wait(); r.err == nil || r.err.Code != -32601 {
				t.Errorf("%s: %+v", method, r)
			}
		}
	})
}

// deploy is a job file's tool.
var deploy = ipc.Tool{Name: "deploy", Title: "Deploy", Description: "Deploy a commit.", Task: "optional",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"env":{"type":"string"}}}`),
	Annotations: json.RawMessage(`{"destructiveHint":true}`)}

func TestJobFileToolsFollowTheBuiltInOnes(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.tools.Tools = []ipc.Tool{{Name: "zebra", Description: "Z.", InputSchema: json.RawMessage(`{"type":"object"}`)}, deploy}
		if got, want := strings.Join(names(p.request("tools/list", nil)), " "), builtinNames+" zebra deploy"; got != want {
			t.Errorf("listed %s, want %s", got, want)
		}
		r := p.call("deploy", map[string]any{"env": "staging"}, nil).wait()
		if r.result["resultType"] != "task" {
			t.Fatalf("got %+v", r)
		}
		if s := only(t, d.submits); s.Tool != "deploy" || string(s.Arguments) != `{"env":"staging"}` || s.Command != "" || s.Argv != nil || s.Dir != "" {
			t.Errorf("submitted %+v", s)
		}
	})
}

func TestToolsThatComeLaterAreAnnounced(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.holdTools = make(chan struct{})
		listen := p.send("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}})
		start := time.Now()
		if got := strings.Join(names(p.request("tools/list", nil)), " "); got != builtinNames || time.Since(start) != 2*time.Second {
			t.Errorf("listed %s after %v", got, time.Since(start))
		}
		changes := func() int {
			time.Sleep(time.Second)
			synctest.Wait()
			return len(p.told("notifications/tools/list_changed"))
		}
		before := changes()
		d.change(func() { d.tools = ipc.ToolsReply{Version: "2", RunJob: true, Tools: []ipc.Tool{deploy}} })
		close(d.holdTools)
		if n := changes(); n != before+1 {
			t.Errorf("%d announcements, want 1", n-before)
		}
		if got := strings.Join(names(p.request("tools/list", nil)), " "); got != builtinNames+" deploy" {
			t.Errorf("listed %s", got)
		}
		time.Sleep(time.Hour)
		d.change(func() { d.tools = ipc.ToolsReply{Version: "3", RunJob: false} })
		if n := changes(); n != before+2 {
			t.Errorf("%d announcements, want 2", n-before)
		}
		if got := strings.Join(names(p.request("tools/list", nil)), " "); got != strings.TrimPrefix(builtinNames, "run_job ") {
			t.Errorf("listed %s", got)
		}
		listen.cancel("")
	})
}

func TestListingStartsNoDaemonUnlessFilesAskForIt(t *testing.T) {
	project, config := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		name, file string
		started    bool
	}{
		{"nothing", "", false},
		{"a project's job file", filepath.Join(project, ".jobd", "jobs.yaml"), true},
		{"the user's job file", filepath.Join(config, "jobs", "mine.yaml"), true},
		{"a configuration", filepath.Join(config, "config.yaml"), true},
		{"another file", filepath.Join(config, "jobs", "notes.txt"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.file != "" {
				if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(c.file, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(c.file)
			}
			passive := newFakeDaemon()
			passive.down = errDown
			bubbleWith(t, withTasks, func(o *Options) {
				o.Passive, o.ConfigDir, o.Caller.Project = passive, config, project
			}, func(t *testing.T, d *fakeDaemon, p *peer) {
				p.request("tools/list", nil)
				p.request("resources/list", nil)
				if started := len(d.toolCalls)+len(d.lists) > 0; started != c.started {
					t.Errorf("started: %t", started)
				}
			})
		})
	}
}

func TestAToolThatIsNotKnownYetIsLookedFor(t *testing.T) {
	passive := newFakeDaemon()
	passive.down = errDown
	bubbleWith(t, withTasks, func(o *Options) { o.Passive = passive }, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.tools.Tools = []ipc.Tool{deploy}
		if r := p.call("deploy", nil, nil).wait(); r.result["resultType"] != "task" {
			t.Errorf("got %+v", r)
		}
	})
}

func TestFaultsOfJobFilesAreTold(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.tools.Faults = []string{"/p/.jobd/jobs.yaml is not trusted; look at it, then run: jobd trust"}
		raw, _ := json.Marshal(p.request("tools/list", nil))
		if !strings.Contains(string(raw), "jobd trust") {
			t.Errorf("the list does not say so: %s", raw)
		}
		p.call("list_jobs", nil, nil).wait().must(t, "jobd trust")
		if r := p.call("deploy", nil, nil).wait(); r.err == nil || r.err.Code != -32602 || !strings.Contains(r.err.Message, "jobd trust") {
			t.Errorf("calling a missing tool gives %+v", r)
		}
		d.change(func() { d.tools = ipc.ToolsReply{Version: "2", RunJob: true} })
		synctest.Wait()
		if raw, _ := json.Marshal(p.request("tools/list", nil)); strings.Contains(string(raw), "jobd trust") {
			t.Error("a fault that is mended is still told")
		}
	})
}

func TestAToolCannotBeLookedForWithoutTheDaemon(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.down = errDown
		r := p.call("deploy", nil, nil).wait()
		if r.err == nil || r.err.Code != -32603 || !strings.Contains(r.err.Message, "“deploy” is none of jobd's own") || !strings.Contains(r.err.Message, "its start is blocked") {
			t.Errorf("got %+v", r)
		}
	})
}

func TestTaskSupportOfJobFiles(t *testing.T) {
	never, required := deploy, deploy
	never.Name, never.Task = "quick", "never"
	required.Name, required.Task = "slow", "required"
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.tools.Tools = []ipc.Tool{never, required}
		call := p.call("quick", nil, map[string]any{"progressToken": 1})
		time.Sleep(time.Minute)
		d.finish(d.first(), stateSucceeded, "ok\n", nil)
		call.wait().must(t, "succeeded after 1 min")
	})
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.tools.Tools = []ipc.Tool{never, required}
		if r := p.call("slow", nil, nil).wait(); r.err == nil || r.err.Code != -32021 || len(r.err.Data) == 0 || len(d.submits) != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAskFirst(t *testing.T) {
	asking := deploy
	asking.AskFirst = json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)
	need := &ipc.Error{Code: ipc.CodeAnswers, Message: "deploy needs the argument confirm", Hint: `send {"confirm": true}`}
	round := func(t *testing.T, d *fakeDaemon, p *peer, answer map[string]any) reply {
		d.tools.Tools = []ipc.Tool{asking}
		d.onSubmit = func(_ string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
			if r.Answers == nil {
				return ipc.SubmitReply{}, need
			}
			return ipc.SubmitReply{Job: *d.add(ipc.Job{Name: "deploy"})}, nil
		}
		r := p.call("deploy", map[string]any{"env": "staging"}, nil).wait()
		if r.result["resultType"] != "input_required" {
			return r
		}
		return p.send("tools/call", map[string]any{"name": "deploy", "arguments": map[string]any{"env": "staging"},
			"requestState": r.result["requestState"], "inputResponses": map[string]any{"ask_first": answer}}).wait()
	}
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		r := round(t, d, p, map[string]any{"action": "accept", "content": map[string]any{"confirm": true}})
		if r.result["resultType"] != "task" || string(d.submits[1].Answers) != `{"confirm":true}` {
			t.Errorf("got %+v, submitted %+v", r, d.submits)
		}
	})
	for _, action := range []string{"decline", "cancel"} {
		bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
			r := round(t, d, p, map[string]any{"action": action})
			r.must(t, "nothing was started")
			if !r.isError() || len(d.jobs) != 0 {
				t.Errorf("%s: %+v", action, r)
			}
		})
	}
	bubble(t, withNone, func(t *testing.T, d *fakeDaemon, p *peer) {
		r := round(t, d, p, nil)
		r.must(t, "deploy needs the argument confirm", `send {"confirm": true}`)
		if !r.isError() {
			t.Error("no error")
		}
	})
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) { // joining comes first
		j := d.add(ipc.Job{Name: "deploy", Tool: "deploy"})
		d.tools.Tools = []ipc.Tool{asking}
		d.onSubmit = func(string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
			return ipc.SubmitReply{Job: *j, Joined: "session"}, nil
		}
		p.call("deploy", nil, nil).wait().must(t, "joined the identical job")
	})
}

func TestAnswerJobIsOfferedWhereItIsOfUse(t *testing.T) {
	has := func(p *peer) bool {
		return strings.Contains(strings.Join(names(p.request("tools/list", nil)), " "), "answer_job")
	}
	bubble(t, withNone, func(t *testing.T, d *fakeDaemon, p *peer) {
		if !has(p) {
			t.Error("a client without forms is not offered it")
		}
	})
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		if has(p) {
			t.Error("a client with forms is offered it")
		}
		id := d.add(ipc.Job{AnswerBy: "anyone"}).ID
		p.request("tasks/get", map[string]any{"taskId": id})
		if !has(p) {
			t.Error("a job that lets anyone answer does not change that")
		}
		d.ask(id, confirm("q1"))
		p.call("answer_job", map[string]any{"job_id": id, "action": "decline"}, nil).wait()
		if a := only(t, d.answered); !a.Model || a.Action != "decline" {
			t.Errorf("answered %+v", a)
		}
	})
}

func TestRunJobRefusesWhatCannotRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		for _, c := range []struct {
			args any
			want string
		}{
			{nil, "run_job needs what to run"},
			{map[string]any{"command": "  "}, "run_job needs what to run"},
			{map[string]any{"command": "x", "argv": []string{"x"}}, "send one"},
			{map[string]any{"argv": []string{""}}, "must name the program"},
			{map[string]any{"command": "x", "cwd": "~/src"}, "which only a shell expands; send the absolute path, like"},
			{map[string]any{"command": "x", "cwd": "~bob"}, "only a shell expands"},
			{map[string]any{"command": "x", "cwd": "no/such"}, "/no/such” does not exist; create it first"},
			{map[string]any{"command": "x", "cwd": file}, "is not a directory"},
			{map[string]any{"cmd": "x"}, `Did you mean "command"?`},
		} {
			r := p.call("run_job", c.args, nil).wait()
			r.must(t, c.want)
			if !r.isError() {
				t.Errorf("%v gives no error", c.args)
			}
		}
		if len(d.submits) != 0 {
			t.Errorf("submitted %+v", d.submits)
		}
	})
}

func TestRunJobPassesOnWhatWasAsked(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	bubbleWith(t, withTasks, func(o *Options) { o.Caller.Project = dir }, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.call("run_job", map[string]any{"argv": []string{"a", "b c"}, "cwd": "sub", "name": "n", "env": map[string]string{"A": "1"},
			"timeout_seconds": 0, "question_timeout_seconds": 90, "idempotency_key": "k"}, nil).wait()
		s := only(t, d.submits)
		if strings.Join(s.Argv, "|") != "a|b c" || s.Command != "" || s.Dir != filepath.Join(dir, "sub") || s.Name != "n" || s.Env["A"] != "1" ||
			s.TimeoutMS == nil || *s.TimeoutMS != 0 || s.QuestionTimeoutMS == nil || *s.QuestionTimeoutMS != 90_000 || s.Key != "k" {
			t.Errorf("submitted %+v", s)
		}
		p.call("run_job", map[string]any{"command": "x"}, nil).wait()
		if s := d.submits[1]; s.TimeoutMS != nil || s.QuestionTimeoutMS != nil || s.Dir != dir {
			t.Errorf("the defaults are %+v", s)
		}
	})
}

func TestGetJob(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{Name: "tests", Tool: "run_job", Cwd: "/p"}).ID
		get := func(args map[string]any) reply { return p.call("get_job", args, nil).wait() }
		get(map[string]any{"job_id": id[:31]}).must(t, "(tests) is running", "Directory: /p", "read_job_output")

		call := p.call("get_job", map[string]any{"job_id": id, "wait_seconds": 50}, nil)
		time.Sleep(20 * time.Second)
		d.ask(id, confirm("q1"))
		call.wait().must(t, "is waiting", "Deploy to production?", "jobd answer")

		d.job(id, func(j *ipc.Job) { j.State, j.Questions = stateRunning, nil })
		start := time.Now()
		get(map[string]any{"job_id": id, "wait_seconds": 30}).must(t, "is running")
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("it waited %v", took)
		}
		d.finish(id, stateFailed, "boom\n", nil)
		r := get(map[string]any{"job_id": id})
		r.must(t, "failed", "exit code 1", "boom")
		if r.isError() {
			t.Error("a look at a failed job is no failure")
		}
		get(map[string]any{"job_id": "nonsense"}).must(t, "there is no job", "list_jobs")
		get(map[string]any{"job_id": strings.Repeat("e", 32)}).must(t, "expired")
		d.add(ipc.Job{})
		get(map[string]any{"job_id": "0000"}).must(t, "more than one")
	})
}

func TestListJobs(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		list := func(args map[string]any) reply { return p.call("list_jobs", args, nil).wait() }
		list(nil).must(t, "No jobs of the project /")
		mine := ipc.Job{Project: "/", Session: "session-1", Tool: "run_job"}
		a, b, c := mine, mine, mine
		a.Name, b.Name, c.Name = "first", "second", "third"
		b.Session, b.Tool = "other", "deploy"
		c.Project = "/elsewhere"
		ida := d.add(a).ID
		time.Sleep(3 * time.Minute)
		idb := d.add(b).ID
		d.add(c)
		d.finish(ida, stateSucceeded, "", func(j *ipc.Job, _ *ipc.Result) { j.StatusMessage = "exit code 0" })
		d.ask(idb, confirm("q1"))
		r := list(nil)
		r.must(t, "[result not delivered]", "3 min ago: first", "second [deploy] [other session]", "ASKS the person: “Deploy to production?”", "jobd answer "+short(idb))
		if strings.Index(r.text(), ": second") > strings.Index(r.text(), ": first") || strings.Contains(r.text(), "third") {
			t.Errorf("got %s", r.text())
		}
		list(map[string]any{"all_projects": true}).must(t, "third", "project /elsewhere")
		list(map[string]any{"limit": 1}).must(t, "Only the newest 1 are shown")
		list(map[string]any{"state": "live", "text": "x", "key": "k"}).must(t, "second")
		if l := d.lists[len(d.lists)-1]; len(l.States) != 5 || l.Text != "x" || l.Key != "k" || l.Project != "/" {
			t.Errorf("asked %+v", l)
		}
		for range 300 {
			d.add(ipc.Job{Project: "/", Name: strings.Repeat("long name ", 20), StatusMessage: strings.Repeat("m", 200)})
		}
		if n := len(list(map[string]any{"limit": 100}).text()); n > maxText {
			t.Errorf("the list has %d characters", n)
		}
	})
}

func TestReadJobOutput(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		read := func(args map[string]any) reply {
			args["job_id"] = id
			return p.call("read_job_output", args, nil).wait()
		}
		read(map[string]any{}).must(t, "has printed nothing yet")
		d.finish(id, stateSucceeded, "héllo \x1b[1mworld\n"+strings.Repeat("0123456789abcde\n", 2000), nil)
		read(map[string]any{"offset": 0, "limit": 2}).must(t, `Bytes 0 to 1 of`, `Read on: {"job_id":"`+short(id)+`","offset":1}`, "h")
		read(map[string]any{"offset": 1, "limit": 30}).must(t, "éllo world")
		read(map[string]any{}).must(t, "This is the end.", `From the beginning: {`)
		read(map[string]any{"offset": 1, "tail_lines": 2}).must(t, "send one")
		read(map[string]any{"tail_lines": 3})
		if r := d.outputs[len(d.outputs)-1]; r.Lines != 3 || r.Limit != maxOutput {
			t.Errorf("asked %+v", r)
		}
		read(map[string]any{"limit": 20001}).must(t, "a whole number from 1 to 20000")
	})
}

func TestPiecesMeetWithoutGapOrOverlap(t *testing.T) {
	whole := "aé漢😀\xff\xfe\xc3b\xf0\x9f" // ends in the middle of a character
	for limit := 1; limit <= 6; limit++ {
		at, steps := int64(0), 0
		for at < int64(len(whole)) {
			data := whole[at:min(int(at)+limit, len(whole))]
			out := ipc.Output{Offset: at, Data: []byte(data), Next: at + int64(len(data)), Total: int64(len(whole))}
			var next int64
			said := piece(out, ipc.OutputRequest{}, "x")
			if _, err := whereNext(said, at, &next); err != nil {
				t.Fatalf("limit %d at %d: %q: %v", limit, at, said, err)
			}
			if next <= at {
				t.Fatalf("limit %d: no way on from %d: %q", limit, at, said)
			}
			at = next
			if steps++; steps > 100 {
				t.Fatal("it does not end")
			}
		}
	}
}

func TestCancelJob(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{Name: "x"}).ID
		p.call("cancel_job", map[string]any{"job_id": short(id)}, nil).wait()
		r := p.call("cancel_job", map[string]any{"job_id": id}, nil).wait()
		r.must(t, "is being ended", "not undone")
		if c := d.cancels[len(d.cancels)-1]; c.Headless || c.Reason == "" {
			t.Errorf("cancelled %+v", c)
		}
		d.finish(id, stateSucceeded, "", nil)
		p.call("cancel_job", map[string]any{"job_id": id}, nil).wait().must(t, "succeeded", "had ended before")
	})
}

func TestResources(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{Name: "tests", Project: "/", Session: "session-1"}).ID
		list := p.request("resources/list", nil)["resources"].([]any)
		if len(list) != 2 || list[0].(map[string]any)["uri"] != "jobd://jobs/"+id || list[1].(map[string]any)["uri"] != "jobd://jobs/"+id+"/output" {
			t.Errorf("listed %v", list)
		}
		if n := len(p.request("resources/templates/list", nil)["resourceTemplates"].([]any)); n != 2 {
			t.Errorf("%d templates", n)
		}
		read := func(uri string) string {
			return p.request("resources/read", map[string]any{"uri": uri})["contents"].([]any)[0].(map[string]any)["text"].(string)
		}
		if s := read("jobd://jobs/" + id); !strings.Contains(s, "(tests) is running") {
			t.Errorf("a running job reads %q", s)
		}
		d.finish(id, stateSucceeded, "all gr\x1b[1meen\n", nil)
		if s := read("jobd://jobs/" + id); !strings.Contains(s, "succeeded") || !strings.Contains(s, "all green") {
			t.Errorf("an ended job reads %q", s)
		}
		if s := read("jobd://jobs/" + id + "/output"); s != "all green\n" {
			t.Errorf("the output reads %q", s)
		}
		for _, uri := range []string{"jobd://jobs/nonsense", "jobd://other", "file:///etc/passwd"} {
			if r := p.send("resources/read", map[string]any{"uri": uri}).wait(); r.err == nil {
				t.Errorf("%s gives %v", uri, r.result)
			}
		}
	})
}

// whereNext reads where a piece that begins at an offset says to read on.
func whereNext(said string, at int64, next *int64) (int, error) {
	var offset, total int64
	n, err := fmt.Sscanf(said, "Bytes %d to %d of %d of", &offset, next, &total)
	if err == nil && offset != at {
		err = fmt.Errorf("it begins at %d", offset)
	}
	return n, err
}
