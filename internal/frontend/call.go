package frontend

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// A wanted job is what a tool makes of its checked arguments.
type wanted struct {
	request ipc.SubmitRequest
	support mcptasks.TaskSupport
	// askFirst is the schema of a form to show before the job exists; nil = none.
	askFirst json.RawMessage
}

// callState is kept between the rounds of one call.
type callState struct {
	// AskFirst: the round before asked for what is needed before the job exists.
	AskFirst bool `json:"ask_first,omitempty"`
	// Job is the job that the call waits for.
	Job string `json:"job,omitempty"`
	// Own: this call created it, so cancelling the call may cancel it.
	Own bool `json:"own,omitempty"`
	// Note tells the model of a job that was joined.
	Note string `json:"note,omitempty"`
	// Since is when the call came.
	Since time.Time `json:"since"`
}

// askFirstKey is the key of the question before the job exists.
const askFirstKey = "ask_first"

// run answers a call that wants a job.
func (f *Frontend) run(ctx context.Context, call *mcptasks.Call, w wanted) (mcptasks.Answer, error) {
	st := callState{Since: time.Now()}
	if call.Round > 0 {
		if err := json.Unmarshal([]byte(call.State), &st); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the call's state cannot be read: " + err.Error()}
		}
	}
	if st.Job != "" {
		return f.goOn(ctx, call, w, st)
	}
	if response, ok := call.Answers[askFirstKey]; st.AskFirst && ok { // without it, it is asked for again
		content, refusal := firstAnswers(response)
		if refusal != "" {
			return mcptasks.Result(toolError(refusal)), nil
		}
		w.request.Answers = content
	}
	reply, err := f.create(ctx, f.key(call), w.request)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			f.abandon(ctx, callState{Job: reply.Job.ID, Own: created(reply)})
		}
		return nil, ctx.Err()
	case code(err) == ipc.CodeAnswers && w.askFirst != nil && call.Round < 5:
		return f.askFirst(call, w, st, err)
	case err != nil:
		return mcptasks.Result(toolError(sentence(err))), nil
	}
	f.catalog.daemonSeen()
	st.Job, st.Own = reply.Job.ID, created(reply)
	if st.Own {
		f.session.Store(&reply.Job.Session)
	}
	st.Note = joinNote(reply)
	return f.follow(ctx, call, w, st, reply.Job)
}

// key identifies the call across retries of the request to the daemon. Claude
// Code names each of its calls; for a client that does not, each call is
// another.
func (f *Frontend) key(call *mcptasks.Call) string {
	id, _ := call.Client.Meta["claudecode/toolUseId"].(string)
	if id == "" {
		id = rand.Text()
	}
	return requestKey(f.caller.Session, call.Tool, id, canonical(call.Arguments))
}

// canonical gives equal JSON values equal texts.
func canonical(raw json.RawMessage) []byte {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}

// create submits a job. The submission does not end with the request: what the
// daemon made of it must be known, so that a person who pressed Esc meanwhile
// is not left with a job that nobody follows.
func (f *Frontend) create(ctx context.Context, key string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
	type outcome struct {
		reply ipc.SubmitReply
		err   error
	}
	made := make(chan outcome, 1)
	f.background(func(life context.Context) {
		o := outcome{err: errors.New("submitting the job failed")}
		defer func() { made <- o }()
		o.reply, o.err = f.daemon.Submit(life, key, r)
	})
	select {
	case o := <-made:
		return o.reply, o.err
	case <-ctx.Done():
		f.background(func(life context.Context) {
			select {
			case o := <-made:
				if o.err == nil {
					f.abandon(ctx, callState{Job: o.reply.Job.ID, Own: created(o.reply)})
				}
			case <-life.Done():
			}
		})
		return ipc.SubmitReply{}, ctx.Err()
	case <-f.life.Done():
		return ipc.SubmitReply{}, errors.New("the server is ending")
	}
}

// created reports whether a call made its job, now or before a retry.
func created(r ipc.SubmitReply) bool { return r.Joined == "" || r.Joined == "request" }

// abandon is called when the client cancelled a call that was not answered
// yet. The job goes on, unless the person pressed Esc on the call that made it.
func (f *Frontend) abandon(ctx context.Context, st callState) {
	var c *mcptasks.CancelledError
	if !st.Own || !errors.As(context.Cause(ctx), &c) || !strings.Contains(c.Reason, "user-cancel") {
		return
	}
	f.background(func(life context.Context) {
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
			_, err := f.daemon.Cancel(life, f.cancelRequest(st.Job, "the person cancelled the call that started it"))
			if err == nil || !passing(err) || !pause(life, wait) {
				return
			}
		}
	})
}

