package mcptasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/mcptasks"
	"jobd/internal/mcptasks/memory"
)

const (
	ackMethod  = "notifications/subscriptions/acknowledged"
	taskMethod = "notifications/tasks"
)

// A stage is a server with a tool "run" that starts a task which the test moves.
type stage struct {
	store  *memory.Store
	ext    *mcptasks.Extension
	server *mcp.Server
	say    chan string // the task says it; closed = the task is done
	ask    chan mcptasks.InputRequests
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{store: newStore(t), say: make(chan string), ask: make(chan mcptasks.InputRequests)}
	s.ext, s.server = newServer(s.store, mcptasks.Options{})
	addTool(s.ext, s.server, "run", mcptasks.TaskRequired, func(_ context.Context, c *mcptasks.Call) (mcptasks.Answer, error) {
		return mcptasks.Handle(s.store.Start(c.Client, s.run), ""), nil
	})
	return s
}

func (s *stage) run(ctx context.Context, r *memory.Run) (*mcp.CallToolResult, error) {
	for {
		select {
		case line, ok := <-s.say:
			if !ok {
				return text("done"), nil
			}
			r.Say(line)
		case questions := <-s.ask:
			if _, err := r.Ask(ctx, questions); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// start starts a task and returns its id.
func (p *peer) start(meta string) string {
	p.t.Helper()
	m := p.tool("run", "{}", meta)
	id := m.field("taskId")
	if id == "" {
		p.t.Fatalf("no task was made: %s", m.line)
	}
	return id
}

// listen subscribes and returns the request's id.
func (p *peer) listen(filter string) string {
	p.t.Helper()
	return p.send("subscriptions/listen", `{"notifications":{`+filter+`},`+declared+`}`)
}

// nextTask returns the next snapshot of a subscription that fits.
func (p *peer) nextTask(subscription string, fits func(message) bool) message {
	p.t.Helper()
	return p.await(func(m message) bool {
		return m.Method == taskMethod && strings.Contains(m.line, `"io.modelcontextprotocol/subscriptionId":`+subscription) && fits(m)
	})
}

func status(s mcptasks.Status) func(message) bool {
	return func(m message) bool { return m.field("status") == string(s) }
}

func TestASubscriptionToATask(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	id := p.start(declared)
	sub := p.listen(`"taskIds":["` + id + `","nobody","a b"]`)
	if first := p.read(); first.Method != ackMethod || first.field("notifications") != `{"taskIds":["`+id+`"]}` {
		t.Fatalf("first message %s", first.line)
	}
	p.nextTask(sub, status(mcptasks.StatusWorking))
	s.say <- "half"
	p.nextTask(sub, func(m message) bool { return m.field("statusMessage") == "half" })
	s.ask <- mcptasks.InputRequests{"q": mcptasks.Form("Sure?", object)}
	if m := p.nextTask(sub, status(mcptasks.StatusInputRequired)); !strings.Contains(m.field("inputRequests"), "Sure?") {
		t.Errorf("%s", m.line)
	}
	p.call("tasks/update", `{"taskId":"`+id+`","inputResponses":{"q":{"action":"decline"},"unknown":{}},`+declared+`}`)
	p.nextTask(sub, status(mcptasks.StatusWorking))
	close(s.say)
	done := p.nextTask(sub, status(mcptasks.StatusCompleted))
	if !strings.Contains(done.field("result"), `"resultType":"complete"`) {
		t.Errorf("%s", done.line)
	}
	// It is what tasks/get says, but for what belongs to the reply.
	get := p.call("tasks/get", `{"taskId":"`+id+`",`+declared+`}`)
	for _, field := range []string{"taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "result"} {
		if diff := cmp.Diff(get.field(field), done.field(field)); diff != "" {
			t.Errorf("%s (-get +notification):\n%s", field, diff)
		}
	}
	// It stays open after the last task has ended, until the client closes it.
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + sub + `}}`)
	p.reply(sub) // the line transport would keep it back
}

func TestNothingFollowsACancelledSubscription(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	id := p.start(declared)
	sub := p.listen(`"taskIds":["` + id + `"]`)
	p.nextTask(sub, status(mcptasks.StatusWorking))
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + sub + `}}`)
	p.reply(sub)
	close(s.say)
	for { // until the task has ended
		if m := p.call("tasks/get", `{"taskId":"`+id+`",`+declared+`}`); m.field("status") == "completed" {
			break
		}
	}
	for _, m := range p.kept {
		if m.Method == taskMethod && m.field("status") == "completed" {
			t.Errorf("%s", m.line)
		}
	}
}

func TestAMixedSubscription(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	id := p.start(declared)
	sub := p.listen(`"toolsListChanged":true,"taskIds":["` + id + `"]`)
	if first := p.read(); first.Method != ackMethod || first.field("notifications") != `{"taskIds":["`+id+`"],"toolsListChanged":true}` {
		t.Fatalf("first message %s", first.line)
	}
	p.nextTask(sub, status(mcptasks.StatusWorking))
	addTool(s.ext, s.server, "another", mcptasks.TaskOptional, asker)
	if m := p.notification("notifications/tools/list_changed"); !strings.Contains(m.line, `"io.modelcontextprotocol/subscriptionId":`+sub) {
		t.Errorf("%s", m.line)
	}
	close(s.say)
	p.nextTask(sub, status(mcptasks.StatusCompleted))
	p.close() // ends it without a cancellation
}

func TestSubscriptionsOfOneConnectionAreApart(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	id := p.start(declared)
	one, two := p.listen(`"taskIds":["`+id+`"]`), p.listen(`"taskIds":["`+id+`"]`)
	p.nextTask(one, status(mcptasks.StatusWorking))
	p.nextTask(two, status(mcptasks.StatusWorking))
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + one + `}}`)
	p.reply(one)
	close(s.say)
	p.nextTask(two, status(mcptasks.StatusCompleted))
}

