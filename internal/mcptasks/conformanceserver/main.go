// Conformanceserver is what the official conformance suite drives: the Tasks
// extension on a store in memory, with the tools that the suite's tasks
// scenarios call. It is for tests only.
//
// It prints the URL it serves on, and ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/mcptasks"
	"jobd/internal/mcptasks/httpfront"
	"jobd/internal/mcptasks/memory"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	store := memory.New()
	defer store.Close()
	ext := mcptasks.New(store, mcptasks.Options{Logger: slog.Default()})
	caps := &mcp.ServerCapabilities{}
	ext.Declare(caps)
	server := mcp.NewServer(&mcp.Implementation{Name: "conformance", Version: "1"}, &mcp.ServerOptions{Capabilities: caps})
	ext.Attach(server)
	addFixtures(ext, server, store)

	return httpfront.Serve(server, os.Stdout)
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// addFixtures adds the tools of the tasks scenarios.
func addFixtures(ext *mcptasks.Extension, server *mcp.Server, store *memory.Store) {
	type args struct {
		Name     string  `json:"name"`
		Seconds  float64 `json:"seconds"`
		Label    string  `json:"label"`
		Filename string  `json:"filename"`
	}
	type work = func(context.Context, *memory.Run) (*mcp.CallToolResult, error)
	add := func(name, schema string, support mcptasks.TaskSupport, work func(*mcptasks.Call, args) (mcptasks.Answer, work)) {
		tool := &mcp.Tool{Name: name, Description: "A fixture of the conformance suite.", InputSchema: json.RawMessage(schema)}
		ext.AddTool(server, tool, support, func(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
			var a args
			if len(call.Arguments) > 0 {
				if err := json.Unmarshal(call.Arguments, &a); err != nil {
					r := text("wrong arguments: %v", err)
					r.IsError = true
					return mcptasks.Result(r), nil
				}
			}
			answer, w := work(call, a)
			if w == nil {
				return answer, nil
			}
			if !call.Client.Tasks {
				r, err := w(ctx, nil)
				return mcptasks.Result(r), err
			}
			return mcptasks.Handle(store.Start(call.Client, w), "started"), nil
		})
	}
	const none = `{"type":"object"}`
	confirm := json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`)
	name := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)

	add("greet", `{"type":"object","properties":{"name":{"type":"string"}}}`, mcptasks.TaskForbidden, func(_ *mcptasks.Call, a args) (mcptasks.Answer, work) {
		return mcptasks.Result(text("Hello, %s!", a.Name)), nil
	})
	add("slow_compute", `{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}`, mcptasks.TaskOptional, func(_ *mcptasks.Call, a args) (mcptasks.Answer, work) {
		return nil, func(ctx context.Context, _ *memory.Run) (*mcp.CallToolResult, error) {
			select {
			case <-time.After(time.Duration(a.Seconds * float64(time.Second))):
				return text("computed %s in %g s", a.Label, a.Seconds), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	add("failing_job", none, mcptasks.TaskRequired, func(*mcptasks.Call, args) (mcptasks.Answer, work) {
		return nil, func(ctx context.Context, _ *memory.Run) (*mcp.CallToolResult, error) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			r := text("the job failed")
			r.IsError = true
			return r, nil
		}
	})
	add("protocol_error_job", none, mcptasks.TaskRequired, func(*mcptasks.Call, args) (mcptasks.Answer, work) {
		return nil, func(context.Context, *memory.Run) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke"}
		}
	})
	add("confirm_delete", `{"type":"object","properties":{"filename":{"type":"string"}}}`, mcptasks.TaskRequired, func(_ *mcptasks.Call, a args) (mcptasks.Answer, work) {
		return nil, func(ctx context.Context, r *memory.Run) (*mcp.CallToolResult, error) {
			answers, err := r.Ask(ctx, mcptasks.InputRequests{"confirm": mcptasks.Form("Delete "+a.Filename+"?", confirm)})
			if err != nil {
				return nil, err
			}
			if e, err := answers["confirm"].Elicitation(); err != nil || e.Action != mcptasks.Accept {
				return text("%s was kept", a.Filename), nil
			}
			return text("%s was deleted", a.Filename), nil
		}
	})
	add("multi_input", none, mcptasks.TaskRequired, func(*mcptasks.Call, args) (mcptasks.Answer, work) {
		return nil, func(ctx context.Context, r *memory.Run) (*mcp.CallToolResult, error) {
			answers, err := r.Ask(ctx, mcptasks.InputRequests{"first": mcptasks.Form("Who?", name), "second": mcptasks.Form("Sure?", confirm)})
			if err != nil {
				return nil, err
			}
			return text("%d answers", len(answers)), nil
		}
	})
	add("test_tool_with_task", none, mcptasks.TaskRequired, func(call *mcptasks.Call, _ args) (mcptasks.Answer, work) {
		if call.Round == 0 {
			return mcptasks.Ask(mcptasks.InputRequests{"user_name": mcptasks.Form("What is your name?", name)}, ""), nil
		}
		e, err := call.Answers["user_name"].Elicitation()
		return nil, func(context.Context, *memory.Run) (*mcp.CallToolResult, error) {
			if err != nil {
				return text("no name: %v", err), nil
			}
			return text("Hello, %s", e.Content), nil
		}
	})
}
