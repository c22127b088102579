package frontend

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/ipc"
)

// bubble runs a test with a clock that jumps when all goroutines wait.
func bubble(t *testing.T, caps map[string]any, f func(t *testing.T, d *fakeDaemon, p *peer)) {
	t.Helper()
	bubbleWith(t, caps, nil, f)
}

func bubbleWith(t *testing.T, caps map[string]any, change func(*Options), f func(t *testing.T, d *fakeDaemon, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDaemon()
		p := connect(t, d, caps, change)
		f(t, d, p)
		p.end()
	})
}

func only[T any](t *testing.T, list []T) T {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("there are %d, want 1: %+v", len(list), list)
	}
	return list[0]
}

func TestACallBecomesATask(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		start := time.Now()
		r := p.call("run_job", map[string]any{"command": "make test"}, map[string]any{"claudecode/toolUseId": "toolu_1"}).wait()
		if r.err != nil || r.result["resultType"] != "task" {
			t.Fatalf("got %+v", r)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("the handle came after %v, want the answer_within of 1 s", took)
		}
		id := d.first()
		if r.result["taskId"] != id || r.result["status"] != "working" || r.result["ttlMs"] != nil || r.result["pollIntervalMs"] != 500.0 {
			t.Errorf("the handle is %v", r.result)
		}
		note := r.result["_meta"].(map[string]any)["com.anthropic/agent-task"].(map[string]any)["modelImmediateResponse"].(string)
		for _, part := range []string{short(id), id, "outlives this session", "get_job"} {
			if !strings.Contains(note, part) {
				t.Errorf("%q is not in the note %q", part, note)
			}
		}
		s := only(t, d.submits)
		if s.Tool != "run_job" || s.Command != "make test" || s.Project != "/" || s.Dir != "/" || s.Session != "session-1" || !s.Interactive || s.Umask != 0o22 || string(s.Environ) != "PATH=/bin\x00" {
			t.Errorf("submitted %+v", s)
		}

		if got := p.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" || got["statusMessage"] != "running" {
			t.Errorf("tasks/get says %v", got)
		}
		d.finish(id, stateFailed, "main.go:3: undefined\n", nil)
		got := p.request("tasks/get", map[string]any{"taskId": id})
		result, _ := got["result"].(map[string]any)
		if got["status"] != "completed" || result["isError"] != true || result["resultType"] != "complete" || got["ttlMs"] == nil {
			t.Errorf("tasks/get says %v", got)
		}
		if text := textOf(result); !strings.Contains(text, "exit code 1") || !strings.Contains(text, "main.go:3: undefined") {
			t.Errorf("the result is %q", text)
		}
	})
}

func TestAQuickJobIsAnsweredAtOnce(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"argv": []string{"true"}}, nil)
		time.Sleep(400 * time.Millisecond)
		d.finish(d.first(), stateSucceeded, "ok\n", nil)
		r := call.wait()
		r.must(t, "succeeded after 0.4 s", "ok")
		if r.result["resultType"] != "complete" || r.result["taskId"] != nil || r.isError() {
			t.Errorf("got %v", r.result)
		}
	})
}

func TestAnswerWithinZeroNeverWaits(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.onSubmit = func(string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
			return ipc.SubmitReply{Job: *d.add(ipc.Job{Name: "x"})}, nil
		}
		start := time.Now()
		if r := p.call("run_job", map[string]any{"command": "x"}, nil).wait(); r.result["resultType"] != "task" || time.Since(start) != 0 {
			t.Errorf("got %v after %v", r.result, time.Since(start))
		}
	})
}

func TestACallWithoutTasksWaitsWithProgress(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": "tok"})
		time.Sleep(35 * time.Second)
		synctest.Wait()
		notes := p.told("notifications/progress")
		if len(notes) != 3 {
			t.Fatalf("after 35 s there are %d notifications: %v", len(notes), notes)
		}
		if n := notes[2]; n["progressToken"] != "tok" || n["progress"] != 30.0 || n["total"] != nil || n["message"] != "running" {
			t.Errorf("the third is %v", n)
		}
		id := d.first()
		d.job(id, func(j *ipc.Job) { j.StatusMessage = "3/10 comp\x1b[1miling" })
		time.Sleep(time.Second)
		synctest.Wait()
		if notes := p.told("notifications/progress"); notes[len(notes)-1]["message"] != "3/10 compiling" {
			t.Errorf("the job's own progress is not told: %v", notes)
		}
		for range 50 { // many changes in a short time
			d.job(id, func(j *ipc.Job) {})
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(p.told("notifications/progress")); n > 6 {
			t.Errorf("%d notifications; changes are told once a second at most", n)
		}
		time.Sleep(3 * time.Hour)
		if call.answered() {
			t.Fatal("the call ended before the job")
		}
		d.finish(id, stateSucceeded, "ok\n", nil)
		call.wait().must(t, "succeeded after 3 h")
		last := 0.0
		for _, n := range p.told("notifications/progress") {
			if v := n["progress"].(float64); v <= last {
				t.Errorf("progress fell from %v to %v", last, v)
			} else {
				last = v
			}
		}
	})
}

