package mcptasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/mcptasks"
	"jobd/internal/mcptasks/memory"
)

// addTool adds a tool with a handler and any arguments.
func addTool(ext *mcptasks.Extension, server *mcp.Server, name string, support mcptasks.TaskSupport, h mcptasks.Handler) {
	ext.AddTool(server, &mcp.Tool{Name: name, InputSchema: object}, support, h)
}

// newStore returns a store that is closed with the test.
func newStore(t *testing.T) *memory.Store {
	t.Helper()
	s := memory.New()
	t.Cleanup(s.Close)
	return s
}

// untilCancelled is a task that never ends by itself.
func untilCancelled(ctx context.Context, _ *memory.Run) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestOnlyTheRequestItselfDeclaresTasks(t *testing.T) {
	store := newStore(t)
	ext, server := newServer(store, mcptasks.Options{})
	addTool(ext, server, "run", mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		if !c.Client.Tasks {
			return mcptasks.Result(text("waited")), nil
		}
		return mcptasks.Handle(store.Start(c.Client, untilCancelled), ""), nil
	})
	p := connect(t, ext, server)
	if m := p.call("server/discover", "{"+declared+"}"); m.Error != nil {
		t.Fatalf("discover: %s", m.line)
	}
	for range 2 {
		if m := p.tool("run", "{}", undeclared); m.field("resultType") != "complete" || texts(m.Result) != "waited" {
			t.Errorf("a call that does not declare tasks was answered with %s", m.line)
		}
		if m := p.tool("run", "{}", declared); m.field("resultType") != "task" {
			t.Errorf("a call that declares tasks was answered with %s", m.line)
		}
	}
	for _, malformed := range []string{"null", "true", "[]", `"x"`} {
		meta := `"_meta":{` + version + `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":` + malformed + `}}}`
		if m := p.tool("run", "{}", meta); m.field("resultType") != "complete" {
			t.Errorf("a call that declares tasks as %s was answered with %s", malformed, m.line)
		}
	}
}

func TestBugsOfHandlersAreInternalErrors(t *testing.T) {
	store := newStore(t)
	ext, server := newServer(store, mcptasks.Options{})
	handlers := map[string]func(c *mcptasks.Call) (mcptasks.Answer, error){
		"handle undeclared": func(*mcptasks.Call) (mcptasks.Answer, error) {
			return mcptasks.Handle(mcptasks.Task{ID: "x", Status: mcptasks.StatusWorking}, ""), nil
		},
		"ask nothing": func(*mcptasks.Call) (mcptasks.Answer, error) { return mcptasks.Ask(nil, ""), nil },
		"ask undeclared": func(*mcptasks.Call) (mcptasks.Answer, error) {
			return mcptasks.Ask(mcptasks.InputRequests{"r": {Method: "roots/list"}}, ""), nil
		},
		"ask with a broken schema": func(*mcptasks.Call) (mcptasks.Answer, error) {
			return mcptasks.Ask(mcptasks.InputRequests{"r": mcptasks.Form("?", json.RawMessage("{"))}, ""), nil
		},
		"no answer": func(*mcptasks.Call) (mcptasks.Answer, error) { return nil, nil },
		"no result": func(*mcptasks.Call) (mcptasks.Answer, error) { return mcptasks.Result(nil), nil },
		"nil in it": func(*mcptasks.Call) (mcptasks.Answer, error) {
			return mcptasks.Result(&mcp.CallToolResult{Content: []mcp.Content{nil}}), nil
		},
		"a channel": func(*mcptasks.Call) (mcptasks.Answer, error) {
			return mcptasks.Result(&mcp.CallToolResult{StructuredContent: make(chan int)}), nil
		},
		"plain error": func(*mcptasks.Call) (mcptasks.Answer, error) { return nil, errors.New("no luck") },
		"panic":       func(*mcptasks.Call) (mcptasks.Answer, error) { panic("at the disco") },
		"nil pointer": func(c *mcptasks.Call) (mcptasks.Answer, error) {
			c.Client = nil
			return mcptasks.Result(text(c.Client.Name)), nil
		},
	}
	for name, h := range handlers {
		addTool(ext, server, strings.ReplaceAll(name, " ", "-"), mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) { return h(c) })
	}
	p := connect(t, ext, server)
	for name := range handlers {
		if m := p.tool(strings.ReplaceAll(name, " ", "-"), "{}", undeclared); m.code() != jsonrpc.CodeInternalError || m.Error.Message == "" {
			t.Errorf("%s: %s", name, m.line)
		}
	}
}

