package frontend

import (
	"encoding/json"
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
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) { // an answer to something else
		d.tools.Tools = []ipc.Tool{asking}
		d.onSubmit = func(string, ipc.SubmitRequest) (ipc.SubmitReply, error) { return ipc.SubmitReply{}, need }
		r := p.call("deploy", nil, nil).wait()
		for range 5 {
			if r.result["resultType"] != "input_required" {
				t.Fatalf("it is not asked again: %+v", r)
			}
			r = p.send("tools/call", map[string]any{"name": "deploy", "requestState": r.result["requestState"],
				"inputResponses": map[string]any{"other": map[string]any{"action": "accept"}}}).wait()
		}
		r.must(t, "deploy needs the argument confirm") // not for ever
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
