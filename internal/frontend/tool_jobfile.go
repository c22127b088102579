package frontend

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// toolOf is a job file's tool as MCP lists it.
func toolOf(t ipc.Tool) *mcp.Tool {
	tool := &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema}
	if len(t.Annotations) > 0 {
		var a mcp.ToolAnnotations
		if json.Unmarshal(t.Annotations, &a) == nil {
			tool.Annotations = &a
		}
	}
	return tool
}

// supportOf reads a job file's word for how calls are answered.
func supportOf(task string) mcptasks.TaskSupport {
	switch task {
	case "required":
		return mcptasks.TaskRequired
	case "never":
		return mcptasks.TaskForbidden
	}
	return mcptasks.TaskOptional
}

// jobFileTool calls a job file's tool. The daemon checks the arguments, which
// it knows the schema of at the moment of the call.
func (f *Frontend) jobFileTool(t ipc.Tool) mcptasks.Handler {
	return func(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
		arguments := call.Arguments
		if len(arguments) == 0 {
			arguments = json.RawMessage("{}")
		}
		r := f.submission(t.Name)
		r.Arguments = arguments
		return f.run(ctx, call, wanted{request: r, support: supportOf(t.Task), askFirst: t.AskFirst})
	}
}