func TestASubscriptionIsRefused(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf(`"t%d"`, i))
	}
	for filter, code := range map[string]int64{
		`"taskIds":5`:         jsonrpc.CodeInvalidParams,
		`"taskIds":{}`:        jsonrpc.CodeInvalidParams,
		`"taskIds":[null,{}]`: jsonrpc.CodeInvalidParams,
		`"taskIds":[` + strings.Join(many, ",") + `]`: jsonrpc.CodeInvalidParams,
	} {
		if m := p.reply(p.listen(filter)); m.code() != code {
			t.Errorf("%.40s: %s", filter, m.line)
		}
	}
	m := p.call("subscriptions/listen", `{"notifications":{"taskIds":["x"]},`+undeclared+`}`)
	if m.code() != mcp.CodeMissingRequiredClientCapabilities || !strings.Contains(string(m.Error.Data), `"requiredCapabilities"`) {
		t.Errorf("undeclared: %s", m.line)
	}
}

// faulty fails in every way.
type faulty struct{ mcptasks.Store }

func (faulty) Get(_ context.Context, _ *mcptasks.Client, id string) (mcptasks.Task, error) {
	now := time.Now()
	t := mcptasks.Task{ID: id, Status: mcptasks.StatusWorking, CreatedAt: now, LastUpdatedAt: now}
	switch id {
	case "panics":
		panic("in the store")
	case "fails":
		return t, errors.New("the daemon is away")
	case "no-result":
		t.Status = mcptasks.StatusCompleted
	case "no-error":
		t.Status = mcptasks.StatusFailed
	case "no-status":
		t.Status = "odd"
	case "no-id":
		t.ID = ""
	}
	return t, nil
}

func (faulty) Watch(_ context.Context, _ *mcptasks.Client, id string, _ func(mcptasks.Task) error) error {
	if id == "watch-panics" {
		panic("in the store")
	}
	return errors.New("the daemon is away")
}

func TestAFaultyStoreHarmsNothingElse(t *testing.T) {
	ext, server := newServer(faulty{}, mcptasks.Options{})
	addTool(ext, server, "ok", mcptasks.TaskOptional, func(context.Context, *mcptasks.Call) (mcptasks.Answer, error) {
		return mcptasks.Result(text("ok")), nil
	})
	p := connect(t, ext, server)
	for _, id := range []string{"panics", "fails", "no-result", "no-error", "no-status", "no-id"} {
		if m := p.call("tasks/get", `{"taskId":"`+id+`",`+declared+`}`); m.code() != jsonrpc.CodeInternalError {
			t.Errorf("tasks/get of %s: %s", id, m.line)
		}
	}
	for _, id := range []string{"panics", "fails"} {
		if m := p.reply(p.listen(`"taskIds":["` + id + `"]`)); m.code() != jsonrpc.CodeInternalError {
			t.Errorf("subscription to %s: %s", id, m.line)
		}
	}
	p.listen(`"taskIds":["watch-panics","watch-fails"]`)
	p.notification(ackMethod)
	if m := p.tool("ok", "{}", declared); texts(m.Result) != "ok" {
		t.Errorf("%s", m.line)
	}
}

func TestTwoClientsOfOneServer(t *testing.T) {
	s := newStage(t)
	s.store.Owner = func(c *mcptasks.Client) string { return fmt.Sprintf("%p", c.Session) }
	a, b := connect(t, s.ext, s.server), connect(t, s.ext, s.server)
	mine, yours := a.start(declared), b.start(declared)
	for _, method := range []string{"tasks/get", "tasks/cancel"} {
		if m := a.call(method, `{"taskId":"`+yours+`",`+declared+`}`); m.code() != jsonrpc.CodeInvalidParams {
			t.Errorf("%s of somebody else's task: %s", method, m.line)
		}
	}
	a.listen(`"taskIds":["` + mine + `","` + yours + `"]`)
	if ack := a.notification(ackMethod); ack.field("notifications") != `{"taskIds":["`+mine+`"]}` {
		t.Errorf("%s", ack.line)
	}
	a.call("tasks/cancel", `{"taskId":"`+mine+`",`+declared+`}`)
	for {
		if m := a.call("tasks/get", `{"taskId":"`+mine+`",`+declared+`}`); m.field("status") == "cancelled" {
			break
		}
	}
	if m := b.call("tasks/get", `{"taskId":"`+yours+`",`+declared+`}`); m.field("status") != "working" {
		t.Errorf("%s", m.line)
	}
	if m := a.call("tasks/cancel", `{"taskId":"`+mine+`",`+declared+`}`); m.Error != nil {
		t.Errorf("cancelling a final task: %s", m.line)
	}
	a.close()
	if m := b.call("tasks/get", `{"taskId":"`+yours+`",`+declared+`}`); m.field("status") != "working" {
		t.Errorf("after the other has gone: %s", m.line)
	}
}

func TestAnExpiredTaskSaysSo(t *testing.T) {
	s := newStage(t)
	p := connect(t, s.ext, s.server)
	id := p.start(declared)
	s.store.Expire(id)
	if m := p.call("tasks/get", `{"taskId":"`+id+`",`+declared+`}`); m.code() != jsonrpc.CodeInvalidParams || !strings.Contains(m.Error.Message, "expired") {
		t.Errorf("%s", m.line)
	}
}
