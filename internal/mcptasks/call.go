package mcptasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxRounds bounds how often a handler may ask within one request of an older
// client: one that always asks again would never return.
const maxRounds = 100

// AddTool adds a tool whose handler may answer with tasks and questions. Tools
// of the SDK's own kind work beside it. Servers of one extension share the
// names: a name stands for one kind of support.
func (e *Extension) AddTool(s *mcp.Server, t *mcp.Tool, support TaskSupport, h Handler) {
	e.mu.Lock()
	e.tools[t.Name] = support
	e.mu.Unlock()
	s.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c, slot := ClientFrom(ctx), slotFrom(ctx)
		if slot == nil {
			return nil, bug("the tool %s was called outside of the extension", t.Name)
		}
		if support == TaskForbidden {
			c.Tasks = false
		}
		if support == TaskRequired && !c.Tasks {
			if e.takesLegacyTasks(c) {
				return nil, notFound("the tool %s can only be called as a task", t.Name)
			}
			return nil, errUndeclared()
		}
		r, err := e.answer(ctx, c, req.Params, h)
		if err != nil {
			return nil, err
		}
		slot.reply = r
		return &mcp.CallToolResult{}, nil // the middleware has the reply
	})
}

// A slot takes the reply of a tool past the SDK, which knows results only.
type slot struct{ reply *reply }

type slotKey struct{}

func slotFrom(ctx context.Context) *slot {
	s, _ := ctx.Value(slotKey{}).(*slot)
	return s
}

// call serves tools/call.
func (e *Extension) call(ctx context.Context, method string, req mcp.Request, c *Client, next mcp.MethodHandler) (mcp.Result, error) {
	p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
	if !ok {
		return next(ctx, method, req)
	}
	if err := e.legacyCall(c, p.Name); err != nil {
		return nil, err
	}
	s := &slot{}
	res, err := next(context.WithValue(ctx, slotKey{}, s), method, req)
	if err != nil {
		return nil, err
	}
	if s.reply == nil {
		r, ok := res.(*mcp.CallToolResult)
		if !ok || r.InputRequests != nil || r.RequestState != "" {
			return res, nil // the SDK's own multi round-trip
		}
		if s.reply, err = result(c, r); err != nil {
			return nil, err
		}
	}
	s.reply.request = c.request
	return s.reply, nil
}

// result makes the reply of a plain result.
func result(c *Client, r *mcp.CallToolResult) (*reply, error) {
	if r == nil {
		return nil, bug("a tool gave no result")
	}
	t, err := newToolResult(r, false)
	if err != nil {
		return nil, bug("%v", err)
	}
	out := &reply{inline: t}
	if !c.Legacy {
		out.members = []byte(`"resultType":"complete"`)
	}
	out.Meta = copied(r.Meta)
	return out, nil
}

// answer calls the handler, as often as it takes, and makes the reply.
func (e *Extension) answer(ctx context.Context, c *Client, p *mcp.CallToolParamsRaw, h Handler) (*reply, error) {
	call := &Call{Client: c, Tool: p.Name, Arguments: p.Arguments}
	if !c.Legacy {
		if err := e.resume(ctx, call, p); err != nil {
			return nil, err
		}
	}
	for {
		a, err := h(ctx, call)
		if err != nil {
			return nil, err
		}
		switch a := a.(type) {
		case resultAnswer:
			if c.TaskRequested {
				return e.legacyInstant(c, a.result)
			}
			return result(c, a.result)
		case handleAnswer:
			return e.handle(c, a)
		case askAnswer:
			if err := askable(c, a.questions); err != nil {
				return nil, err
			}
			if !c.Legacy {
				return e.ask(ctx, call, a)
			}
			if call.Round++; call.Round >= maxRounds {
				return nil, bug("the tool %s asked %d times in one call", call.Tool, maxRounds)
			}
			if call.Answers, err = elicit(ctx, c, a.questions); err != nil {
				return nil, err
			}
			call.State = a.state
		default:
			return nil, bug("the tool %s gave no answer", call.Tool)
		}
	}
}

// handle makes the reply that creates a task, SEP-2663 "Task Creation".
func (e *Extension) handle(c *Client, a handleAnswer) (*reply, error) {
	if !c.Tasks {
		return nil, bug("task %s was to answer a request that does not take tasks", a.task.ID)
	}
	if c.Legacy {
		return e.legacyHandle(c, a)
	}
	w, err := newWireTask(a.task, c)
	if err != nil {
		return nil, bug("%v", err)
	}
	w.InputRequests = nil // it comes with tasks/get, like the result and the error
	r := &reply{}
	if r.members, err = members(`"resultType":"task"`, w); err != nil {
		return nil, bug("%v", err)
	}
	r.Meta = copied(a.task.Meta)
	if a.note != "" {
		if r.Meta == nil {
			r.Meta = map[string]any{}
		}
		r.Meta["com.anthropic/agent-task"] = map[string]any{"modelImmediateResponse": a.note}
	}
	return r, nil
}

