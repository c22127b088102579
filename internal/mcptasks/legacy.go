package mcptasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// This file has the experimental tasks of the 2025-11-25 revision
// ("basic/utilities/tasks"), for clients that initialize with it on a wrapped
// connection. They have the same store as those of the extension, and a
// connection never has both.

const (
	// maxInstant and instantTTL bound the results that are kept as tasks for one
	// connection.
	maxInstant = 256
	instantTTL = time.Hour
	// maxFollowed bounds the tasks of one connection that are followed.
	maxFollowed = 256
	// cancelWait is how long tasks/cancel waits for the task's end, which the
	// revision wants before the reply.
	cancelWait = 15 * time.Second
)

// relatedTask is the key in _meta that ties a message to a task.
const relatedTask = "io.modelcontextprotocol/related-task"

func related(id string) map[string]any {
	return map[string]any{relatedTask: map[string]any{"taskId": id}}
}

// legacy is what a connection that was opened by initialize keeps.
type legacy struct {
	mu       sync.Mutex
	instant  map[string]Task // calls that ended at once
	order    []string        // ids of instant, oldest first
	followed map[string]bool // tasks whose status and questions are told
}

// initialized returns the state of a connection that was opened by initialize;
// nil = it was not.
func (c *conn) initialized() *legacy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legacy
}

// legacyTasks reports whether the client has the older tasks.
func (e *Extension) legacyTasks(c *Client) bool {
	return e.takesLegacyTasks(c) && c.request.conn.initialized() != nil
}

// takesLegacyTasks reports whether the client could have them.
func (e *Extension) takesLegacyTasks(c *Client) bool {
	return !e.opts.NoLegacyTasks && c.Legacy && c.Protocol == protocolTasks && c.request != nil
}

// legacyInitialize serves initialize: it declares the older tasks instead of the
// extension, which such a client could not use.
func (e *Extension) legacyInitialize(ctx context.Context, method string, req mcp.Request, c *Client, next mcp.MethodHandler) (mcp.Result, error) {
	res, err := next(ctx, method, req)
	r, ok := res.(*mcp.InitializeResult)
	if err != nil || !ok || c.request == nil {
		return res, err
	}
	conn := c.request.conn
	conn.mu.Lock()
	conn.legacy = &legacy{instant: map[string]Task{}, followed: map[string]bool{}}
	conn.mu.Unlock()
	m, err := object(r)
	if err != nil {
		return nil, err
	}
	caps, err := object(m["capabilities"])
	if err != nil {
		return nil, err
	}
	var extensions map[string]json.RawMessage
	if raw, ok := caps["extensions"]; ok {
		if extensions, err = object(raw); err != nil {
			return nil, err
		}
		delete(extensions, ExtensionID)
		if delete(caps, "extensions"); len(extensions) > 0 {
			caps["extensions"], _ = encode(extensions)
		}
	}
	if !e.opts.NoLegacyTasks && r.ProtocolVersion == protocolTasks {
		tasks := map[string]any{"cancel": struct{}{}, "requests": map[string]any{"tools": map[string]any{"call": struct{}{}}}}
		if _, lists := e.store.(Lister); lists {
			tasks["list"] = struct{}{}
		}
		caps["tasks"], _ = encode(tasks)
	}
	if m["capabilities"], err = encode(caps); err != nil {
		return nil, err
	}
	return asReply(m, c)
}

// legacyTools serves tools/list: it says of each tool whether it can be called
// as a task.
func (e *Extension) legacyTools(ctx context.Context, method string, req mcp.Request, c *Client, next mcp.MethodHandler) (mcp.Result, error) {
	res, err := next(ctx, method, req)
	if err != nil || !e.legacyTasks(c) {
		return res, err
	}
	m, err := object(res)
	if err != nil {
		return nil, err
	}
	var tools []map[string]json.RawMessage
	if err := json.Unmarshal(m["tools"], &tools); err != nil {
		return nil, fmt.Errorf("reading the list of tools: %w", err)
	}
	for _, t := range tools {
		var name string
		if err := json.Unmarshal(t["name"], &name); err != nil {
			return nil, fmt.Errorf("reading the name of a tool: %w", err)
		}
		switch support, _ := e.support(name); support {
		case TaskOptional:
			t["execution"] = json.RawMessage(`{"taskSupport":"optional"}`)
		case TaskRequired:
			t["execution"] = json.RawMessage(`{"taskSupport":"required"}`)
		case TaskForbidden: // the default of the revision
		}
	}
	if m["tools"], err = encode(tools); err != nil {
		return nil, err
	}
	return asReply(m, c)
}

