package frontend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"jobd/internal/ipc"
)

// initialize makes a peer a client of an older revision.
func (p *peer) initialize(capabilities map[string]any) map[string]any {
	r := p.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": map[string]any{"name": "old", "version": "1"}})
	p.notify("notifications/initialized", map[string]any{})
	return r
}

func TestAnOlderClientWaitsAndIsAskedByElicitation(t *testing.T) {
	bubble(t, nil, func(t *testing.T, d *fakeDaemon, p *peer) {
		asked := 0
		p.onRequest = func(r *jsonrpc.Request) (any, error) {
			var params struct {
				Message string `json:"message"`
			}
			_ = json.Unmarshal(r.Params, &params)
			if r.Method != "elicitation/create" || !strings.Contains(params.Message, "Deploy") {
				return nil, fmt.Errorf("not expected: %s %s", r.Method, r.Params)
			}
			asked++
			return map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}, nil
		}
		if r := p.initialize(map[string]any{"elicitation": map[string]any{}}); r["protocolVersion"] != "2025-11-25" || !strings.Contains(r["instructions"].(string), "run_job") {
			t.Errorf("initialized with %v", r)
		}
		if got := strings.Join(names(p.request("tools/list", nil)), " "); got != builtinNames {
			t.Errorf("listed %s", got)
		}
		call := p.call("run_job", map[string]any{"command": "x"}, map[string]any{"progressToken": "t"})
		for key := range 3 {
			time.Sleep(15 * time.Second)
			d.ask(d.first(), confirm(fmt.Sprint("q", key)))
		}
		time.Sleep(15 * time.Second)
		d.finish(d.first(), stateSucceeded, "deployed\n", nil)
		r := call.wait()
		r.must(t, "deployed")
		if asked != 3 || len(d.answered) != 3 || r.result["resultType"] != nil {
			t.Errorf("asked %d times, %+v, result %v", asked, d.answered, r.result)
		}
		last := 0.0
		for _, n := range p.told("notifications/progress") {
			v := n["progress"].(float64)
			if v <= last {
				t.Errorf("progress fell from %v to %v", last, v)
			}
			last = v
		}
		if last < 50 {
			t.Errorf("the last progress was %v", last)
		}
	})
}

func TestAnOlderClientWithoutFormsIsToldWhereToAnswer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.initialize(map[string]any{})
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		time.Sleep(time.Second)
		d.ask(d.first(), confirm("q1"))
		call.wait().must(t, "jobd answer", "answer_job")
	})
}

func TestAnOlderClientWithoutProgressGetsAHandleInText(t *testing.T) {
	bubble(t, nil, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.initialize(map[string]any{})
		start := time.Now()
		p.call("run_job", map[string]any{"command": "x"}, nil).wait().must(t, "goes on", "get_job")
		if took := time.Since(start); took != 50*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTheExperimentalTasksOf20251125(t *testing.T) {
	bubble(t, nil, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.initialize(map[string]any{"tasks": map[string]any{"list": map[string]any{}, "cancel": map[string]any{}}})
		start := time.Now()
		r := p.send("tools/call", map[string]any{"name": "run_job", "arguments": map[string]any{"command": "x"}, "task": map[string]any{"ttl": 60000}}).wait()
		task, _ := r.result["task"].(map[string]any)
		if task == nil || task["taskId"] != d.first() || time.Since(start) != 0 {
			t.Fatalf("got %+v after %v", r, time.Since(start))
		}
		id := d.first()
		if got := p.request("tasks/get", map[string]any{"taskId": id}); got["status"] != "working" {
			t.Errorf("tasks/get says %v", got)
		}
		if got := p.request("tasks/list", nil)["tasks"].([]any); len(got) != 1 {
			t.Errorf("tasks/list says %v", got)
		}
		result := p.send("tasks/result", map[string]any{"taskId": id})
		time.Sleep(time.Minute)
		synctest.Wait()
		if result.answered() {
			t.Fatal("tasks/result came before the end")
		}
		d.finish(id, stateSucceeded, "ok\n", nil)
		result.wait().must(t, "succeeded", "ok")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		only(t, seen(d, &d.delivered))
	})
}

func TestTasksAreListedByPages(t *testing.T) {
	bubble(t, nil, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.initialize(map[string]any{"tasks": map[string]any{"list": map[string]any{}}})
		for i := range 120 {
			session := "session-1"
			if i%12 == 0 {
				session = "other"
			}
			d.add(ipc.Job{Session: session})
		}
		seen, cursor := map[string]bool{}, ""
		for range 10 {
			params := map[string]any{}
			if cursor != "" {
				params["cursor"] = cursor
			}
			r := p.request("tasks/list", params)
			for _, task := range r["tasks"].([]any) {
				seen[task.(map[string]any)["taskId"].(string)] = true
			}
			if cursor, _ = r["nextCursor"].(string); cursor == "" {
				break
			}
		}
		if len(seen) != 110 {
			t.Errorf("listed %d, want the 110 of this session", len(seen))
		}
		if r := p.send("tasks/list", map[string]any{"cursor": "nonsense"}).wait(); r.err == nil || r.err.Code != -32602 {
			t.Errorf("a made-up cursor gives %+v", r)
		}
	})
}