// askable finds questions that must not be sent.
func askable(c *Client, questions InputRequests) error {
	if len(questions) == 0 {
		return bug("a tool asked nothing")
	}
	for key, q := range questions {
		if !c.Allows(q) {
			return bug("the question %q (%s) was to be put to a client that does not take it", key, q.Method)
		}
	}
	return nil
}

// ask makes the reply that asks, SEP-2322 "InputRequiredResult".
func (e *Extension) ask(ctx context.Context, call *Call, a askAnswer) (*reply, error) {
	token, err := e.opts.Tokens.Issue(ctx, Round{Binding: e.binding(call), Number: call.Round + 1,
		Keys: slices.Sorted(maps.Keys(a.questions)), State: a.state})
	if err != nil {
		return nil, fmt.Errorf("keeping the state of the call: %w", err)
	}
	m, err := members(`"resultType":"input_required"`, struct {
		InputRequests InputRequests `json:"inputRequests"`
		RequestState  string        `json:"requestState"`
	}{a.questions, token})
	if err != nil {
		return nil, bug("%v", err)
	}
	return &reply{members: m}, nil
}

// resume finds the round that a repeated call continues.
func (e *Extension) resume(ctx context.Context, call *Call, p *mcp.CallToolParamsRaw) error {
	if p.RequestState == "" {
		// Answers that belong to nothing are of no use: the tool asks (again).
		// SEP-2322 "Error Handling" prefers that to an error.
		_, err := call.Client.request.inputResponses(p.InputResponses)
		return err
	}
	round, err := e.opts.Tokens.Redeem(ctx, p.RequestState)
	if errors.Is(err, ErrBadToken) {
		return invalid("%s: send the call again without it", ErrBadToken)
	}
	if err != nil {
		return err
	}
	if round.Binding != e.binding(call) {
		return invalid("requestState belongs to another call")
	}
	answers, err := call.Client.request.inputResponses(p.InputResponses)
	if err != nil {
		return err
	}
	call.Round, call.State, call.Answers = round.Number, round.State, InputResponses{}
	for _, key := range round.Keys {
		if a, ok := answers[key]; ok {
			call.Answers[key] = a
		}
	}
	return nil
}

// binding digests what the rounds of a call have in common.
func (e *Extension) binding(call *Call) string {
	principal := ""
	if e.opts.Principal != nil {
		principal = e.opts.Principal(call.Client)
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte("tools/call"), []byte(call.Tool), canonical(call.Arguments), []byte(principal)} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// canonical returns arguments in one form: a client may order members anew when
// it repeats a call.
func canonical(arguments json.RawMessage) []byte {
	if a := bytes.TrimSpace(arguments); len(a) == 0 || bytes.Equal(a, []byte("null")) {
		return []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return arguments
	}
	out, err := encode(v)
	if err != nil {
		return arguments
	}
	return out
}

// elicit puts questions to an older client, one after the other.
func elicit(ctx context.Context, c *Client, questions InputRequests) (InputResponses, error) {
	answers := InputResponses{}
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		a, err := elicitOne(ctx, c, questions[key], "")
		if err != nil {
			return nil, err
		}
		answers[key] = a
	}
	return answers, nil
}

// elicitOne puts one question to an older client. task, if not "", is the task
// it belongs to. An error of the client counts as no answer.
func elicitOne(ctx context.Context, c *Client, q InputRequest, task string) (InputResponse, error) {
	raw, err := q.send(ctx, c, task)
	wire := (*jsonrpc.Error)(nil)
	switch {
	case err == nil:
		return InputResponse(raw), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &wire):
		return InputResponse(`{"action":"cancel"}`), nil
	}
	return nil, err
}

// send sends a question as a request of its own.
func (q InputRequest) send(ctx context.Context, c *Client, task string) (json.RawMessage, error) {
	params := q.Params
	if task != "" {
		var p map[string]json.RawMessage
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, fmt.Errorf("reading a question: %w", err)
		}
		p["_meta"], _ = encode(related(task))
		var err error
		if params, err = encode(p); err != nil {
			return nil, fmt.Errorf("encoding a question: %w", err)
		}
	}
	if c.request != nil {
		return c.request.conn.call(ctx, q.Method, params)
	}
	if q.Method != "elicitation/create" {
		return nil, fmt.Errorf("asking by %s needs a wrapped connection", q.Method)
	}
	p := new(mcp.ElicitParams)
	if err := json.Unmarshal(params, p); err != nil {
		return nil, fmt.Errorf("reading a question: %w", err)
	}
	p.RequestedSchema = schemaOf(params)
	res, err := c.Session.Elicit(ctx, p)
	if err != nil {
		return nil, err
	}
	return encode(res)
}

// schemaOf returns the schema as it was written.
func schemaOf(params json.RawMessage) any {
	var p struct {
		Schema json.RawMessage `json:"requestedSchema"`
	}
	if json.Unmarshal(params, &p) != nil || len(p.Schema) == 0 {
		return nil
	}
	return p.Schema
}
