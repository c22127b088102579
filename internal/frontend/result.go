package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
)

// The limits of a result's text, in characters.
const (
	maxText   = 20_000
	maxOutput = 16_000 // of output, where nothing else is shown
	maxLast   = 4_000  // of output, below a result that the job set
	maxReason = 1_000
	maxName   = 80
)

// metaJob is the key in _meta under which a result carries [jobMeta].
const metaJob = "jobd/job"

// jobMeta is the machine-readable side of a result.
type jobMeta struct {
	JobID           string  `json:"job_id"`
	State           string  `json:"state"`
	ExitCode        *int    `json:"exit_code"`
	Signal          *string `json:"signal"`
	DurationMS      int64   `json:"duration_ms"`
	OutputBytes     int64   `json:"output_bytes"`
	OutputTruncated bool    `json:"output_truncated"`
}

// render makes the result of a final job: what happened in one line, then what
// the job set or else the end of its output, at most about [maxText]
// characters. A job that did not succeed gives isError and says what to do
// next. A whole CallToolResult that a successful job set is passed on as it is.
func render(r ipc.Result) *mcp.CallToolResult {
	job := r.Job
	var blocks []mcp.Content
	truncated := job.OutputDropped > 0
	failed := job.State != stateSucceeded

	if job.ResultKind == kindMCP {
		set, cut, err := passThrough(r.Body)
		if err == nil {
			blocks, truncated = set.Content, truncated || cut
			if failed {
				blocks = append(blocks, text(summary(job)), text(next(r)))
			}
			failed = failed || set.IsError
			if cut {
				blocks = append(blocks, outputLink(job))
			}
			return finish(job, blocks, failed, truncated)
		}
		blocks = append(blocks, text(summary(job)+"\nThe result that it set is not a CallToolResult ("+oneLine(err.Error(), 200)+")."))
	} else {
		blocks = append(blocks, text(summary(job)))
	}

	room, link := maxOutput, false
	if body := setText(r); body != "" {
		shown, cut := head(body, maxOutput-maxLast)
		if cut {
			shown += fmt.Sprintf("\n\n[jobd left out the rest of this result, which has %s characters; `jobd result %s` in a shell prints all of it.]",
				number(int64(utf8.RuneCountInString(body))), short(job.ID))
			truncated = true
		}
		blocks = append(blocks, text(shown))
		room = maxLast
	}
	if room == maxOutput || failed {
		printed, cut := printed(r, room)
		blocks = append(blocks, text(printed))
		truncated, link = truncated || cut, cut
	}
	if failed {
		blocks = append(blocks, text(next(r)))
	}
	if link || truncated {
		blocks = append(blocks, outputLink(job))
	}
	return finish(job, blocks, failed, truncated)
}

// finish puts the parts of a result together.
func finish(job ipc.Job, blocks []mcp.Content, failed, truncated bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{metaJob: metaOf(job, truncated)},
		Content: blocks,
		IsError: failed,
	}
}

func metaOf(job ipc.Job, truncated bool) jobMeta {
	return jobMeta{JobID: job.ID, State: job.State, ExitCode: job.ExitCode, Signal: job.Signal,
		DurationMS: job.DurationMS, OutputBytes: job.OutputBytes, OutputTruncated: truncated}
}

// protocolError returns the error that an errored job raised, for a client
// that is answered with it instead of a result.
func protocolError(r ipc.Result) *jsonrpc.Error {
	var set struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(r.Body, &set); err != nil || set.Code == 0 {
		set.Code = jsonrpc.CodeInternalError
	}
	message := oneLine(set.Message, maxReason)
	if message == "" {
		message = summary(r.Job)
	}
	if len(set.Data) > maxText || !json.Valid(set.Data) {
		set.Data = nil
	}
	return &jsonrpc.Error{Code: set.Code, Message: message, Data: set.Data}
}

// The names of states and kinds on the wire.
const (
	stateQueued     = "queued"
	stateStarting   = "starting"
	stateRunning    = "running"
	stateWaiting    = "waiting"
	stateStopping   = "stopping"
	stateSucceeded  = "succeeded"
	stateFailed     = "failed"
	stateTimedOut   = "timed_out"
	stateUnanswered = "unanswered"
	stateCancelled  = "cancelled"
	stateErrored    = "errored"
	stateLost       = "lost"

	kindText  = "text"
	kindJSON  = "json"
	kindMCP   = "mcp"
	kindError = "error"
)

