package mcptasks_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/mcptasks"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A shelf is a store with one task in each status.
type shelf map[string]mcptasks.Task

func newShelf() shelf {
	at := time.Date(2026, 7, 28, 10, 30, 0, 5e8, time.UTC)
	ttl := 90 * time.Minute
	question := mcptasks.Form("Deploy <now>?", json.RawMessage(`{"type":"object","properties":{"sure":{"type":"boolean"}}}`))
	page := mcptasks.URL("Type the token.", "http://127.0.0.1:1/x", "page-1")
	result := &mcp.CallToolResult{Meta: mcp.Meta{"server/job": map[string]any{"exit_code": 0}},
		Content: []mcp.Content{&mcp.TextContent{Text: "line 1\n\"line 2\""}, &mcp.ResourceLink{URI: "job://1", Name: "log"}}}
	failed := text("it broke")
	failed.IsError = true
	s := shelf{}
	for _, t := range []mcptasks.Task{
		{ID: "working", Status: mcptasks.StatusWorking, StatusMessage: "step 2 of 4", PollInterval: 500 * time.Millisecond},
		{ID: "asking", Status: mcptasks.StatusInputRequired, StatusMessage: "waiting", PollInterval: 2 * time.Second,
			InputRequests: mcptasks.InputRequests{"q1": question, "q2": page}},
		{ID: "done", Status: mcptasks.StatusCompleted, TTL: &ttl, Result: result},
		{ID: "broken", Status: mcptasks.StatusCompleted, TTL: &ttl, Result: failed},
		{ID: "failed", Status: mcptasks.StatusFailed, TTL: &ttl,
			Error: &jsonrpc.Error{Code: -32001, Message: "raised by the job", Data: json.RawMessage(`{"a":1}`)}},
		{ID: "cancelled", Status: mcptasks.StatusCancelled, StatusMessage: "cancelled", TTL: &ttl},
	} {
		t.CreatedAt, t.LastUpdatedAt = at, at.Add(time.Minute)
		s[t.ID] = t
	}
	return s
}

func (s shelf) Get(_ context.Context, _ *mcptasks.Client, id string) (mcptasks.Task, error) {
	t, ok := s[id]
	switch {
	case ok:
		return t, nil
	case id == "expired":
		return t, mcptasks.ErrExpiredTask
	}
	return t, mcptasks.ErrUnknownTask
}

func (s shelf) Update(ctx context.Context, c *mcptasks.Client, id string, _ mcptasks.InputResponses) error {
	_, err := s.Get(ctx, c, id)
	return err
}

func (s shelf) Cancel(ctx context.Context, c *mcptasks.Client, id string) error {
	_, err := s.Get(ctx, c, id)
	return err
}

func (s shelf) Watch(ctx context.Context, c *mcptasks.Client, id string, changed func(mcptasks.Task) error) error {
	t, err := s.Get(ctx, c, id)
	if err == nil {
		err = changed(t)
	}
	if err != nil || t.Status.Final() {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s shelf) List(_ context.Context, _ *mcptasks.Client, cursor string) ([]mcptasks.Task, string, error) {
	switch cursor {
	case "":
		return []mcptasks.Task{s["working"], s["broken"]}, "more", nil
	case "more":
		return []mcptasks.Task{s["done"]}, "", nil
	}
	return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown cursor"}
}

// fixedTokens gives out one token.
type fixedTokens struct{ mcptasks.Tokens }

func (f fixedTokens) Issue(context.Context, mcptasks.Round) (string, error) { return "TOKEN", nil }

// shelfServer has a tool for each kind of answer.
func shelfServer() (*mcptasks.Extension, *mcp.Server) {
	s := newShelf()
	ext, server := newServer(s, mcptasks.Options{Tokens: fixedTokens{}})
	add := func(name string, support mcptasks.TaskSupport, a func(*mcptasks.Call) mcptasks.Answer) {
		ext.AddTool(server, &mcp.Tool{Name: name, InputSchema: object}, support, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
			return a(c), nil
		})
	}
	add("plain", mcptasks.TaskForbidden, func(*mcptasks.Call) mcptasks.Answer { return mcptasks.Result(s["done"].Result) })
	add("wrong", mcptasks.TaskOptional, func(*mcptasks.Call) mcptasks.Answer { return mcptasks.Result(s["broken"].Result) })
	add("task", mcptasks.TaskRequired, func(*mcptasks.Call) mcptasks.Answer {
		return mcptasks.Handle(s["working"], "the job is on its way")
	})
	add("ask", mcptasks.TaskOptional, func(c *mcptasks.Call) mcptasks.Answer {
		if c.Answers != nil {
			return mcptasks.Result(text(string(c.Answers["q1"])))
		}
		return mcptasks.Ask(mcptasks.InputRequests{"q1": s["asking"].InputRequests["q1"]}, "")
	})
	return ext, server
}

