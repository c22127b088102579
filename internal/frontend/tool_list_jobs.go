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

const toolListJobs = "list_jobs"

// statesOf are the words for a selection of states.
var statesOf = map[string][]string{
	"live":  {stateQueued, stateStarting, stateRunning, stateWaiting, stateStopping},
	"ended": {stateSucceeded, stateFailed, stateTimedOut, stateUnanswered, stateCancelled, stateErrored, stateLost},
}

var listJobsParams = []param{
	{name: "state", kind: aString, example: `"live"`,
		enum: []string{"live", "ended", stateQueued, stateStarting, stateRunning, stateWaiting, stateStopping,
			stateSucceeded, stateFailed, stateTimedOut, stateUnanswered, stateCancelled, stateErrored, stateLost},
		about: "Only jobs in this state."},
	{name: "text", kind: aString, example: `"migrate"`,
		about: "Only jobs whose name, tool, command or directory contains this."},
	{name: "key", kind: aString, example: `"release-1.4"`,
		about: "Only the job with this idempotency key."},
	{name: "all_projects", kind: aBoolean, example: `true`,
		about: "Also jobs of other projects. Default: false."},
	{name: "limit", kind: anInteger, min: 1, max: 100, example: `20`,
		about: "At most so many. Default: 20."},
}

// listJobsTool finds jobs.
func (f *Frontend) listJobsTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolListJobs, Title: "List jobs",
			Description: "Background jobs of this project, newest first, with state and id; finds lost jobs and results that were never delivered.",
			InputSchema: schemaOf(listJobsParams),
			Annotations: &mcp.ToolAnnotations{Title: "List jobs", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no()},
		},
		support: mcptasks.TaskForbidden,
		handle:  f.listJobs,
	}
}

func (f *Frontend) listJobs(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	a := struct {
		State string `json:"state"`
		Text  string `json:"text"`
		Key   string `json:"key"`
		All   bool   `json:"all_projects"`
		Limit int    `json:"limit"`
	}{Limit: 20}
	if err := decode(toolListJobs, listJobsParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	r := ipc.ListRequest{Project: f.caller.Project, Text: a.Text, Key: a.Key, Limit: a.Limit + 1}
	if a.All {
		r.Project = ""
	}
	if a.State != "" {
		if r.States = statesOf[a.State]; r.States == nil {
			r.States = []string{a.State}
		}
	}
	reply, err := f.daemon.List(ctx, r)
	if err != nil {
		return mcptasks.Result(toolError(sentence(err))), nil
	}
	f.catalog.daemonSeen()
	result := &mcp.CallToolResult{Content: []mcp.Content{text(f.table(reply.Jobs, a.Limit, a.All, r))}}
	if faults := f.catalog.faultText(); faults != "" {
		result.Content = append(result.Content, text(faults))
	}
	return mcptasks.Result(result), nil
}

// table lists jobs, two lines each at most.
func (f *Frontend) table(jobs []ipc.Job, limit int, all bool, r ipc.ListRequest) string {
	where := "of the project " + oneLine(f.caller.Project, 200)
	if all {
		where = "of all projects"
	}
	if len(jobs) == 0 {
		fits := ""
		if r.States != nil || r.Text != "" || r.Key != "" {
			fits = " that fit"
		}
		if !all {
			return "No jobs " + where + fits + ". {\"all_projects\": true} looks in the others too."
		}
		return "No jobs" + fits + "."
	}
	more := len(jobs) > limit
	if more {
		jobs = jobs[:limit]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Jobs %s, newest first:\n", where)
	for i, job := range jobs {
		line := f.row(job, all)
		if b.Len()+len(line) > maxText-200 {
			jobs, more = jobs[:i], true
			break
		}
		b.WriteString(line)
	}
	if more {
		fmt.Fprintf(&b, "Only the newest %d are shown; narrow the list with state, text or key, or raise limit.\n", len(jobs))
	}
	return strings.TrimRight(b.String(), "\n")
}

// row is one job of a list.
func (f *Frontend) row(job ipc.Job, all bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s %s, %s ago: %s", short(job.ID), job.State, span(time.Since(job.CreatedAt).Truncate(time.Second)), oneLine(job.Name, maxName))
	if job.Tool != toolRunJob && job.Tool != "" {
		fmt.Fprintf(&b, " [%s]", oneLine(job.Tool, 64))
	}
	if job.Final && job.DeliveredAt == nil && !job.Shell {
		b.WriteString(" [result not delivered]")
	}
	if !f.own(job.Session) {
		b.WriteString(" [other session]")
	}
	if message := oneLine(job.StatusMessage, 120); message != "" {
		fmt.Fprintf(&b, " — %s", message)
	}
	b.WriteString("\n")
	if all && job.Project != f.caller.Project {
		fmt.Fprintf(&b, "  project %s\n", oneLine(job.Project, 200))
	}
	for _, q := range job.Questions {
		fmt.Fprintf(&b, "  ASKS the person: %s (%s left; jobd answer %s)\n", quoted(q.Message, 120), span(time.Duration(q.LeftMS)*time.Millisecond), short(job.ID))
	}
	return b.String()
}