// exitDeclined is the exit code of jobd ask for "no".
const exitDeclined = 10

// summary says in one line what became of a final job.
func summary(job ipc.Job) string {
	who := "Job " + short(job.ID)
	if name := oneLine(job.Name, maxName); name != "" {
		who += " (" + name + ")"
	}
	after := span(time.Duration(job.DurationMS) * time.Millisecond)
	reason := strings.TrimRight(oneLine(job.Reason, maxReason), ".")
	for _, said := range []string{"could not be started: ", "it raised an error: ", "the outcome is not known: "} {
		reason = strings.TrimPrefix(reason, said)
	}
	because := func(s string) string {
		if reason == "" {
			return s + "."
		}
		return s + ": " + reason + "."
	}
	switch job.State {
	case stateSucceeded:
		return who + " succeeded after " + after + "."
	case stateFailed:
		switch {
		case job.Signal != nil:
			return who + " failed after " + after + ": it was ended by signal " + oneLine(*job.Signal, 20) + "."
		case job.ExitCode != nil && *job.ExitCode >= 0:
			return fmt.Sprintf("%s failed after %s with exit code %d.", who, after, *job.ExitCode)
		}
		return because(who + " could not be started; nothing ran")
	case stateTimedOut:
		if job.TimeoutMS > 0 {
			return who + " was ended because it ran longer than its timeout of " + span(time.Duration(job.TimeoutMS)*time.Millisecond) + "."
		}
		return who + " was ended by its timeout after " + after + "."
	case stateUnanswered:
		return because(who + " was ended because it was not answered")
	case stateCancelled:
		return because(who + " was cancelled after " + after)
	case stateErrored:
		return because(who + " ended itself with a protocol error after " + after)
	case stateLost:
		return because(who + " is lost: its outcome cannot be known")
	}
	return who + " is " + oneLine(job.State, 20) + "."
}

// next says what the model can do about a job that did not succeed.
func next(r ipc.Result) string {
	job := r.Job
	again := "The same call runs it anew."
	switch job.State {
	case stateFailed:
		if job.Signal != nil && *job.Signal == "SIGKILL" {
			return "Next: nothing in jobd killed it, so look for a lack of memory (OOM killer) or for who sent the signal. " + again
		}
		if job.Signal == nil && (job.ExitCode == nil || *job.ExitCode < 0) {
			return "Next: correct the command or the directory and call again. " + again
		}
		if job.ExitCode != nil && *job.ExitCode == exitDeclined && job.QuestionCount > 0 {
			return "Next: this is the exit code of jobd ask for a question that the person declined; ask them how to go on. " + again
		}
		return "Next: find the cause in the output, fix it, and call again. " + again
	case stateTimedOut:
		how := "call again with a larger timeout_seconds (0 = none)"
		if job.Tool != toolRunJob {
			how = "tell the person to raise the timeout in the job file"
		}
		return "Next: " + how + ", or make the work smaller. What it did before the timeout was not undone."
	case stateUnanswered:
		about := ""
		if q := r.Unanswered; q != nil && !strings.Contains(job.Reason, oneLine(q.Message, 500)) {
			about = "It asked: " + quoted(q.Message, 500) + ".\n"
		}
		longer := "with a larger question_timeout_seconds, or "
		if job.Tool != toolRunJob {
			longer = ""
		}
		return about + "Next: tell the person what was asked. Call again when someone is there to answer, " + longer +
			"with the answer as an argument if there is one for it. Do not make up the answer."
	case stateCancelled:
		return "Next: nothing, unless the work is still wanted. " + again
	case stateErrored:
		return "Next: the message above comes from the job itself; act on it. " + again
	case stateLost:
		return "Next: it may have done all of its work, a part or none; check that before you run it again. jobd never runs a lost job again by itself. " +
			"The same call shows this result once more until it was delivered, then it runs anew."
	}
	return "Next: read the output before you call again."
}

