package frontend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const toolGetJob = "get_job"

var jobIDParam = param{name: "job_id", kind: aString, must: true, example: `"3f9ac2d41b07"`,
	about: "The job's id, or a beginning of it that no other job has."}

var getJobParams = []param{
	jobIDParam,
	{name: "wait_seconds", kind: anInteger, min: 0, max: 50, example: `50`,
		about: "Wait so long for the end or a question. Default: 0."},
}

// getJobTool tells the state of a job, and its result.
func (f *Frontend) getJobTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolGetJob, Title: "Look at a job",
			Description: "State, progress and open questions of a background job, and its result once it has ended.",
			InputSchema: schemaOf(getJobParams),
			Annotations: &mcp.ToolAnnotations{Title: "Look at a job", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no()},
		},
		support: mcptasks.TaskForbidden,
		handle:  f.getJob,
	}
}

func (f *Frontend) getJob(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	var a struct {
		ID   string `json:"job_id"`
		Wait int64  `json:"wait_seconds"`
	}
	if err := decode(toolGetJob, getJobParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	job, err := f.daemon.Get(ctx, ipc.GetRequest{ID: a.ID})
	if err != nil {
		return mcptasks.Result(toolError(jobError(err, a.ID))), nil
	}
	f.catalog.daemonSeen()
	if a.Wait > 0 && !job.Final && len(open(job)) == 0 {
		f.line.Waits(call.Client.Header)
		w := f.watch(call.Client, callState{Since: time.Now()}, job)
		w.deadline = time.Now().Add(time.Duration(a.Wait) * time.Second)
		for !w.over && !w.job.Final && len(open(w.job)) == 0 {
			if err := w.next(ctx, ""); err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return mcptasks.Result(toolError(jobError(err, a.ID))), nil
			}
		}
		job = w.job
	}
	f.catalog.answers(job)
	if !job.Final {
		return mcptasks.Result(f.describe(job, call.Client)), nil
	}
	r, err := f.daemon.Result(ctx, ipc.GetRequest{ID: job.ID, Exact: true})
	if err != nil {
		return mcptasks.Result(toolError(jobError(err, a.ID))), nil
	}
	f.deliveries.onWrite(call.Client, r.Job)
	result := render(r)
	result.IsError = false // the call for a look did not fail
	return mcptasks.Result(result), nil
}

// describe tells what a live job does.
func (f *Frontend) describe(job ipc.Job, c *mcptasks.Client) *mcp.CallToolResult {
	var b strings.Builder
	fmt.Fprintf(&b, "Job %s (%s) is %s", short(job.ID), oneLine(job.Name, maxName), job.State)
	if job.StartedAt != nil {
		fmt.Fprintf(&b, "; it has run for %s", span(time.Duration(job.DurationMS)*time.Millisecond))
	}
	fmt.Fprintf(&b, " and printed %s bytes.\n", number(job.OutputBytes))
	fmt.Fprintf(&b, "Tool: %s. Directory: %s. Started: %s.\n", oneLine(job.Tool, 100), oneLine(job.Cwd, 300), job.CreatedAt.UTC().Format(time.RFC3339))
	if message := oneLine(job.StatusMessage, 200); message != "" {
		fmt.Fprintf(&b, "Now: %s\n", message)
	}
	if job.State == stateWaiting {
		b.WriteString(f.whereToAnswer(job, c))
	} else {
		fmt.Fprintf(&b, "read_job_output {\"job_id\":%q,\"tail_lines\":50} shows what it printed last.", short(job.ID))
	}
	return &mcp.CallToolResult{Content: []mcp.Content{text(b.String())}, Meta: mcp.Meta{metaJob: metaOf(job, job.OutputDropped > 0)}}
}

// jobError is an error about a job that was named in a call.
func jobError(err error, id string) string {
	s := sentence(err)
	switch code(err) {
	case ipc.CodeNotFound:
		return s + "\nNext: list_jobs shows the jobs of this project and their ids; " + quoted(id, 60) + " is none of them."
	case ipc.CodeExpired:
		return s + "\nNext: nothing; jobs are removed some time after they ended."
	}
	return s
}