// support returns how a tool takes tasks; a tool of the SDK's own kind does not.
func (e *Extension) support(name string) (TaskSupport, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.tools[name]
	if !ok {
		return TaskForbidden, false
	}
	return s, true
}

// legacyCall looks for the "task" parameter of a tools/call.
func (e *Extension) legacyCall(c *Client, tool string) error {
	if !e.legacyTasks(c) {
		return nil
	}
	var p struct {
		Task *struct {
			TTL *float64 `json:"ttl"`
		} `json:"task"`
	}
	if json.Unmarshal(c.request.params, &p) != nil {
		return invalid(`"task" cannot be read: want {"ttl": MILLISECONDS}`)
	}
	if p.Task == nil {
		return nil
	}
	if support, known := e.support(tool); known && support == TaskForbidden || !known {
		return notFound("the tool %.200q cannot be called as a task", tool)
	}
	c.Tasks, c.TaskRequested = true, true
	if ttl := p.Task.TTL; ttl != nil && *ttl >= 0 && *ttl <= float64(100*365*24*time.Hour/time.Millisecond) {
		d := time.Duration(*ttl * float64(time.Millisecond))
		c.RequestedTTL = &d
	}
	return nil
}

// legacyTask are the members of a task of the revision.
type legacyTask struct {
	TaskID        string `json:"taskId"`
	Status        Status `json:"status"`
	StatusMessage string `json:"statusMessage,omitempty"`
	CreatedAt     string `json:"createdAt"`
	LastUpdatedAt string `json:"lastUpdatedAt"`
	TTL           *int64 `json:"ttl"`
	PollInterval  int64  `json:"pollInterval,omitempty"`
}

func newLegacyTask(t Task, c *Client) (legacyTask, error) {
	w, err := newWireTask(t, c)
	if err != nil {
		return legacyTask{}, err
	}
	if t.Status == StatusCompleted && t.Result != nil && t.Result.IsError {
		w.Status = StatusFailed // the revision counts a tool's error as one
	}
	return legacyTask{w.TaskID, w.Status, w.StatusMessage, w.CreatedAt, w.LastUpdatedAt, w.TTLMs, w.PollIntervalMs}, nil
}

// legacyHandle makes the reply that creates a task, and begins to follow the
// task for the client.
func (e *Extension) legacyHandle(c *Client, a handleAnswer) (*reply, error) {
	w, err := newLegacyTask(a.task, c)
	if err != nil {
		return nil, bug("%v", err)
	}
	m, err := members("", map[string]any{"task": w})
	if err != nil {
		return nil, bug("%v", err)
	}
	r := &reply{members: m}
	r.Meta = copied(a.task.Meta)
	if a.note != "" {
		if r.Meta == nil {
			r.Meta = map[string]any{}
		}
		r.Meta["io.modelcontextprotocol/model-immediate-response"] = a.note
	}
	e.legacyFollow(c, a.task.ID, w.Status)
	return r, nil
}

// legacyInstant makes a task of a result that was there at once: who asks for a
// task must get one.
func (e *Extension) legacyInstant(c *Client, result *mcp.CallToolResult) (*reply, error) {
	if result == nil {
		return nil, bug("a tool gave no result")
	}
	at, ttl := now(), instantTTL
	t := Task{ID: "instant-" + rand.Text(), Status: StatusCompleted, CreatedAt: at, LastUpdatedAt: at, TTL: &ttl,
		PollInterval: 100 * time.Millisecond, Result: result, StatusMessage: firstLine(result)}
	l := c.request.conn.initialized()
	l.mu.Lock()
	l.instant[t.ID] = t
	l.order = append(l.order, t.ID)
	for len(l.order) > 0 && (len(l.order) > maxInstant || at.Sub(l.instant[l.order[0]].CreatedAt) > instantTTL) {
		delete(l.instant, l.order[0])
		l.order = l.order[1:]
	}
	l.mu.Unlock()
	// It begins as working, which the revision demands of every task.
	first := t
	first.Status, first.Result, first.StatusMessage = StatusWorking, nil, ""
	w, err := newLegacyTask(first, c)
	if err != nil {
		return nil, bug("%v", err)
	}
	m, err := members("", map[string]any{"task": w})
	if err != nil {
		return nil, bug("%v", err)
	}
	return &reply{members: m}, nil
}

// firstLine returns the beginning of a result's text, for the status message: it
// is all that some clients show of a task that failed.
func firstLine(r *mcp.CallToolResult) string {
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok && text != nil {
			line, _, _ := strings.Cut(text.Text, "\n")
			line = strings.ToValidUTF8(line[:min(len(line), 200)], "")
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return -1
				}
				return r
			}, line)
		}
	}
	return ""
}

