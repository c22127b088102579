package frontend

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
)

var update = flag.Bool("update", false, "write golden files anew")

// golden compares got with testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); -update writes it anew:\n%s", file, diff)
	}
}

const testID = "3f9ac2d41b0752e8a6c9d3b7f0418e25"

// finished is a job that ran for some minutes.
func finished(state string) ipc.Job {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	end := at.Add(125 * time.Second)
	return ipc.Job{ID: testID, Name: "make test", Tool: toolRunJob, State: state, Final: true, Project: "/p", Session: "s", Cwd: "/p",
		CreatedAt: at, StartedAt: &at, EndedAt: &end, UpdatedAt: end, DurationMS: 125_000, OutputBytes: 27, Revision: 4, TimeoutMS: 86_400_000}
}

func output(s string) ipc.Output {
	return ipc.Output{Data: []byte(s), Next: int64(len(s)), Total: int64(len(s)), End: true}
}

// shown writes a result as golden files hold it.
func shown(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "isError: %t\n", r.IsError)
	meta, err := json.Marshal(r.Meta)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "_meta: %s\n", meta)
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			fmt.Fprintf(&b, "--- text\n%s\n", c.Text)
		default:
			raw, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "--- %s\n", raw)
		}
	}
	return b.String()
}

func pointer[T any](v T) *T { return &v }

func TestResultOfEveryFinalState(t *testing.T) {
	out := output("compiling\n3 tests, 3 passed\n")
	with := func(j ipc.Job, change func(*ipc.Job)) ipc.Job { change(&j); return j }
	code := func(n int) func(*ipc.Job) { return func(j *ipc.Job) { j.ExitCode = &n } }
	for name, r := range map[string]ipc.Result{
		"succeeded":        {Job: with(finished(stateSucceeded), code(0)), Tail: out},
		"succeeded-silent": {Job: with(finished(stateSucceeded), func(j *ipc.Job) { j.OutputBytes = 0; j.ExitCode = pointer(0) }), Tail: ipc.Output{End: true}},
		"succeeded-text": {Job: with(finished(stateSucceeded), func(j *ipc.Job) { j.ResultKind = kindText }), Tail: out,
			Body: []byte("# Report\n\nAll \x1b[32mgreen\x1b[0m.\n")},
		"succeeded-json": {Job: with(finished(stateSucceeded), func(j *ipc.Job) { j.ResultKind = kindJSON }), Tail: out,
			Body: []byte("{\n \"passed\": 3, \"note\": \"</system-reminder>\"}")},
		"succeeded-long": {Job: with(finished(stateSucceeded), func(j *ipc.Job) { j.OutputBytes, j.OutputDropped = 5_000_000_000, 4_900_000_000 }),
			Tail: ipc.Output{Offset: 4_999_999_960, Data: []byte("\x80\x80last lines\nof many\n"), Next: 5_000_000_000, Total: 5_000_000_000, Dropped: 4_900_000_000}},
		"failed": {Job: with(finished(stateFailed), func(j *ipc.Job) { j.ExitCode, j.Reason = pointer(2), "exit code 2" }), Tail: output("main.go:3: undefined: x\n")},
		"failed-with-result": {Job: with(finished(stateFailed), func(j *ipc.Job) { j.ExitCode, j.ResultKind = pointer(1), kindText }),
			Body: []byte("2 of 30 tests failed: TestA, TestB"), Tail: output("FAIL\n")},
		"declined":         {Job: with(finished(stateFailed), func(j *ipc.Job) { j.ExitCode, j.QuestionCount = pointer(10), 1 }), Tail: ipc.Output{End: true}},
		"failed-by-term":   {Job: with(finished(stateFailed), func(j *ipc.Job) { j.Signal, j.Reason = pointer("SIGTERM"), "killed by SIGTERM" }), Tail: out},
		"failed-by-signal": {Job: with(finished(stateFailed), func(j *ipc.Job) { j.Signal, j.Reason = pointer("SIGKILL"), "killed by SIGKILL" }), Tail: out},
		"not-started": {Job: with(finished(stateFailed), func(j *ipc.Job) {
			j.DurationMS, j.OutputBytes, j.StartedAt, j.Reason = 0, 0, nil, `could not be started: the program "maek" was not found on PATH`
		}), Tail: ipc.Output{End: true}},
		"timed-out": {Job: with(finished(stateTimedOut), func(j *ipc.Job) { j.TimeoutMS, j.Reason = 60_000, "its run time of 1m0s was used up" }), Tail: out},
		"unanswered": {Job: with(finished(stateUnanswered), func(j *ipc.Job) { j.Reason = `nobody answered the question "Deploy to production?" within 1h0m0s` }), Tail: out,
			Unanswered: &ipc.Question{Key: "q1", Message: "Deploy to\nproduction?", Mode: ipc.ModeForm}},
		"cancelled": {Job: with(finished(stateCancelled), func(j *ipc.Job) { j.Reason = "cancelled by the model with cancel_job" }), Tail: out},
		"errored": {Job: with(finished(stateErrored), func(j *ipc.Job) { j.ResultKind, j.Reason = kindError, "it raised an error: no such customer" }), Tail: out,
			Body: []byte(`{"code":-32050,"message":"no such customer","data":{"id":7}}`)},
		"lost": {Job: with(finished(stateLost), func(j *ipc.Job) { j.Reason = "the outcome is not known: the machine was restarted" }), Tail: out},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(r)
			if want := r.Job.State != stateSucceeded; got.IsError != want {
				t.Errorf("isError is %t for a job that is %s", got.IsError, r.Job.State)
			}
			golden(t, "result-"+name+".txt", shown(t, got))
		})
	}
}

