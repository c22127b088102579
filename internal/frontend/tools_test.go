package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jobd/internal/ipc"
)

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

// deploy is a job file's tool.
var deploy = ipc.Tool{Name: "deploy", Title: "Deploy", Description: "Deploy a commit.", Task: "optional",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"env":{"type":"string"}}}`),
	Annotations: json.RawMessage(`{"destructiveHint":true}`)}

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
		if c := d.cancels[len(d.cancels)-1]; c.Headless || c.Reason == "" || c.Session != "session-1" {
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