// setText returns the text that a job set as its result, "" if none or if it
// has another form.
func setText(r ipc.Result) string {
	switch r.Job.ResultKind {
	case kindText:
		return strings.TrimRight(clean(string(r.Body)), "\n")
	case kindJSON:
		if json.Valid(r.Body) {
			var b bytes.Buffer
			if json.Compact(&b, r.Body) == nil && utf8.Valid(b.Bytes()) {
				return defuse(b.String())
			}
		}
		return clean(string(r.Body))
	case kindError:
		e := protocolError(r)
		return fmt.Sprintf("Protocol error %d: %s", e.Code, e.Message)
	}
	return ""
}

// defuse is clean for JSON text, where an escape keeps the value the same.
func defuse(s string) string {
	return reserved.ReplaceAllString(s, `\u003c$1`)
}

// printed shows the end of a job's output, and says whether something is
// missing.
func printed(r ipc.Result, room int) (string, bool) {
	job, out := r.Job, r.Tail
	data := out.Data
	for i := 0; i < utf8.UTFMax-1 && out.Offset > 0 && len(data) > 0 && !utf8.RuneStart(data[0]); i++ {
		data = data[1:]
	}
	all := clean(string(data))
	if strings.TrimSpace(all) == "" {
		if out.Total == 0 && job.OutputBytes == 0 {
			return "It printed nothing.", false
		}
		return fmt.Sprintf("It printed %s bytes, nothing readable at the end.", number(max(out.Total, job.OutputBytes))), out.Offset > 0
	}
	shown, cut := tail(all, room)
	total := max(out.Total, job.OutputBytes)
	switch {
	case !cut && out.Offset == 0 && out.Dropped == 0:
		return "Its output:\n" + fenced(shown), false
	default:
		missing := fmt.Sprintf("The end of its output (%s bytes in all", number(total))
		if dropped := max(out.Dropped, job.OutputDropped); dropped > 0 {
			missing += fmt.Sprintf(", of which %s in the middle were not kept", number(dropped))
		}
		return missing + "). read_job_output {\"job_id\":\"" + short(job.ID) + "\",\"offset\":0} reads on from the beginning:\n" + fenced(shown), true
	}
}

// passThrough reads a CallToolResult that a job set. Text is cleaned and
// bounded; images, audio, links and resources stay. structuredContent is given
// as text where there is no content, and else left out: Claude Code would drop
// the content for it.
func passThrough(body []byte) (result *mcp.CallToolResult, cut bool, err error) {
	var set mcp.CallToolResult
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, false, err
	}
	if set.InputRequests != nil || set.RequestState != "" {
		return nil, false, fmt.Errorf("it asks for input")
	}
	if len(set.Content) == 0 && set.StructuredContent != nil {
		raw, err := json.Marshal(set.StructuredContent)
		if err != nil {
			return nil, false, err
		}
		set.Content = []mcp.Content{&mcp.TextContent{Text: string(raw)}}
	}
	set.StructuredContent = nil
	if len(set.Content) == 0 {
		return nil, false, fmt.Errorf("it has no content")
	}
	room := maxText - maxLast
	kept := make([]mcp.Content, 0, len(set.Content))
	for _, c := range set.Content {
		var s *string
		switch c := c.(type) {
		case *mcp.TextContent:
			s = &c.Text
		case *mcp.EmbeddedResource:
			if c.Resource != nil && c.Resource.Blob == nil {
				s = &c.Resource.Text
			}
		}
		if s != nil {
			shown, shortened := head(clean(*s), room)
			cut = cut || shortened
			*s = shown
			room -= utf8.RuneCountInString(shown)
			if shortened {
				*s += "\n[jobd left out the rest of this text.]"
			}
		}
		kept = append(kept, c)
	}
	set.Content = kept
	return &set, cut, nil
}

// text returns a block of text.
func text(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

// toolError answers a call with an error that the model reads.
func toolError(sentence string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{text(sentence)}}
}

// outputLink points at the whole output of a job.
func outputLink(job ipc.Job) *mcp.ResourceLink {
	size := job.OutputBytes - job.OutputDropped
	return &mcp.ResourceLink{URI: outputURI(job.ID), Name: "output of job " + short(job.ID),
		Description: "All of the output that was kept.", MIMEType: "text/plain", Size: &size}
}

// short is an id as people and models are shown it; tools take any unique
// prefix.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// quoted shows foreign text within a sentence.
func quoted(s string, limit int) string {
	return "“" + oneLine(s, limit) + "”"
}