func TestACallWithoutTasksAndProgressGetsAHandleInText(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		start := time.Now()
		r := p.call("run_job", map[string]any{"command": "x", "name": "long work"}, nil).wait()
		if took := time.Since(start); took != 50*time.Second {
			t.Errorf("it took %v", took)
		}
		r.must(t, "(long work) is running", "get_job", short(d.first()))
		if r.isError() || r.result["resultType"] != "complete" {
			t.Errorf("got %v", r.result)
		}
		if m := r.result["_meta"].(map[string]any)["jobd/job"].(map[string]any); m["job_id"] != d.first() || m["state"] != "running" {
			t.Errorf("the metadata is %v", m)
		}
	})
}

func TestEscCancelsTheJobThatTheCallMade(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		joined       string
		when         time.Duration
		caps         map[string]any
		cancelled    bool
	}{
		{"while waiting for the handle", "user-cancel", "", 500 * time.Millisecond, withTasks, true},
		{"while waiting for the end", "user-cancel", "", 30 * time.Second, withForms, true},
		{"after a lost reply", "user-cancel", "request", time.Second / 2, withTasks, true},
		{"a job that was joined goes on", "user-cancel", "session", time.Second / 2, withTasks, false},
		{"a timeout lets it go on", "timed out", "", 30 * time.Second, withForms, false},
		{"no reason lets it go on", "", "", 30 * time.Second, withForms, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, c.caps, func(t *testing.T, d *fakeDaemon, p *peer) {
				d.onSubmit = func(string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
					return ipc.SubmitReply{Job: *d.add(ipc.Job{Name: "x", AnswerWithinMS: 1000}), Joined: c.joined}, nil
				}
				call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": 1})
				time.Sleep(c.when)
				call.cancel(c.reason)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := len(seen(d, &d.cancels)) == 1; got != c.cancelled {
					t.Errorf("cancelled: %+v", d.cancels)
				}
			})
		})
	}
}

func TestEscWhileTheJobIsCreatedLeavesNoHiddenJob(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		d.holdSubmit = make(chan struct{})
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		synctest.Wait()
		call.cancel("user-cancel")
		synctest.Wait()
		close(d.holdSubmit)
		synctest.Wait()
		if c := only(t, seen(d, &d.cancels)); c.ID != d.first() || c.Headless {
			t.Errorf("cancelled %+v", c)
		}
	})
}

func TestTheModelIsToldThatItJoined(t *testing.T) {
	for _, c := range []struct {
		name   string
		joined string
		ended  bool
		want   []string
	}{
		{"a running job", "session", false, []string{"no new job was started", "identical job", "3 min ago", "is running", "fresh idempotency_key"}},
		{"an undelivered result", "session", true, []string{"no new job was started", "has ended (succeeded)", "fresh idempotency_key"}},
		{"a key", "key", true, []string{"idempotency key belongs to job", "3 min ago"}},
		{"the same call again", "request", true, nil},
	} {
		for _, caps := range []map[string]any{withTasks, withForms} {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, caps, func(t *testing.T, d *fakeDaemon, p *peer) {
					j := d.add(ipc.Job{Name: "x", AnswerWithinMS: 1000})
					time.Sleep(3 * time.Minute)
					if c.ended {
						d.finish(j.ID, stateSucceeded, "old result\n", nil)
					}
					d.onSubmit = func(string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
						return ipc.SubmitReply{Job: *j, Joined: c.joined}, nil
					}
					r := p.call("run_job", map[string]any{"command": "x"}, nil).wait()
					said := r.text()
					if r.result["resultType"] == "task" {
						raw, _ := json.Marshal(r.result["_meta"])
						said = string(raw)
					} else if c.ended && !strings.Contains(said, "old result") {
						t.Errorf("the result is missing in %q", said)
					}
					for _, part := range c.want {
						if !strings.Contains(said, part) {
							t.Errorf("%q is not in %s", part, said)
						}
					}
					if c.want == nil && strings.Contains(said, "no new job") {
						t.Errorf("a retry is told as a join: %s", said)
					}
				})
			})
		}
	}
}