func TestAPanicInAnyHandlerIsAnInternalError(t *testing.T) {
	ext := mcptasks.New(newStore(t), mcptasks.Options{Resources: true})
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	server.AddResource(&mcp.Resource{URI: "r://1", Name: "r"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		panic("in a resource")
	})
	server.AddTool(&mcp.Tool{Name: "plain", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("in a tool")
	})
	ext.Attach(server)
	p := connect(t, ext, server)
	for method, params := range map[string]string{"resources/read": `"uri":"r://1"`, "tools/call": `"name":"plain"`} {
		if m := p.call(method, "{"+params+","+declared+"}"); m.code() != jsonrpc.CodeInternalError {
			t.Errorf("%s: %s", method, m.line)
		}
	}
}

func TestErrorsKeepTheirCodeAndData(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	wire := &jsonrpc.Error{Code: -32050, Message: "mine", Data: json.RawMessage(`{"a":1}`)}
	addTool(ext, server, "bare", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) { return nil, wire })
	addTool(ext, server, "wrapped", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) {
		return nil, fmt.Errorf("calling: %w", wire)
	})
	p := connect(t, ext, server)
	for tool, message := range map[string]string{"bare": "mine", "wrapped": "calling: mine"} {
		m := p.tool(tool, "{}", declared)
		if m.code() != -32050 || m.Error.Message != message || string(m.Error.Data) != `{"a":1}` {
			t.Errorf("%s: %s", tool, m.line)
		}
	}
}

func TestMethodsThatAreNotOffered(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	p := connect(t, ext, server)
	for _, method := range []string{"prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list",
		"completion/complete", "tasks/list", "tasks/result", "tasks/other"} {
		if m := p.call(method, `{"name":"x","uri":"x","ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"},`+declared+"}"); m.code() != jsonrpc.CodeMethodNotFound {
			t.Errorf("%s: %s", method, m.line)
		}
	}
	ext, server = newServer(newStore(t), mcptasks.Options{Prompts: true, Resources: true})
	p = connect(t, ext, server)
	for _, method := range []string{"prompts/list", "resources/list"} {
		if m := p.call(method, "{"+declared+"}"); m.Error != nil {
			t.Errorf("%s: %s", method, m.line)
		}
	}
}

func TestParametersMayBeAbsent(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	for _, revision := range []string{"2025-11-25", "2025-06-18"} {
		p := open(t, ext, server, revision)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list"} {
			for _, params := range []string{"", `,"params":null`, `,"params":{}`} {
				p.id++
				p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q%s}`, p.id, method, params))
				m := p.reply(fmt.Sprint(p.id))
				if c := m.code(); c != jsonrpc.CodeInvalidParams && c != jsonrpc.CodeMethodNotFound && (method != "tasks/list" || c != 0) {
					t.Errorf("%s %s %q: %s", revision, method, params, m.line)
				}
			}
		}
	}
}

// asker asks for a name and then for a colour, and answers with both.
func asker(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
	switch c.Round {
	case 0:
		return mcptasks.Ask(mcptasks.InputRequests{"name": mcptasks.Form("Name?", object), "page": mcptasks.URL("Look", "http://127.0.0.1/", "p")}, "first"), nil
	case 1:
		e, err := c.Answers["name"].Elicitation()
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		return mcptasks.Ask(mcptasks.InputRequests{"colour": mcptasks.Form("Colour?", object)}, c.State+" "+string(e.Action)+string(e.Content)), nil
	}
	return mcptasks.Result(text(fmt.Sprintf("%s %s %d", c.State, c.Answers["colour"], len(c.Answers)))), nil
}

// repeat calls a tool again, with answers and a state.
func (p *peer) repeat(tool, arguments, answers, state, meta string) message {
	p.t.Helper()
	return p.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"inputResponses":%s,"requestState":%q,%s}`, tool, arguments, answers, state, meta))
}

