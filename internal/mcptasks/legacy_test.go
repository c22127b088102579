package mcptasks_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"jobd/internal/mcptasks"
)

// startLegacy starts a task by the "task" parameter.
func (p *peer) startLegacy() string {
	p.t.Helper()
	m := p.call("tools/call", `{"name":"run","arguments":{},"task":{"ttl":60000}}`)
	var r struct{ Task struct{ TaskID string } }
	if err := json.Unmarshal(m.Result, &r); err != nil || r.Task.TaskID == "" {
		p.t.Fatalf("no task was made: %s", m.line)
	}
	return r.Task.TaskID
}

func TestALegacyTask(t *testing.T) {
	s := newStage(t)
	p := open(t, s.ext, s.server, "2025-11-25")
	id := p.startLegacy()
	if m := p.call("tasks/get", `{"taskId":"`+id+`"}`); m.field("status") != "working" || m.field("ttl") == "" {
		t.Errorf("%s", m.line)
	}
	result := p.send("tasks/result", `{"taskId":"`+id+`"}`)
	s.ask <- mcptasks.InputRequests{"q": mcptasks.Form("Sure?", object)}
	if m := p.notification("notifications/tasks/status"); m.field("status") != "input_required" || strings.Contains(m.line, "related-task") {
		t.Errorf("%s", m.line)
	}
	q := p.notification("elicitation/create")
	if !strings.Contains(q.line, `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`) || q.field("message") != "Sure?" {
		t.Errorf("%s", q.line)
	}
	p.write(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept","content":{}}}`)
	close(s.say)
	m := p.reply(result)
	if texts(m.Result) != "done" || !strings.Contains(m.line, `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`) || m.field("resultType") != "" {
		t.Errorf("%s", m.line)
	}
	if m := p.await(func(m message) bool {
		return m.Method == "notifications/tasks/status" && m.field("status") == "completed"
	}); m.field("taskId") != id {
		t.Errorf("%s", m.line)
	}
}

func TestALegacyQuestionThatIsAnsweredElsewhereIsTakenBack(t *testing.T) {
	s := newStage(t)
	p := open(t, s.ext, s.server, "2025-11-25")
	other := connect(t, s.ext, s.server)
	id := p.startLegacy()
	result := p.send("tasks/result", `{"taskId":"`+id+`"}`)
	s.ask <- mcptasks.InputRequests{"q": mcptasks.Form("Sure?", object)}
	q := p.notification("elicitation/create")
	other.call("tasks/update", `{"taskId":"`+id+`","inputResponses":{"q":{"action":"accept"}},`+declared+`}`)
	if m := p.notification("notifications/cancelled"); m.field("requestId") != strings.Trim(string(q.ID), `"`) {
		t.Errorf("%s", m.line)
	}
	close(s.say)
	if m := p.reply(result); texts(m.Result) != "done" {
		t.Errorf("%s", m.line)
	}
}

// A client may poll and never ask for the result before the end.
func TestALegacyQuestionNeedsNoRequestForTheResult(t *testing.T) {
	s := newStage(t)
	p := open(t, s.ext, s.server, "2025-11-25")
	id := p.startLegacy()
	s.ask <- mcptasks.InputRequests{"q": mcptasks.Form("Sure?", object)}
	q := p.notification("elicitation/create")
	p.write(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"decline"}}`)
	close(s.say)
	if m := p.call("tasks/result", `{"taskId":"`+id+`"}`); texts(m.Result) != "done" {
		t.Errorf("%s", m.line)
	}
	for _, m := range p.kept {
		if m.Method == "elicitation/create" {
			t.Errorf("asked twice: %s", m.line)
		}
	}
}

// A task that another connection made is followed from tasks/result on.
func TestALegacyClientThatComesBackIsAsked(t *testing.T) {
	s := newStage(t)
	first := open(t, s.ext, s.server, "2025-11-25")
	id := first.startLegacy()
	first.close()
	s.ask <- mcptasks.InputRequests{"q": mcptasks.Form("Sure?", object)}
	p := open(t, s.ext, s.server, "2025-11-25")
	result := p.send("tasks/result", `{"taskId":"`+id+`"}`)
	q := p.notification("elicitation/create")
	p.write(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept","content":{}}}`)
	close(s.say)
	if m := p.reply(result); texts(m.Result) != "done" {
		t.Errorf("%s", m.line)
	}
}

func TestCancellingALegacyTask(t *testing.T) {
	s := newStage(t)
	p := open(t, s.ext, s.server, "2025-11-25")
	id := p.startLegacy()
	if m := p.call("tasks/cancel", `{"taskId":"`+id+`"}`); m.field("status") != "cancelled" {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tasks/cancel", `{"taskId":"`+id+`"}`); m.code() != jsonrpc.CodeInvalidParams {
		t.Errorf("again: %s", m.line)
	}
	if m := p.call("tasks/result", `{"taskId":"`+id+`"}`); m.code() != jsonrpc.CodeInternalError {
		t.Errorf("its result: %s", m.line)
	}
}