func TestRequestKeysTellCallsApart(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		use := func(id string) map[string]any { return map[string]any{"claudecode/toolUseId": id} }
		p.call("run_job", json.RawMessage(`{"command":"x","name":"n"}`), use("a")).wait()
		p.call("run_job", json.RawMessage(`{ "name":"n", "command":"x"}`), use("a")).wait() // the same call again
		p.call("run_job", json.RawMessage(`{"command":"x","name":"n"}`), use("b")).wait()
		p.call("run_job", json.RawMessage(`{"command":"y","name":"n"}`), use("a")).wait()
		p.call("run_job", json.RawMessage(`{"command":"x","name":"n"}`), nil).wait()
		p.call("run_job", json.RawMessage(`{"command":"x","name":"n"}`), nil).wait()
		if len(d.reqKeys) != 6 || d.reqKeys[0] != d.reqKeys[1] {
			t.Fatalf("keys %q", d.reqKeys)
		}
		distinct := map[string]bool{}
		for _, k := range d.reqKeys {
			distinct[k] = true
		}
		if len(distinct) != 5 {
			t.Errorf("%d of 5 different calls have keys of their own", len(distinct))
		}
	})
	a, b := requestKey("s", "t", "1", []byte("x")), requestKey("s2", "t", "1", []byte("x"))
	if a == b || requestKey("s", "t1", "", nil) == requestKey("s", "t", "1", nil) {
		t.Error("different calls have one key")
	}
}

// The form before a job and the questions of a job are rounds of one call.
func TestTheRoundsOfACallHaveOneRequestKey(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		asking := deploy
		asking.AskFirst = json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)
		d.tools.Tools = []ipc.Tool{asking}
		d.onSubmit = func(_ string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
			if r.Answers == nil {
				return ipc.SubmitReply{}, &ipc.Error{Code: ipc.CodeAnswers, Message: "deploy needs confirm"}
			}
			return ipc.SubmitReply{Job: *d.add(ipc.Job{Name: "deploy"})}, nil
		}
		round := func(state any, answers map[string]any) *pending {
			params := map[string]any{"name": "deploy", "arguments": map[string]any{"env": "staging"}, "_meta": map[string]any{"claudecode/toolUseId": "a"}}
			if state != nil {
				params["requestState"], params["inputResponses"] = state, answers
			}
			return p.send("tools/call", params)
		}
		accept := map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}
		before := round(nil, nil).wait()
		during := round(before.result["requestState"], map[string]any{"ask_first": accept})
		time.Sleep(time.Second)
		id := d.first()
		d.ask(id, confirm("q1"))
		after := round(during.wait().result["requestState"], map[string]any{"q1": accept})
		time.Sleep(time.Second)
		d.finish(id, stateSucceeded, "deployed\n", nil)
		after.wait().must(t, "deployed")
		if len(d.reqKeys) != 2 || d.reqKeys[0] != d.reqKeys[1] || len(d.jobs) != 1 {
			t.Errorf("submitted with the keys %q, and there are %d jobs", d.reqKeys, len(d.jobs))
		}
	})
}

func TestAnErroredJobIsAProtocolError(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		time.Sleep(time.Second)
		id := d.first()
		d.finish(id, stateErrored, "", func(j *ipc.Job, r *ipc.Result) {
			j.ResultKind, r.Body = kindError, []byte(`{"code":-32050,"message":"no such customer","data":{"id":7}}`)
		})
		r := call.wait()
		if r.err == nil || r.err.Code != -32050 || r.err.Message != "no such customer" || string(r.err.Data) != `{"id":7}` {
			t.Errorf("got %+v", r.err)
		}
	})
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		d.finish(id, stateErrored, "", func(j *ipc.Job, r *ipc.Result) {
			j.ResultKind, r.Body = kindError, []byte(`{"code":-32050,"message":"no such customer"}`)
		})
		got := p.request("tasks/get", map[string]any{"taskId": id})
		e, _ := got["error"].(map[string]any)
		if got["status"] != "failed" || e["code"] != -32050.0 || e["message"] != "no such customer" || got["result"] != nil {
			t.Errorf("tasks/get says %v", got)
		}
	})
}