func TestQuestionsByMultiRoundTrip(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	addTool(ext, server, "ask", mcptasks.TaskOptional, asker)
	p := connect(t, ext, server)
	m := p.tool("ask", `{"a":1,"b":[2]}`, undeclared)
	if m.field("resultType") != "input_required" || !strings.Contains(m.field("inputRequests"), `"mode":"url"`) {
		t.Fatalf("first round: %s", m.line)
	}
	// The same arguments in another order, an answer that was not asked for, and a
	// number that a float cannot hold.
	m = p.repeat("ask", `{"b":[2], "a":1}`, `{"name":{"action":"accept","content":{"n":9007199254740993}},"other":{"action":"decline"}}`, m.field("requestState"), undeclared)
	if m.field("resultType") != "input_required" {
		t.Fatalf("second round: %s", m.line)
	}
	m = p.repeat("ask", `{"a":1,"b":[2]}`, `{"colour":{"action":"decline"},"name":{"action":"accept"}}`, m.field("requestState"), undeclared)
	if got, want := texts(m.Result), `first accept{"n":9007199254740993} {"action":"decline"} 1`; got != want {
		t.Errorf("result %q, want %q (%s)", got, want, m.line)
	}
}

func TestARequestStateIsGoodOnceAndForItsCallOnly(t *testing.T) {
	principal := "a"
	ext, server := newServer(newStore(t), mcptasks.Options{Principal: func(*mcptasks.Client) string { return principal }})
	calls := 0
	h := func(ctx context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		calls++
		return asker(ctx, c)
	}
	addTool(ext, server, "ask", mcptasks.TaskOptional, h)
	addTool(ext, server, "other", mcptasks.TaskOptional, h)
	p := connect(t, ext, server)
	const arguments, answers = `{"a":1}`, `{"name":{"action":"accept","content":{}}}`
	state := func() string { t.Helper(); return p.tool("ask", arguments, undeclared).field("requestState") }

	used := state()
	if m := p.repeat("ask", arguments, answers, used, undeclared); m.Error != nil {
		t.Fatalf("the first use was refused: %s", m.line)
	}
	before := calls
	for name, m := range map[string]message{
		"used":             p.repeat("ask", arguments, answers, used, undeclared),
		"forged":           p.repeat("ask", arguments, answers, strings.Repeat("A", len(used)), undeclared),
		"longer":           p.repeat("ask", arguments, answers, used+"A", undeclared),
		"of nothing":       p.call("tools/call", `{"name":"ask","arguments":{"a":1},"inputResponses":5,`+undeclared+`}`),
		"of wrong answers": p.call("tools/call", `{"name":"ask","arguments":{"a":1},"requestState":"x","inputResponses":[],`+undeclared+`}`),
		"of no string":     p.call("tools/call", `{"name":"ask","arguments":{"a":1},"requestState":5,`+undeclared+`}`),
	} {
		if m.code() != jsonrpc.CodeInvalidParams {
			t.Errorf("a state %s: %s", name, m.line)
		}
	}
	if calls != before {
		t.Errorf("the handler was called %d times for states that are no good", calls-before)
	}
	if m := p.call("tools/call", `{"name":"ask","arguments":{"a":1},"inputResponses":`+answers+`,`+undeclared+`}`); m.field("resultType") != "input_required" {
		t.Errorf("answers without a state are not asked for again: %s", m.line)
	}
	for name, use := range map[string]func(string) message{
		"for other arguments": func(s string) message { return p.repeat("ask", `{"a":2}`, answers, s, undeclared) },
		"for no arguments":    func(s string) message { return p.repeat("ask", `{}`, answers, s, undeclared) },
		"for another tool":    func(s string) message { return p.repeat("other", arguments, answers, s, undeclared) },
		"by somebody else": func(s string) message {
			principal = "b"
			defer func() { principal = "a" }()
			return p.repeat("ask", arguments, answers, s, undeclared)
		},
	} {
		s := state()
		if m := use(s); m.code() != jsonrpc.CodeInvalidParams {
			t.Errorf("a state %s: %s", name, m.line)
		}
		if m := p.repeat("ask", arguments, answers, s, undeclared); m.code() != jsonrpc.CodeInvalidParams {
			t.Errorf("a state after it was tried %s: %s", name, m.line)
		}
	}
}