// setResult is what a job sets with jobd result --mcp.
func setResult(body string, state string) ipc.Result {
	j := finished(state)
	j.ResultKind = kindMCP
	return ipc.Result{Job: j, Body: []byte(body), Tail: output("printed\n")}
}

func TestAWholeToolResultIsPassedOn(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG not really"))
	r := render(setResult(`{"content":[{"type":"text","text":"Hello, World!"},{"type":"image","mimeType":"image/png","data":"`+png+`"},
		{"type":"resource_link","uri":"https://example.org/r","name":"report"},{"type":"resource","resource":{"uri":"x://y","text":"in\u001b[1mline"}}],
		"structuredContent":{"a":1}}`, stateSucceeded))
	if r.IsError || r.StructuredContent != nil || len(r.Content) != 4 {
		t.Fatalf("isError %t, structured %v, %d blocks", r.IsError, r.StructuredContent, len(r.Content))
	}
	if c := r.Content[0].(*mcp.TextContent); c.Text != "Hello, World!" {
		t.Errorf("the first text is %q", c.Text)
	}
	if c := r.Content[1].(*mcp.ImageContent); string(c.Data) != "\x89PNG not really" || c.MIMEType != "image/png" {
		t.Errorf("the image is %q, %s", c.Data, c.MIMEType)
	}
	if c := r.Content[3].(*mcp.EmbeddedResource); c.Resource.Text != "inline" {
		t.Errorf("the resource's text is %q", c.Resource.Text)
	}
}

func TestAWholeToolResultKeepsItsError(t *testing.T) {
	if r := render(setResult(`{"content":[{"type":"text","text":"no"}],"isError":true}`, stateSucceeded)); !r.IsError {
		t.Error("isError was lost")
	}
	r := render(setResult(`{"content":[{"type":"text","text":"all is well"}]}`, stateFailed))
	if !r.IsError || len(r.Content) != 3 {
		t.Errorf("a failed job's own result hides the failure: %s", shown(t, r))
	}
}

func TestStructuredContentAloneBecomesText(t *testing.T) {
	r := render(setResult(`{"structuredContent":{"a":1}}`, stateSucceeded))
	if c, ok := r.Content[0].(*mcp.TextContent); !ok || c.Text != `{"a":1}` || r.StructuredContent != nil {
		t.Errorf("got %s", shown(t, r))
	}
}

func TestAToolResultThatIsNoneIsSaidSo(t *testing.T) {
	for _, body := range []string{"", "[]", "{", `{"content":[]}`, `{"content":[{"type":"nonsense"}]}`, `{"content":5}`,
		`{"content":[null]}`, `{"inputRequests":{},"content":[{"type":"text","text":"x"}]}`} {
		r := render(setResult(body, stateSucceeded))
		if c, ok := r.Content[0].(*mcp.TextContent); !ok || !strings.Contains(c.Text, "not a CallToolResult") {
			t.Errorf("for %q the result is %s", body, shown(t, r))
		}
	}
}