func TestAnAbsentDaemonIsToldAndSurvived(t *testing.T) {
	for name, caps := range map[string]map[string]any{"with tasks": withTasks, "without": withForms} {
		t.Run(name, func(t *testing.T) {
			bubble(t, caps, func(t *testing.T, d *fakeDaemon, p *peer) {
				id := d.add(ipc.Job{}).ID
				d.change(func() { d.down = errDown })
				for tool, args := range map[string]any{
					"run_job": map[string]any{"command": "x"}, "get_job": map[string]any{"job_id": id}, "list_jobs": nil,
					"cancel_job": map[string]any{"job_id": id}, "read_job_output": map[string]any{"job_id": id},
				} {
					r := p.call(tool, args, nil).wait()
					r.must(t, "its start is blocked", "Next: end that process")
					if !r.isError() {
						t.Errorf("%s gives no error", tool)
					}
				}
				if caps["extensions"] != nil {
					if r := p.send("tasks/get", map[string]any{"taskId": id}).wait(); r.err == nil || r.err.Code != -32603 || !strings.Contains(r.err.Message, "its start is blocked") {
						t.Errorf("tasks/get says %+v", r)
					}
				}
				d.change(func() { d.down = nil })
				if r := p.call("get_job", map[string]any{"job_id": id}, nil).wait(); r.isError() {
					t.Errorf("afterwards: %s", r.text())
				}
			})
		})
	}
}

func TestAWaitedCallSurvivesAnOutage(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": 1})
		time.Sleep(5 * time.Second)
		d.change(func() { d.down = errDown })
		time.Sleep(40 * time.Second)
		d.change(func() { d.down = nil })
		time.Sleep(5 * time.Second)
		d.finish(d.first(), stateSucceeded, "ok\n", nil)
		call.wait().must(t, "succeeded")
		only(t, d.submits)
	})
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": 1})
		time.Sleep(5 * time.Second)
		d.change(func() { d.down = errDown })
		call.wait().must(t, "was accepted and is not affected", short(d.first()))
	})
}

func TestUnknownToolsAndTasks(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		if r := p.call("rm_rf", nil, nil).wait(); r.err == nil || r.err.Code != -32602 {
			t.Errorf("an unknown tool gives %+v", r)
		}
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			for _, id := range []string{"nonsense", strings.Repeat("e", 32)} {
				r := p.send(method, map[string]any{"taskId": id, "inputResponses": map[string]any{}}).wait()
				if r.err == nil || r.err.Code != -32602 {
					t.Errorf("%s of %q gives %+v", method, id, r)
				} else if expired := strings.Contains(r.err.Message, "expired"); expired != (id != "nonsense") {
					t.Errorf("%s of %q says %q", method, id, r.err.Message)
				}
			}
		}
		// A task's id is whole; only tools take a beginning of it.
		id := d.add(ipc.Job{}).ID
		if r := p.send("tasks/cancel", map[string]any{"taskId": id[:20]}).wait(); r.err == nil || len(d.cancels) != 0 {
			t.Errorf("half an id cancelled: %+v", r)
		}
	})
}

func TestCancellingATaskSaysWhetherAnybodySeesIt(t *testing.T) {
	for _, headless := range []bool{false, true} {
		bubbleWith(t, withTasks, func(o *Options) { o.Caller.Headless = headless }, func(t *testing.T, d *fakeDaemon, p *peer) {
			id := d.add(ipc.Job{}).ID
			p.request("tasks/cancel", map[string]any{"taskId": id})
			p.request("tasks/cancel", map[string]any{"taskId": id})
			if c := d.cancels[0]; c.ID != id || c.Headless != headless || c.Reason == "" || c.Session != "session-1" {
				t.Errorf("cancelled %+v", c)
			}
		})
	}
}

// panicking is a daemon with a bug.
type panicking struct{ *fakeDaemon }

func (panicking) List(context.Context, ipc.ListRequest) (ipc.ListReply, error) { panic("list") }

func (panicking) Submit(context.Context, string, ipc.SubmitRequest) (ipc.SubmitReply, error) {
	panic("submit")
}

func TestAPanicEndsOneRequestOnly(t *testing.T) {
	bubbleWith(t, withTasks, func(o *Options) { o.Daemon = panicking{o.Daemon.(*fakeDaemon)} }, func(t *testing.T, d *fakeDaemon, p *peer) {
		if r := p.call("list_jobs", nil, nil).wait(); r.err == nil || r.err.Code != -32603 {
			t.Errorf("in a handler: %+v", r)
		}
		if r := p.call("run_job", map[string]any{"command": "x"}, nil).wait(); !r.isError() {
			t.Errorf("in the background: %+v", r)
		}
		if r := p.request("tools/list", nil); len(names(r)) == 0 {
			t.Errorf("afterwards: %v", r)
		}
	})
}