func TestAStateWithoutAnswersLetsTheHandlerAskAgain(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	addTool(ext, server, "ask", mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		if c.Answers["q"] == nil {
			return mcptasks.Ask(mcptasks.InputRequests{"q": mcptasks.Form("?", object)}, fmt.Sprint(c.Round)), nil
		}
		return mcptasks.Result(text(c.State)), nil
	})
	p := connect(t, ext, server)
	state := p.tool("ask", "{}", undeclared).field("requestState")
	m := p.call("tools/call", `{"name":"ask","arguments":{},"requestState":"`+state+`",`+undeclared+`}`)
	if m.field("resultType") != "input_required" {
		t.Fatalf("%s", m.line)
	}
	if m := p.repeat("ask", "{}", `{"q":{"action":"cancel"}}`, m.field("requestState"), undeclared); texts(m.Result) != "1" {
		t.Errorf("%s", m.line)
	}
}

func TestOlderClientsAreAskedInALoop(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			ext, server := newServer(newStore(t), mcptasks.Options{})
			addTool(ext, server, "ask", mcptasks.TaskOptional, asker)
			p := open(t, ext, server, revision)
			id := p.send("tools/call", `{"name":"ask","arguments":{}}`)
			var asked []string
			for _, answer := range []string{
				`"result":{"action":"accept","content":{"n":9007199254740993}}`, // name
				`"result":{"action":"accept"}`,                                  // page
				`"error":{"code":-1,"message":"the person went away"}`,          // colour
			} {
				q := p.notification("elicitation/create")
				asked = append(asked, q.field("message"))
				p.write(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,` + answer + `}`)
			}
			if diff := cmp.Diff([]string{"Name?", "Look", "Colour?"}, asked); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
			m := p.reply(id)
			if got, want := texts(m.Result), `first accept{"n":9007199254740993} {"action":"cancel"} 1`; got != want {
				t.Errorf("result %q, want %q (%s)", got, want, m.line)
			}
		})
	}
}

func TestAnOlderClientThatCancelsTheCallIsToldThatTheQuestionIsOver(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	addTool(ext, server, "ask", mcptasks.TaskOptional, asker)
	p := open(t, ext, server, "2025-06-18")
	id := p.send("tools/call", `{"name":"ask","arguments":{}}`)
	q := p.notification("elicitation/create")
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	if m := p.notification("notifications/cancelled"); m.field("requestId") != strings.Trim(string(q.ID), `"`) {
		t.Errorf("%s does not name the question %s", m.line, q.ID)
	}
}

func TestAToolThatNeverStopsAskingIsStopped(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	addTool(ext, server, "ask", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) {
		return mcptasks.Ask(mcptasks.InputRequests{"q": mcptasks.Form("?", object)}, ""), nil
	})
	p := open(t, ext, server, "2025-06-18")
	id := p.send("tools/call", `{"name":"ask","arguments":{}}`)
	for {
		m := p.read()
		if m.Method == "elicitation/create" {
			p.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"decline"}}`)
			continue
		}
		if string(m.ID) != id || m.code() != jsonrpc.CodeInternalError {
			t.Errorf("%s", m.line)
		}
		return
	}
}

func TestTheContextOfACancelledCallSaysWhy(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	entered, cause := make(chan struct{}), make(chan error, 1)
	addTool(ext, server, "wait", mcptasks.TaskOptional, func(ctx context.Context, _ *mcptasks.Call) (mcptasks.Answer, error) {
		close(entered)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return mcptasks.Result(text("late")), nil
	})
	p := connect(t, ext, server)
	id := p.send("tools/call", `{"name":"wait",`+declared+`}`)
	<-entered
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"user-cancel"}}`)
	var c *mcptasks.CancelledError
	if err := <-cause; !errors.As(err, &c) || c.Reason != "user-cancel" || !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is %v", err)
	}
}