// The messages of every method, as they are on the wire.
func TestWire(t *testing.T) {
	modern := []string{
		"discover|server/discover|{" + declared + "}",
		"initialize|initialize|" + hello("2025-06-18"),
		"tools-list|tools/list|{" + declared + "}",
		"call-result|tools/call|{\"name\":\"plain\"," + declared + "}",
		"call-tool-error|tools/call|{\"name\":\"wrong\"," + declared + "}",
		"call-task|tools/call|{\"name\":\"task\"," + declared + "}",
		"call-task-undeclared|tools/call|{\"name\":\"task\"," + undeclared + "}",
		"call-input-required|tools/call|{\"name\":\"ask\"," + undeclared + "}",
		"get-working|tasks/get|{\"taskId\":\"working\"," + declared + "}",
		"get-input-required|tasks/get|{\"taskId\":\"asking\"," + declared + "}",
		"get-input-required-form-only|tasks/get|{\"taskId\":\"asking\"," + formOnly + "}",
		"get-input-required-no-forms|tasks/get|{\"taskId\":\"asking\"," + noForms + "}",
		"get-completed|tasks/get|{\"taskId\":\"done\"," + declared + "}",
		"get-tool-error|tasks/get|{\"taskId\":\"broken\"," + declared + "}",
		"get-failed|tasks/get|{\"taskId\":\"failed\"," + declared + "}",
		"get-cancelled|tasks/get|{\"taskId\":\"cancelled\"," + declared + "}",
		"get-unknown|tasks/get|{\"taskId\":\"nobody\"," + declared + "}",
		"get-expired|tasks/get|{\"taskId\":\"expired\"," + declared + "}",
		"get-malformed-id|tasks/get|{\"taskId\":\"a b\"," + declared + "}",
		"get-number|tasks/get|{\"taskId\":5," + declared + "}",
		"get-nothing|tasks/get|{" + declared + "}",
		"get-undeclared|tasks/get|{\"taskId\":\"done\"," + undeclared + "}",
		"update|tasks/update|{\"taskId\":\"asking\",\"inputResponses\":{\"q1\":{\"action\":\"decline\"}}," + declared + "}",
		"update-nothing|tasks/update|{\"taskId\":\"asking\"," + declared + "}",
		"update-unknown|tasks/update|{\"taskId\":\"nobody\",\"inputResponses\":{}," + declared + "}",
		"cancel|tasks/cancel|{\"taskId\":\"working\"," + declared + "}",
		"cancel-final|tasks/cancel|{\"taskId\":\"done\"," + declared + "}",
		"cancel-undeclared|tasks/cancel|{\"taskId\":\"done\"," + undeclared + "}",
		"result|tasks/result|{\"taskId\":\"done\"," + declared + "}",
		"list|tasks/list|{" + declared + "}",
		"listen-tasks|subscriptions/listen|{\"notifications\":{\"taskIds\":[\"done\",\"nobody\",\"expired\",\"done\"]}," + declared + "}",
		"listen-mixed|subscriptions/listen|{\"notifications\":{\"toolsListChanged\":true,\"taskIds\":[\"asking\"]}," + formOnly + "}",
		"listen-failed|subscriptions/listen|{\"notifications\":{\"taskIds\":[\"failed\"]}," + declared + "}",
		"listen-undeclared|subscriptions/listen|{\"notifications\":{\"taskIds\":[\"done\"]}," + undeclared + "}",
		"listen-malformed|subscriptions/listen|{\"notifications\":{\"taskIds\":[5]}," + declared + "}",
		"listen-tools|subscriptions/listen|{\"notifications\":{\"toolsListChanged\":true}," + undeclared + "}",
	}
	for _, c := range modern {
		golden(t, c, "")
	}
	for _, c := range []string{
		"legacy-initialize|initialize|" + hello("2025-11-25"),
		"legacy-tools-list|tools/list|{}",
		"legacy-call-result|tools/call|{\"name\":\"plain\"}",
		"legacy-call-task|tools/call|{\"name\":\"task\",\"task\":{\"ttl\":60000}}",
		"legacy-call-instant|tools/call|{\"name\":\"wrong\",\"task\":{}}",
		"legacy-call-task-plainly|tools/call|{\"name\":\"task\"}",
		"legacy-call-plain-as-task|tools/call|{\"name\":\"plain\",\"task\":{}}",
		"legacy-get-working|tasks/get|{\"taskId\":\"working\"}",
		"legacy-get-tool-error|tasks/get|{\"taskId\":\"broken\"}",
		"legacy-get-unknown|tasks/get|{\"taskId\":\"nobody\"}",
		"legacy-result|tasks/result|{\"taskId\":\"done\"}",
		"legacy-result-failed|tasks/result|{\"taskId\":\"failed\"}",
		"legacy-result-cancelled|tasks/result|{\"taskId\":\"cancelled\"}",
		"legacy-list|tasks/list|{}",
		"legacy-list-more|tasks/list|{\"cursor\":\"more\"}",
		"legacy-list-wrong|tasks/list|{\"cursor\":\"x\"}",
		"legacy-cancel-final|tasks/cancel|{\"taskId\":\"done\"}",
		"legacy-update|tasks/update|{\"taskId\":\"asking\",\"inputResponses\":{}}",
		"legacy-modern-get|tasks/get|{\"taskId\":\"done\"," + declared + "}",
		"legacy-modern-call|tools/call|{\"name\":\"task\"," + declared + "}",
	} {
		golden(t, c, "2025-11-25")
	}
	golden(t, "older-call-task|tools/call|{\"name\":\"task\",\"task\":{}}", "2025-06-18")
	golden(t, "older-get|tasks/get|{\"taskId\":\"done\"}", "2025-06-18")
}

// messagesOf is how many messages a case of golden brings, where not one.
var messagesOf = map[string]int{"listen-tasks": 2, "listen-mixed": 2, "listen-failed": 2}

// variable is what differs from run to run where the extension makes the task.
var variable = regexp.MustCompile(`instant-[A-Z2-7]+|20\d\d-\d\d-\d\dT[0-9:.]+Z`)

// golden sends one request, written as NAME|METHOD|PARAMS, and compares what
// comes back with a file.
func golden(t *testing.T, c, revision string) {
	name, rest, _ := strings.Cut(c, "|")
	method, params, _ := strings.Cut(rest, "|")
	t.Run(name, func(t *testing.T) {
		ext, server := shelfServer()
		p := connect(t, ext, server)
		if revision != "" && method != "initialize" {
			p = open(t, ext, server, revision)
		}
		p.id = 100
		p.send(method, params)
		lines := []string{"> " + method + " " + params}
		for range max(1, messagesOf[name]) {
			lines = append(lines, "< "+p.read().line)
		}
		got := strings.Join(lines, "\n") + "\n"
		if name == "legacy-call-instant" {
			got = variable.ReplaceAllString(got, "VARIABLE")
		}
		file := filepath.Join("testdata", "wire", name+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}
