package frontend

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const toolCancelJob = "cancel_job"

var cancelJobParams = []param{jobIDParam}

// cancelJobTool ends a job.
func (f *Frontend) cancelJobTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolCancelJob, Title: "Cancel a job",
			Description: "End a background job and every process it started.",
			InputSchema: schemaOf(cancelJobParams),
			Annotations: &mcp.ToolAnnotations{Title: "Cancel a job", DestructiveHint: yes(), IdempotentHint: true, OpenWorldHint: no()},
		},
		support: mcptasks.TaskForbidden,
		handle:  f.cancelJob,
	}
}

func (f *Frontend) cancelJob(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	var a struct {
		ID string `json:"job_id"`
	}
	if err := decode(toolCancelJob, cancelJobParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	job, err := f.daemon.Cancel(ctx, f.cancelRequest(a.ID, "cancelled by the model with cancel_job"))
	if err != nil {
		return mcptasks.Result(toolError(jobError(err, a.ID))), nil
	}
	f.catalog.daemonSeen()
	said := ""
	switch {
	case job.State == stateCancelled:
		said = fmt.Sprintf("Job %s (%s) is cancelled.", short(job.ID), oneLine(job.Name, maxName))
	case job.Final:
		said = summary(job) + " It had ended before it could be cancelled; get_job shows its result."
	default:
		said = fmt.Sprintf("Job %s (%s) is being ended: first by SIGTERM, 10 s later by SIGKILL. What it did so far is not undone.", short(job.ID), oneLine(job.Name, maxName))
	}
	return mcptasks.Result(&mcp.CallToolResult{Content: []mcp.Content{text(said)}, Meta: mcp.Meta{metaJob: metaOf(job, job.OutputDropped > 0)}}), nil
}

// cancelRequest asks for the end of a job in the name of this session.
func (f *Frontend) cancelRequest(id, reason string) ipc.CancelRequest {
	return ipc.CancelRequest{ID: id, Reason: reason, Session: f.caller.Session, Client: f.caller.Client}
}
