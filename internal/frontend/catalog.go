package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const (
	// listWait is how long tools/list waits for the daemon.
	listWait = 2 * time.Second
	// changeWait is how long one request waits for the job files to change.
	changeWait = 5 * time.Minute
)

// A builtin is a tool of jobd's own.
type builtin struct {
	tool    *mcp.Tool
	support mcptasks.TaskSupport
	handle  mcptasks.Handler
}

// A catalog is the list of tools: the built-in ones, and those of job files as
// far as the daemon has told them. It follows the daemon while one runs, and
// starts one only for a call, or to read files that say what tools there are.
type catalog struct {
	f         *Frontend
	builtins  []builtin
	configDir string

	mu        sync.Mutex
	known     bool // the daemon has told once
	following bool
	first     chan struct{} // closed when known, or when following ended
	version   string
	runJob    bool
	anyone    bool // a job has been seen that lets a model answer
	fromFiles map[string]ipc.Tool
	order     []string // their names, as the daemon lists them
	faults    []string // what is wrong with job files
}

func newCatalog(f *Frontend, configDir string) *catalog {
	c := &catalog{f: f, configDir: configDir, runJob: true, fromFiles: map[string]ipc.Tool{}}
	c.builtins = []builtin{f.runJobTool(), f.getJobTool(), f.readOutputTool(), f.listJobsTool(), f.cancelJobTool(), f.answerJobTool()}
	for _, b := range c.builtins {
		f.ext.AddTool(f.server, b.tool, b.support, b.handle)
	}
	return c
}

// lists is the middleware that fills in what the SDK does not know of lists.
func (f *Frontend) lists(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "tools/list":
			f.catalog.wait(ctx)
		case "resources/list":
			return f.listResources(ctx)
		}
		result, err := next(ctx, method, req)
		if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
			f.catalog.arrange(list, mcptasks.ClientFrom(ctx))
		}
		return result, err
	}
}

// find is the middleware that looks for a tool that is not known yet: the
// daemon may not have been there when the tools were listed.
func (c *catalog) find(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (_ mcp.Result, err error) {
		defer func() { // outside of what the extension catches
			if v := recover(); v != nil {
				c.f.log.Error("panic", "while", method, "value", v)
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the server has a bug: looking for a tool failed"}
			}
		}()
		call, ok := req.(*mcp.CallToolRequest)
		if !ok || call.Params == nil || c.has(call.Params.Name) {
			return next(ctx, method, req)
		}
		within, cancel := context.WithTimeout(ctx, listWait)
		reply, unreachable := c.f.daemon.Tools(within, ipc.ToolsRequest{Project: c.f.caller.Project})
		cancel()
		if unreachable != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the tool " + quoted(call.Params.Name, 100) +
				" is none of jobd's own, and whether a job file has it cannot be found out now: " + sentence(unreachable)}
		}
		c.apply(reply)
		if faults := c.faultText(); faults != "" && !c.has(call.Params.Name) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no tool " + quoted(call.Params.Name, 100) + ". " + faults}
		}
		return next(ctx, method, req)
	}
}

// has reports whether a tool can be called.
func (c *catalog) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.fromFiles[name]
	return ok || slices.ContainsFunc(c.builtins, func(b builtin) bool { return b.tool.Name == name })
}

// arrange puts the tools in the order in which a model should meet them, and
// leaves out what this client has no use for.
func (c *catalog) arrange(list *mcp.ListToolsResult, client *mcptasks.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rank := map[string]int{}
	for i, b := range c.builtins {
		rank[b.tool.Name] = i
	}
	for i, name := range c.order {
		rank[name] = len(c.builtins) + i
	}
	forms := client != nil && c.f.showsForms(client)
	list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool {
		return t.Name == toolRunJob && !c.runJob || t.Name == toolAnswerJob && forms && !c.anyone
	})
	if faults := oneLine(faultText(c.faults), 600); faults != "" {
		for i, t := range list.Tools {
			if t.Name == toolListJobs { // the SDK keeps the tool: change a copy
				told := *t
				told.Description += " " + faults
				list.Tools[i] = &told
			}
		}
	}
	slices.SortStableFunc(list.Tools, func(a, b *mcp.Tool) int { return rank[a.Name] - rank[b.Name] })
}

// wait returns when the daemon has told its tools, when it is known not to be
// there, or after [listWait].
func (c *catalog) wait(ctx context.Context) {
	c.mu.Lock()
	known := c.known
	first := c.follow(c.asked())
	c.mu.Unlock()
	if known {
		return
	}
	t := time.NewTimer(listWait)
	defer t.Stop()
	select {
	case <-first:
	case <-t.C:
	case <-ctx.Done():
	}
}