// legacyFind returns a task of the connection or of the store.
func (e *Extension) legacyFind(ctx context.Context, c *Client, id string) (Task, error) {
	l := c.request.conn.initialized()
	l.mu.Lock()
	t, ok := l.instant[id]
	l.mu.Unlock()
	if ok && now().Sub(t.CreatedAt) <= instantTTL {
		return t, nil
	}
	t, err := e.store.Get(ctx, c, id)
	if err != nil {
		return Task{}, about(id, err)
	}
	return t, nil
}

// legacyGet serves tasks/get.
func (e *Extension) legacyGet(ctx context.Context, c *Client, id string) (*reply, error) {
	t, err := e.legacyFind(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return legacySnapshot(t, c)
}

func legacySnapshot(t Task, c *Client) (*reply, error) {
	w, err := newLegacyTask(t, c)
	if err != nil {
		return nil, bug("%v", err)
	}
	m, err := members("", w)
	if err != nil {
		return nil, bug("%v", err)
	}
	return &reply{members: m}, nil
}

// legacyList serves tasks/list.
func (e *Extension) legacyList(ctx context.Context, c *Client, p *taskParams) (*reply, error) {
	cursor, ok := p.Cursor.(string)
	if p.Cursor != nil && !ok {
		return nil, invalid(`"cursor" is not a string`)
	}
	lister, ok := e.store.(Lister)
	if !ok {
		return nil, notFound("tasks are not listed by this server")
	}
	tasks, next, err := lister.List(ctx, c, cursor)
	if err != nil {
		return nil, err
	}
	wire := struct {
		Tasks      []legacyTask `json:"tasks"`
		NextCursor string       `json:"nextCursor,omitempty"`
	}{[]legacyTask{}, next}
	if cursor == "" {
		l := c.request.conn.initialized()
		l.mu.Lock()
		for i := len(l.order) - 1; i >= 0; i-- {
			tasks = append(tasks, l.instant[l.order[i]])
		}
		l.mu.Unlock()
	}
	for _, t := range tasks {
		w, err := newLegacyTask(t, c)
		if err != nil {
			return nil, bug("%v", err)
		}
		wire.Tasks = append(wire.Tasks, w)
	}
	m, err := members("", wire)
	if err != nil {
		return nil, bug("%v", err)
	}
	return &reply{members: m}, nil
}

// errEnough ends a Watch whose caller has what it needs.
var errEnough = errors.New("enough")

// legacyCancel serves tasks/cancel: the reply is the task, after its end where
// that comes soon.
func (e *Extension) legacyCancel(ctx context.Context, c *Client, id string) (*reply, error) {
	t, err := e.legacyFind(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if t.Status.Final() {
		return nil, invalid("task %s cannot be cancelled: it is %s already", id, t.Status)
	}
	if err := e.store.Cancel(ctx, c, id); err != nil {
		return nil, about(id, err)
	}
	wait, stop := context.WithTimeout(ctx, cancelWait)
	defer stop()
	err = e.store.Watch(wait, c, id, func(latest Task) error {
		if t = latest; t.Status.Final() {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, context.DeadlineExceeded) {
		return nil, about(id, err)
	}
	return legacySnapshot(t, c)
}

// legacyResult serves tasks/result: it waits for the task's end, while the
// task's questions are put to the client.
func (e *Extension) legacyResult(ctx context.Context, c *Client, p *taskParams) (*reply, error) {
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	t, err := e.legacyFind(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if !t.Status.Final() {
		e.legacyFollow(c, id, "")
		if t, err = e.legacyWait(ctx, c, id); err != nil {
			return nil, about(id, err)
		}
	}
	switch t.Status {
	case StatusCompleted:
		if t.Result == nil {
			return nil, bug("task %s is completed and has no result", id)
		}
		r, err := result(c, t.Result)
		if err != nil {
			return nil, err
		}
		if r.Meta == nil {
			r.Meta = map[string]any{}
		}
		r.Meta[relatedTask] = map[string]any{"taskId": id}
		return r, nil
	case StatusFailed:
		if t.Error == nil {
			return nil, bug("task %s has failed and has no error", id)
		}
		return nil, t.Error
	default:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the task was cancelled: " + t.StatusMessage}
	}
}

// object decodes what encodes as an object, one level deep.
func object(v any) (map[string]json.RawMessage, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, fmt.Errorf("encoding a result: %w", err)
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("reading a result: %w", err)
	}
	return m, nil
}

// asReply makes a reply of a result that was decoded by object.
func asReply(m map[string]json.RawMessage, c *Client) (*reply, error) {
	b, err := members("", m)
	if err != nil {
		return nil, err
	}
	return &reply{members: b, request: c.request}, nil
}