// askFirst asks for what the job's tool wants to know before the job exists.
func (f *Frontend) askFirst(call *mcptasks.Call, w wanted, st callState, refused error) (mcptasks.Answer, error) {
	message := "“" + oneLine(call.Tool, 100) + "” needs this before it starts."
	if call.Round > 0 {
		message = oneLine(refused.Error(), 500) + "\n" + message
	}
	question := mcptasks.Form(message, w.askFirst)
	if !call.Client.Allows(question) {
		return mcptasks.Result(toolError(sentence(refused))), nil
	}
	st.AskFirst = true
	return mcptasks.Ask(mcptasks.InputRequests{askFirstKey: question}, encode(st)), nil
}

// firstAnswers reads what the person gave before the job exists, or says why
// there will be none.
func firstAnswers(response mcptasks.InputResponse) (content json.RawMessage, refusal string) {
	const nothing = "nothing was started."
	e, err := response.Elicitation()
	switch {
	case err != nil:
		return nil, "The answer to the form cannot be read (" + oneLine(err.Error(), 200) + "); " + nothing
	case e.Action == mcptasks.Decline:
		return nil, "The person declined the form that this tool shows first; " + nothing + " Ask them how to go on."
	case e.Action != mcptasks.Accept:
		return nil, "The person closed the form that this tool shows first; " + nothing + " Ask them how to go on."
	case len(e.Content) == 0:
		return json.RawMessage("{}"), ""
	}
	return e.Content, ""
}

// goOn is a later round of a call: it delivers the answers and waits on.
func (f *Frontend) goOn(ctx context.Context, call *mcptasks.Call, w wanted, st callState) (mcptasks.Answer, error) {
	closed := false
	for _, key := range sortedKeys(call.Answers) {
		no, err := f.give(ctx, st.Job, key, call.Answers[key])
		if err != nil {
			return f.lostSight(st, err), nil
		}
		closed = closed || no
	}
	if closed {
		if err := f.noAnswer(ctx, st.Job); err != nil {
			return f.lostSight(st, err), nil
		}
	}
	job, err := f.daemon.Get(ctx, ipc.GetRequest{ID: st.Job, Exact: true})
	if err != nil {
		return f.lostSight(st, err), nil
	}
	if closed && len(open(job)) > 0 {
		return mcptasks.Result(f.handleInText(job, st, f.whereToAnswer(job, call.Client))), nil
	}
	return f.follow(ctx, call, w, st, job)
}

// follow answers a call whose job is known.
func (f *Frontend) follow(ctx context.Context, call *mcptasks.Call, w wanted, st callState, job ipc.Job) (mcptasks.Answer, error) {
	f.catalog.answers(job)
	if !call.Client.Tasks || w.support == mcptasks.TaskForbidden {
		return f.waitInCall(ctx, call, st, job)
	}
	within := time.Duration(job.AnswerWithinMS) * time.Millisecond
	if call.Client.TaskRequested {
		within = 0 // this client takes nothing but a handle
	}
	for end := time.Now().Add(within); !job.Final && len(open(job)) == 0; {
		left := time.Until(end)
		if left < time.Millisecond {
			break
		}
		newer, err := f.daemon.Get(ctx, ipc.GetRequest{ID: job.ID, Exact: true, WaitMS: left.Milliseconds(), Revision: job.Revision, Until: untilSettled})
		if ctx.Err() != nil {
			f.abandon(ctx, st)
			return nil, ctx.Err()
		}
		if err != nil {
			break // the job is durable; the handle holds whatever became of the daemon
		}
		job = newer
	}
	if job.Final {
		if answer, err := f.outcome(ctx, call, st, 0); answer != nil || err != nil {
			return answer, err
		}
	}
	return mcptasks.Handle(f.snapshot(job, call.Client), f.handleNote(job, st)), nil
}