func TestListingLegacyTasks(t *testing.T) {
	s := newStage(t)
	p := open(t, s.ext, s.server, "2025-11-25")
	want := map[string]bool{p.startLegacy(): true, p.startLegacy(): true, p.startLegacy(): true}
	cursor := "{}"
	for {
		var page struct {
			Tasks      []struct{ TaskID string }
			NextCursor string
		}
		m := p.call("tasks/list", cursor)
		if err := json.Unmarshal(m.Result, &page); err != nil {
			t.Fatalf("%s: %v", m.line, err)
		}
		for _, task := range page.Tasks {
			delete(want, task.TaskID)
		}
		if page.NextCursor == "" {
			break
		}
		cursor = `{"cursor":"` + page.NextCursor + `"}`
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// lean is a store that lists tasks without their results.
type lean struct{ shelf }

func (l lean) List(context.Context, *mcptasks.Client, string) ([]mcptasks.Task, string, error) {
	t := l.shelf["done"]
	t.Result = nil
	f := l.shelf["failed"]
	f.Error = nil
	return []mcptasks.Task{t, f}, "", nil
}

func TestListedAndNewTasksNeedNoResult(t *testing.T) {
	l := lean{newShelf()}
	ext, server := newServer(l, mcptasks.Options{})
	addTool(ext, server, "ended", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) {
		t := l.shelf["done"]
		t.Result = nil
		return mcptasks.Handle(t, ""), nil
	})
	p := open(t, ext, server, "2025-11-25")
	if m := p.call("tasks/list", "{}"); m.Error != nil || !strings.Contains(m.line, `"completed"`) || !strings.Contains(m.line, `"failed"`) {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tools/call", `{"name":"ended","task":{}}`); !strings.Contains(m.line, `"completed"`) {
		t.Errorf("%s", m.line)
	}
	if m := connect(t, ext, server).tool("ended", "{}", declared); m.field("status") != "completed" || m.field("result") != "" {
		t.Errorf("%s", m.line)
	}
}

// Who asks for a task gets one, though the result was there at once.
func TestALegacyTaskOfAResultThatIsThereAtOnce(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	var requested mcptasks.Client
	addTool(ext, server, "quick", mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		requested = *c.Client
		r := text("wrong arguments")
		r.IsError = true
		return mcptasks.Result(r), nil
	})
	p := open(t, ext, server, "2025-11-25")
	m := p.call("tools/call", `{"name":"quick","task":{"ttl":60000}}`)
	var r struct {
		Task struct{ TaskID, Status string }
	}
	if err := json.Unmarshal(m.Result, &r); err != nil || r.Task.Status != "working" {
		t.Fatalf("%s: %v", m.line, err)
	}
	if !requested.Tasks || !requested.TaskRequested || requested.RequestedTTL == nil || requested.RequestedTTL.Seconds() != 60 {
		t.Errorf("the client is described as %+v", requested)
	}
	id := `{"taskId":"` + r.Task.TaskID + `"}`
	if m := p.call("tasks/get", id); m.field("status") != "failed" || m.field("statusMessage") != "wrong arguments" {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tasks/result", id); texts(m.Result) != "wrong arguments" || m.field("isError") != "true" {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tasks/list", "{}"); !strings.Contains(m.line, r.Task.TaskID) {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tasks/cancel", id); m.code() != jsonrpc.CodeInvalidParams {
		t.Errorf("%s", m.line)
	}
	// It belongs to the connection.
	if m := open(t, ext, server, "2025-11-25").call("tasks/get", id); m.code() != jsonrpc.CodeInvalidParams {
		t.Errorf("%s", m.line)
	}
}

func TestAConnectionHasOneKindOfTasks(t *testing.T) {
	s := newStage(t)
	old := open(t, s.ext, s.server, "2025-11-25")
	id := old.startLegacy()
	if m := old.call("tasks/get", `{"taskId":"`+id+`",`+declared+`}`); m.code() != jsonrpc.CodeMethodNotFound {
		t.Errorf("the extension on a connection that was initialized: %s", m.line)
	}
	if m := old.tool("run", "{}", declared); m.code() == 0 {
		t.Errorf("a call as of the extension on a connection that was initialized: %s", m.line)
	}
	modern := connect(t, s.ext, s.server)
	if m := modern.call("tools/call", `{"name":"run","task":{},`+declared+`}`); m.field("resultType") != "task" {
		t.Errorf("the older parameter in a modern call: %s", m.line)
	}
	if m := modern.call("tasks/result", `{"taskId":"`+id+`",`+declared+`}`); m.code() != jsonrpc.CodeMethodNotFound {
		t.Errorf("%s", m.line)
	}
}

func TestLegacyTasksCanBeSwitchedOff(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{NoLegacyTasks: true})
	addTool(ext, server, "quick", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) {
		return mcptasks.Result(text("plain")), nil
	})
	p := connect(t, ext, server)
	if m := p.call("initialize", hello("2025-11-25")); strings.Contains(m.line, `"tasks"`) {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tools/call", `{"name":"quick","task":{}}`); texts(m.Result) != "plain" {
		t.Errorf("%s", m.line)
	}
	if m := p.call("tasks/list", `{}`); m.code() != jsonrpc.CodeMethodNotFound {
		t.Errorf("%s", m.line)
	}
}
