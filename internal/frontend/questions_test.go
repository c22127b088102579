package frontend

import (
	"strings"
	"testing"
	"time"

	"jobd/internal/ipc"
)

func TestAQuestionEndsTheWaitForTheHandle(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		time.Sleep(200 * time.Millisecond)
		id := d.first()
		start := time.Now()
		d.ask(id, confirm("q1"))
		r := call.wait()
		if r.result["resultType"] != "task" || time.Since(start) != 0 {
			t.Fatalf("got %v after %v", r.result, time.Since(start))
		}
		got := p.request("tasks/get", map[string]any{"taskId": id})
		requests, _ := got["inputRequests"].(map[string]any)
		q, _ := requests["q1"].(map[string]any)
		params, _ := q["params"].(map[string]any)
		if got["status"] != "input_required" || q["method"] != "elicitation/create" || params["message"] != "Deploy to production?" || params["requestedSchema"] == nil {
			t.Fatalf("tasks/get says %v", got)
		}
		p.request("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}, "other": map[string]any{"action": "accept"}}})
		if got := p.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" || got["inputRequests"] != nil {
			t.Errorf("after the answer tasks/get says %v", got)
		}
		a := d.answered[0]
		for _, other := range d.answered {
			if other.Question == "q1" {
				a = other
			}
		}
		if a.Action != "accept" || string(a.Content) != `{"confirm":true}` || a.By != "form" || a.Model {
			t.Errorf("the daemon was told %+v", a)
		}
	})
}

func TestAWaitedCallAsksAndGoesOn(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		args, meta := map[string]any{"command": "x"}, map[string]any{"claudecode/toolUseId": "toolu_1", "progressToken": 1}
		call := p.call("run_job", args, meta)
		time.Sleep(5 * time.Second)
		id := d.first()
		d.ask(id, confirm("q1"))
		r := call.wait()
		requests, _ := r.result["inputRequests"].(map[string]any)
		state, _ := r.result["requestState"].(string)
		if r.result["resultType"] != "input_required" || requests["q1"] == nil || state == "" || strings.Contains(state, id) {
			t.Fatalf("got %v", r.result)
		}
		answer := map[string]any{"name": "run_job", "arguments": args, "requestState": state, "_meta": meta,
			"inputResponses": map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}}}
		again := p.send("tools/call", answer)
		time.Sleep(5 * time.Second)
		d.finish(id, stateSucceeded, "deployed\n", nil)
		again.wait().must(t, "succeeded", "deployed")
		if a := only(t, d.answered); a.Job != id || a.Question != "q1" || a.Action != "accept" {
			t.Errorf("answered %+v", a)
		}
		only(t, d.submits)
		if r := p.send("tools/call", answer).wait(); r.err == nil || r.err.Code != -32602 {
			t.Errorf("a used requestState gives %+v", r)
		}
	})
}

func TestAnAnswerThatWasNotTakenIsAskedAgain(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		args := map[string]any{"command": "x"}
		call := p.call("run_job", args, nil)
		time.Sleep(time.Second)
		id := d.first()
		d.ask(id, confirm("q1"))
		state := call.wait().result["requestState"]
		d.onAnswer = func(r ipc.AnswerRequest) (ipc.AnswerReply, error) {
			q := confirm("q2")
			q.Fault = "confirm must be true or false"
			j := d.find(id)
			j.Questions = []ipc.Question{q}
			j.Revision++
			return ipc.AnswerReply{Fault: q.Fault}, nil
		}
		r := p.send("tools/call", map[string]any{"name": "run_job", "arguments": args, "requestState": state,
			"inputResponses": map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"confirm": "x"}}}}).wait()
		requests, _ := r.result["inputRequests"].(map[string]any)
		q, _ := requests["q2"].(map[string]any)
		if q == nil || !strings.Contains(q["params"].(map[string]any)["message"].(string), "confirm must be true or false") {
			t.Errorf("got %v", r.result)
		}
	})
}

func TestClosingTheFormIsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name      string
		headless  bool
		goesOn    bool // unattended: wait
		cancelled bool
		want      string
	}{
		{"a person leaves the question open", false, false, false, "jobd answer"},
		{"without a screen the job ends unanswered", true, false, true, "was ended because it was not answered"},
		{"without a screen and unattended wait it goes on", true, true, true, "jobd answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbleWith(t, withForms, func(o *Options) { o.Caller.Headless = c.headless }, func(t *testing.T, d *fakeDaemon, p *peer) {
				args := map[string]any{"command": "x"}
				call := p.call("run_job", args, nil)
				time.Sleep(time.Second)
				id := d.first()
				d.ask(id, confirm("q1"))
				d.onCancel = func(j *ipc.Job, r ipc.CancelRequest) {
					if !c.goesOn {
						now := time.Now()
						j.State, j.Final, j.EndedAt, j.Questions = stateUnanswered, true, &now, nil
						j.Revision++
					}
				}
				r := p.send("tools/call", map[string]any{"name": "run_job", "arguments": args, "requestState": call.wait().result["requestState"],
					"inputResponses": map[string]any{"q1": map[string]any{"action": "cancel"}}}).wait()
				r.must(t, c.want)
				if got := len(d.cancels) == 1 && d.cancels[0].Headless && d.cancels[0].Unanswered; got != c.cancelled {
					t.Errorf("cancels: %+v", d.cancels)
				}
				if len(d.answered) != 0 || d.submits[0].Interactive == c.headless {
					t.Errorf("answers %+v, submitted %+v", d.answered, d.submits[0])
				}
			})
		})
	}
}

func TestAClientWithoutFormsIsToldWhereToAnswer(t *testing.T) {
	bubble(t, withNone, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": 1})
		time.Sleep(time.Second)
		id := short(d.first())
		d.ask(d.first(), confirm("q1"))
		call.wait().must(t, "Deploy to production?", "48 min left", "jobd answer "+id, "answer_job", "Do not answer for the person")
		p.call("answer_job", map[string]any{"job_id": id, "content": map[string]any{"confirm": true}}, nil).wait().must(t, "was given")
		if a := only(t, d.answered); a.Model || a.By != "tool" || string(a.Content) != `{"confirm":true}` {
			t.Errorf("answered %+v", a)
		}
	})
}

func TestHiddenAndConsentedQuestions(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		hidden, page := confirm("q17"), ipc.Question{Key: "u", Mode: ipc.ModeURL, Message: "The token", URL: "http://127.0.0.1:1/x", State: "open"}
		hidden.Hidden = true
		id := d.add(ipc.Job{}).ID
		get := func() map[string]any { return p.request("tasks/get", map[string]any{"taskId": id}) }
		d.ask(id, page)
		got := get()
		params, _ := got["inputRequests"].(map[string]any)["u"].(map[string]any)["params"].(map[string]any)
		if got["status"] != "input_required" || params["mode"] != "url" || params["url"] != page.URL || params["elicitationId"] == "" {
			t.Errorf("a page is asked as %v", got)
		}
		d.job(id, func(j *ipc.Job) { j.Questions[0].Consented = true })
		if got := get(); got["status"] != "working" {
			t.Errorf("after the consent: %v", got)
		}
		d.ask(id, hidden)
		if got := get(); got["status"] != "working" || !strings.Contains(got["statusMessage"].(string), "jobd answer "+short(id)) {
			t.Errorf("a hidden question: %v", got)
		}
	})
	bubble(t, map[string]any{"elicitation": map[string]any{"form": map[string]any{}}, "extensions": withTasks["extensions"]}, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		d.ask(id, confirm("q1"), ipc.Question{Key: "u", Mode: ipc.ModeURL, Message: "The token", URL: "http://127.0.0.1:1/x", State: "open"})
		if got := p.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" || got["inputRequests"] != nil {
			t.Errorf("a client without url mode sees %v", got)
		}
	})
}