// asked reports whether there are files that only the daemon reads and that say
// what tools there are. Starting a daemon for a list is worth it then.
func (c *catalog) asked() bool {
	if _, err := os.Stat(filepath.Join(c.f.caller.Project, ".jobd", "jobs.yaml")); err == nil {
		return true
	}
	if c.configDir == "" {
		return false
	}
	if _, err := os.Stat(filepath.Join(c.configDir, "config.yaml")); err == nil {
		return true
	}
	entries, err := os.ReadDir(filepath.Join(c.configDir, "jobs"))
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".yaml") })
}

// daemonSeen is told that the daemon runs.
func (c *catalog) daemonSeen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(false)
}

// answers is told of a job: where a model may answer it, answer_job is offered
// from then on.
func (c *catalog) answers(job ipc.Job) {
	if job.AnswerBy != answerByAnyone {
		return
	}
	c.mu.Lock()
	news := !c.anyone
	c.anyone = true
	c.mu.Unlock()
	if news {
		c.announce()
	}
}

// announce makes the SDK tell clients that the list has changed.
func (c *catalog) announce() {
	last := c.builtins[len(c.builtins)-1]
	c.f.ext.AddTool(c.f.server, last.tool, last.support, last.handle)
}

// follow begins to follow the daemon, if that is not being done. It returns a
// channel that is closed when something is known. c.mu must be held.
func (c *catalog) follow(start bool) <-chan struct{} {
	if c.following {
		return c.first
	}
	c.following = true
	first := make(chan struct{})
	c.first = first
	daemon := c.f.passive
	if start {
		daemon = c.f.daemon
	}
	ok := c.f.background(func(life context.Context) {
		told := sync.OnceFunc(func() { close(first) })
		defer func() {
			c.mu.Lock()
			c.following = false
			c.mu.Unlock()
			told()
		}()
		request := ipc.ToolsRequest{Project: c.f.caller.Project}
		for {
			reply, err := daemon.Tools(life, request)
			if err != nil {
				return // the next list or call begins anew
			}
			c.apply(reply)
			told()
			daemon = c.f.passive
			if reply.Version == request.Version && request.WaitMS > 0 {
				// Nothing changed. A daemon that does not wait must not be asked in a loop.
				if !pause(life, time.Second) {
					return
				}
			}
			request.Version, request.WaitMS = reply.Version, changeWait.Milliseconds()
		}
	})
	if !ok {
		c.following = false
		close(first)
	}
	return first
}

// apply takes over what the daemon told.
func (c *catalog) apply(reply ipc.ToolsReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && c.version == reply.Version {
		return
	}
	news := c.runJob != reply.RunJob || !slices.Equal(c.faults, reply.Faults)
	c.known, c.version, c.runJob, c.faults = true, reply.Version, reply.RunJob, reply.Faults
	fresh := map[string]ipc.Tool{}
	c.order = c.order[:0]
	for _, t := range reply.Tools {
		if fresh[t.Name].Name != "" || c.isBuiltin(t.Name) || !isObjectSchema(t.InputSchema) {
			continue // the daemon refuses such a file; another version's might not
		}
		fresh[t.Name] = t
		c.order = append(c.order, t.Name)
		if t.AnswerBy == answerByAnyone && !c.anyone {
			c.anyone, news = true, true
		}
	}
	var gone []string
	for name := range c.fromFiles {
		if _, ok := fresh[name]; !ok {
			gone = append(gone, name)
		}
	}
	for _, name := range c.order {
		if t := fresh[name]; !same(t, c.fromFiles[name]) {
			c.f.ext.AddTool(c.f.server, toolOf(t), supportOf(t.Task), c.f.jobFileTool(t))
		}
	}
	if len(gone) > 0 {
		c.f.server.RemoveTools(gone...)
	}
	c.fromFiles = fresh
	if news {
		c.announce()
	}
}

// faultText says which job files cannot be used and why, "" = none.
func (c *catalog) faultText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return faultText(c.faults)
}

func faultText(faults []string) string {
	if len(faults) == 0 {
		return ""
	}
	said, _ := head(clean(strings.Join(faults, "\n")), 2_000)
	return "Tools of these job files are missing; tell the person:\n" + said
}

func (c *catalog) isBuiltin(name string) bool {
	return slices.ContainsFunc(c.builtins, func(b builtin) bool { return b.tool.Name == name })
}

// isObjectSchema reports whether the SDK takes this as a tool's input schema.
func isObjectSchema(raw json.RawMessage) bool {
	var s struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(raw, &s) == nil && s.Type == "object"
}

// same reports whether two tools are listed and called alike.
func same(a, b ipc.Tool) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
