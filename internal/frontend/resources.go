package frontend

import (
	"context"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const (
	jobScheme    = "jobd://jobs/"
	outputSuffix = "/output"
	// listedResources bounds a list of resources.
	listedResources = 50
)

func jobURI(id string) string { return jobScheme + id }

func outputURI(id string) string { return jobScheme + id + outputSuffix }

// addResources offers jobs as resources, so that a person can mention one.
func (f *Frontend) addResources() {
	f.server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: jobScheme + "{id}", Name: "job", Title: "Job",
		Description: "State of a job, and its result once it has ended.", MIMEType: "text/plain"}, f.readResource)
	f.server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: jobScheme + "{id}" + outputSuffix, Name: "job output", Title: "Output of a job",
		Description: "What a job printed: all of it, or the end of a long output.", MIMEType: "text/plain"}, f.readResource)
}

// listResources lists the newest jobs of the project. It starts no daemon: no
// daemon runs no jobs, and what ended is found by list_jobs.
func (f *Frontend) listResources(ctx context.Context) (*mcp.ListResourcesResult, error) {
	list := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	reply, err := f.passive.List(ctx, ipc.ListRequest{Project: f.caller.Project, Limit: listedResources})
	if err != nil {
		return list, nil
	}
	for _, job := range reply.Jobs {
		name := oneLine(job.Name, maxName)
		// Claude Code's menu of mentions shows the description, and little of it.
		list.Resources = append(list.Resources,
			&mcp.Resource{URI: jobURI(job.ID), Name: "job " + short(job.ID), Title: name, Description: oneLine(job.Name, 40) + ", " + job.State + ": " + oneLine(job.StatusMessage, 100), MIMEType: "text/plain"},
			&mcp.Resource{URI: outputURI(job.ID), Name: "output of job " + short(job.ID), Title: "Output of " + name, Description: "output of " + oneLine(job.Name, 40), MIMEType: "text/plain"})
	}
	return list, nil
}

// readResource reads a job or its output.
func (f *Frontend) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	id, output := strings.CutSuffix(strings.TrimPrefix(uri, jobScheme), outputSuffix)
	var body string
	var err error
	if output {
		body, err = f.outputText(ctx, id)
	} else {
		body, err = f.jobText(ctx, id)
	}
	if err != nil {
		if c := code(err); c == ipc.CodeNotFound || c == ipc.CodeExpired || c == ipc.CodeAmbiguous {
			return nil, mcp.ResourceNotFoundError(uri)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: oneLine(sentence(err), 1_000)}
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: body}}}, nil
}

// jobText is a job's state, or its result.
func (f *Frontend) jobText(ctx context.Context, id string) (string, error) {
	r, err := f.daemon.Result(ctx, ipc.GetRequest{ID: id})
	if err != nil {
		return "", err
	}
	result := render(r)
	if !r.Job.Final {
		c := mcptasks.ClientFrom(ctx)
		if c == nil {
			return "", errors.New("the request has no client")
		}
		result = f.describe(r.Job, c)
	}
	var parts []string
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// outputText is the end of a job's output.
func (f *Frontend) outputText(ctx context.Context, id string) (string, error) {
	out, err := f.daemon.Output(ctx, ipc.OutputRequest{ID: id, Limit: 64 << 10, Lines: 10_000})
	if err != nil {
		return "", err
	}
	body, _ := tail(clean(string(out.Data)), 4*maxText)
	if out.Offset > 0 {
		body = "[" + number(out.Offset) + " bytes before this are left out; read_job_output reads them.]\n" + body
	}
	return body, nil
}