// outcome answers with the result of a final job. While the daemon is out of
// reach it tries again for so long, and returns nothing if that was in vain and
// the client can ask for the result later.
func (f *Frontend) outcome(ctx context.Context, call *mcptasks.Call, st callState, patience time.Duration) (mcptasks.Answer, error) {
	r, err := f.daemon.Result(ctx, ipc.GetRequest{ID: st.Job, Exact: true})
	for end := time.Now().Add(patience); err != nil && passing(err) && time.Now().Before(end); {
		if !pause(ctx, retryEvery) {
			return nil, ctx.Err()
		}
		r, err = f.daemon.Result(ctx, ipc.GetRequest{ID: st.Job, Exact: true})
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && patience == 0 && passing(err):
		return nil, nil
	case err != nil:
		return f.lostSight(st, err), nil
	}
	f.deliveries.onWrite(call.Client, r.Job)
	if r.Job.State == stateErrored {
		return nil, protocolError(r)
	}
	result := render(r)
	if st.Note != "" {
		result.Content = append(result.Content, text(st.Note))
	}
	return mcptasks.Result(result), nil
}

// lostSight answers a call whose job goes on, but out of reach.
func (f *Frontend) lostSight(st callState, err error) mcptasks.Answer {
	return mcptasks.Result(toolError(fmt.Sprintf(
		"Job %s was accepted and is not affected, but jobd cannot be asked about it now: %s\nNext: get_job {\"job_id\":%q} in a while gives its state and result.",
		short(st.Job), sentence(err), short(st.Job))))
}

// joinNote tells the model that no job was created.
func joinNote(r ipc.SubmitReply) string {
	age := span(time.Since(r.Job.CreatedAt))
	const anew = " Files may have changed since then; the same call with a fresh idempotency_key runs it anew."
	how := "is " + r.Job.State
	if r.Job.Final {
		how = "has ended (" + r.Job.State + "); its result was not delivered before"
	}
	switch r.Joined {
	case "session":
		return fmt.Sprintf("Note: no new job was started. This call joined the identical job %s of this session, which was started %s ago and %s.", short(r.Job.ID), age, how) + anew
	case "key":
		return fmt.Sprintf("Note: no new job was started. The idempotency key belongs to job %s, which was started %s ago and is %s.", short(r.Job.ID), age, r.Job.State) + anew
	}
	return ""
}

// maxNote is what Claude Code shows of a note, in characters.
const maxNote = 2_000

// handleNote is what the model is told when a call becomes a task.
func (f *Frontend) handleNote(job ipc.Job, st callState) string {
	id := short(job.ID)
	note := fmt.Sprintf("jobd job %s (%s) is %s. Full id: %s. It outlives this session; the result comes by itself, so do not poll. "+
		"To look at it: get_job or read_job_output with {\"job_id\":%q}; to end it: cancel_job; in a shell: jobd status %s.",
		id, oneLine(job.Name, maxName), job.State, job.ID, id, id)
	if st.Note != "" {
		note += "\n" + st.Note
	}
	if asks := open(job); len(asks) > 0 {
		note += "\nIt asks the person: " + quoted(asks[0].Message, 300) + ". Do not answer for the person."
	}
	note, _ = head(note, maxNote)
	return note
}

// handleInText answers a call that can be kept waiting no longer.
func (f *Frontend) handleInText(job ipc.Job, st callState, why string) *mcp.CallToolResult {
	id := short(job.ID)
	blocks := []mcp.Content{
		text(fmt.Sprintf("Job %s (%s) is %s and goes on. %s", id, oneLine(job.Name, maxName), job.State, why)),
		text(fmt.Sprintf("To go on: get_job {\"job_id\":%q,\"wait_seconds\":50} waits for the result; read_job_output shows what it printed; cancel_job ends it. "+
			"Do not call the tool again for the same work.", id)),
	}
	if st.Note != "" {
		blocks = append(blocks, text(st.Note))
	}
	return &mcp.CallToolResult{Content: blocks, Meta: mcp.Meta{metaJob: metaOf(job, job.OutputDropped > 0)}}
}

// sentence is an error as the model and the person read it.
func sentence(err error) string {
	var e *ipc.Error
	if !errors.As(err, &e) {
		return "jobd could not do it: " + clean(err.Error())
	}
	s := clean(e.Message)
	if e.Hint != "" {
		s += "\nNext: " + clean(e.Hint)
	}
	s, _ = head(s, 4_000)
	return s
}

// encode keeps a call's state for its next round.
func encode(st callState) string {
	raw, err := json.Marshal(st)
	if err != nil {
		panic(err) // it holds nothing that cannot be marshalled
	}
	return string(raw)
}