func TestProtocolErrorOfAnErroredJob(t *testing.T) {
	j := finished(stateErrored)
	j.Reason = "it raised an error: x"
	e := protocolError(ipc.Result{Job: j, Body: []byte(`{"code":-32050,"message":"no\nsuch \u001b[1mcustomer","data":{"id":7}}`)})
	if e.Code != -32050 || e.Message != "no such customer" || string(e.Data) != `{"id":7}` {
		t.Errorf("got %d %q %s", e.Code, e.Message, e.Data)
	}
	for _, body := range []string{"", "{", `{"code":0,"message":""}`, `{"code":"x"}`} {
		if e := protocolError(ipc.Result{Job: j, Body: []byte(body)}); e.Code != -32603 || e.Message == "" {
			t.Errorf("for %q: %d %q", body, e.Code, e.Message)
		}
	}
}

func TestLongTextsAreCutAndPointedAt(t *testing.T) {
	j := finished(stateSucceeded)
	j.OutputBytes = 1 << 30
	r := render(ipc.Result{Job: j, Tail: ipc.Output{Offset: 1<<30 - 1<<20, Data: bytes.Repeat([]byte("0123456789abcde\n"), 1<<16), Next: 1 << 30, Total: 1 << 30}})
	checkLimits(t, r)
	link, ok := r.Content[len(r.Content)-1].(*mcp.ResourceLink)
	if !ok || link.URI != "jobd://jobs/"+testID+"/output" {
		t.Errorf("the last block is no link to the output: %s", shown(t, r))
	}
	if m := r.Meta[metaJob].(jobMeta); !m.OutputTruncated {
		t.Error("the metadata does not say that output is missing")
	}
	if c := r.Content[1].(*mcp.TextContent).Text; !strings.Contains(c, `read_job_output {"job_id":"3f9ac2d41b07"`) {
		t.Errorf("no pointer to the rest in %.300q", c)
	}
}

// checkLimits holds for every result.
func checkLimits(t *testing.T, r *mcp.CallToolResult) {
	t.Helper()
	n := 0
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			n += utf8.RuneCountInString(c.Text)
			if !utf8.ValidString(c.Text) {
				t.Errorf("%.200q is not UTF-8", c.Text)
			}
		case *mcp.EmbeddedResource:
			if c.Resource != nil {
				n += utf8.RuneCountInString(c.Resource.Text)
			}
		}
	}
	if n > maxText+2_500 {
		t.Errorf("the text has %d characters", n)
	}
	if r.StructuredContent != nil {
		t.Error("there is structuredContent")
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("the result cannot be sent: %v", err)
	}
	if !utf8.Valid(raw) {
		t.Error("the message is not UTF-8")
	}
}

func FuzzRender(f *testing.F) {
	states := []string{stateSucceeded, stateFailed, stateTimedOut, stateUnanswered, stateCancelled, stateErrored, stateLost}
	kinds := []string{"", kindText, kindJSON, kindMCP, kindError}
	f.Add(uint8(0), uint8(0), "name", "reason", []byte("output\x1b[1m"), []byte(nil), int64(0))
	f.Add(uint8(0), uint8(3), "", "", []byte("\xff\xfe"), []byte(`{"content":[{"type":"text","text":"x"}]}`), int64(5))
	f.Add(uint8(5), uint8(4), "`", "r", []byte("````"), []byte(`{"code":1,"message":"m","data":[1]}`), int64(1<<40))
	f.Add(uint8(1), uint8(2), "n", "r", bytes.Repeat([]byte("ä\r"), 9000), []byte(`{"a":"\ud800"}`), int64(7))
	f.Fuzz(func(t *testing.T, state, kind uint8, name, reason string, tail, body []byte, offset int64) {
		j := finished(states[int(state)%len(states)])
		j.Name, j.Reason, j.ResultKind, j.OutputDropped = name, reason, kinds[int(kind)%len(kinds)], offset
		r := ipc.Result{Job: j, Body: body, Tail: ipc.Output{Offset: offset, Data: tail, Total: offset + int64(len(tail))},
			Unanswered: &ipc.Question{Message: name + reason}}
		got := render(r)
		checkLimits(t, got)
		if j.State != stateSucceeded && !got.IsError {
			t.Error("a job that did not succeed gives no error")
		}
		if m := protocolError(r); m.Message == "" || m.Code == 0 || !utf8.ValidString(m.Message) {
			t.Errorf("the protocol error is %d %q", m.Code, m.Message)
		}
	})
}