func TestAfterWrite(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	written := make(chan error, 2)
	entered := make(chan struct{}, 1)
	addTool(ext, server, "quick", mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		c.Client.AfterWrite(func(err error) { written <- err })
		return mcptasks.Result(text("done")), nil
	})
	addTool(ext, server, "wait", mcptasks.TaskOptional, func(ctx context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		c.Client.AfterWrite(func(err error) { written <- err })
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	p := connect(t, ext, server)
	p.tool("quick", "{}", declared)
	if err := <-written; err != nil {
		t.Errorf("after a reply: %v", err)
	}
	p.send("tools/call", `{"name":"wait",`+declared+`}`)
	<-entered
	p.close()
	if err := <-written; !errors.Is(err, mcp.ErrConnectionClosed) {
		t.Errorf("after the end of the connection: %v", err)
	}
}

func TestTheClientIsDescribedByItsRequest(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	var got mcptasks.Client
	addTool(ext, server, "who", mcptasks.TaskOptional, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		got = *c.Client
		return mcptasks.Result(text("")), nil
	})
	describe := func(c mcptasks.Client) string {
		return fmt.Sprintf("%s %s %s legacy=%t tasks=%t form=%t url=%t sampling=%t roots=%t progress=%v",
			c.Name, c.Version, c.Protocol, c.Legacy, c.Tasks, c.Form, c.URL, c.Sampling, c.Roots, c.ProgressToken)
	}
	const name = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"n","version":"v"},"io.modelcontextprotocol/clientCapabilities":`
	p := connect(t, ext, server)
	for capabilities, want := range map[string]string{
		`{}`:                 "legacy=false tasks=false form=false url=false sampling=false roots=false progress=7",
		`{"elicitation":{}}`: "legacy=false tasks=false form=true url=false sampling=false roots=false progress=7",
		`{"elicitation":{"url":{}},"roots":{"listChanged":true}}`:                                              "legacy=false tasks=false form=false url=true sampling=false roots=true progress=7",
		`{"elicitation":{"form":{},"url":{}},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`: "legacy=false tasks=true form=true url=true sampling=true roots=false progress=7",
	} {
		if m := p.tool("who", "{}", `"_meta":{"progressToken":7,`+name+capabilities+`}`); m.Error != nil {
			t.Fatalf("%s: %s", capabilities, m.line)
		}
		if diff := cmp.Diff("n v 2026-07-28 "+want, describe(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", capabilities, diff)
		}
	}
	p = open(t, ext, server, "2025-06-18")
	p.call("tools/call", `{"name":"who","_meta":{"progressToken":"p"}}`)
	if want := "old 1 2025-06-18 legacy=true tasks=false form=true url=true sampling=false roots=false progress=p"; describe(got) != want {
		t.Errorf("%s, want %s", describe(got), want)
	}
}

func TestProgress(t *testing.T) {
	ext, server := newServer(newStore(t), mcptasks.Options{})
	addTool(ext, server, "run", mcptasks.TaskOptional, func(ctx context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		if err := c.Client.Progress(ctx, 1.5, 0, "half"); err != nil {
			return nil, err
		}
		return mcptasks.Result(text("")), nil
	})
	p := connect(t, ext, server)
	withToken := strings.Replace(undeclared, `"_meta":{`, `"_meta":{"progressToken":"t",`, 1)
	p.send("tools/call", `{"name":"run",`+withToken+`}`)
	if m := p.read(); m.Method != "notifications/progress" || m.field("progressToken") != "t" || m.field("message") != "half" {
		t.Errorf("%s", m.line)
	}
	p.read()
	p.send("tools/call", `{"name":"run",`+undeclared+`}`)
	if m := p.read(); m.Method != "" {
		t.Errorf("without a token: %s", m.line)
	}
}
