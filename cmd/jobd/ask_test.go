package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/ipc"
)

var inJob = map[string]string{"JOBD_JOB_ID": idA}

// askDaemon answers questions, and notes what it was asked.
func askDaemon(a ipc.Answer) (*fakeDaemon, *[]ipc.AskRequest) {
	var asked []ipc.AskRequest
	return &fakeDaemon{
		ask: func(r ipc.AskRequest) (ipc.Answer, error) {
			asked = append(asked, r)
			return ipc.Answer{State: "open"}, nil
		},
		await: func(context.Context, ipc.AwaitRequest) (ipc.Answer, error) { return a, nil },
	}, &asked
}

func TestAskPrintsTheAnswerAndEndsWithItsCode(t *testing.T) {
	answered := ipc.Answer{State: "answered", Content: json.RawMessage(`{"env":"prod","n":2}`), By: "form"}
	for _, tt := range []struct {
		name   string
		answer ipc.Answer
		args   string
		want   outcome
	}{
		{"as JSON", answered, "-f env:string -f n:integer", outcome{0, `{"env":"prod","n":2}` + "\n", ""}},
		{"with its story", answered, "-f env:string -f n:integer --json", outcome{0, "{\n  \"state\": \"answered\",\n  \"content\": {\n    \"env\": \"prod\",\n    \"n\": 2\n  },\n  \"by\": \"form\"\n}\n", ""}},
		{"bare text", ipc.Answer{State: "answered", Content: json.RawMessage(`{"answer":"a \"b\""}`)}, "--raw", outcome{0, "a \"b\"\n", ""}},
		{"bare boolean", ipc.Answer{State: "answered", Content: json.RawMessage(`{"ok":false}`)}, "--raw -f ok:boolean", outcome{0, "false\n", ""}},
		{"bare choices", ipc.Answer{State: "answered", Content: json.RawMessage(`{"l":["x","y"]}`)}, "--raw -f l:choices,enum=x|y", outcome{0, "x\ny\n", ""}},
		{"left empty", ipc.Answer{State: "answered", Content: json.RawMessage(`{}`)}, "--raw -f note?:string", outcome{0, "\n", ""}},
		{"declined", ipc.Answer{State: "declined"}, "", outcome{10, "", ""}},
		{"declined, as JSON", ipc.Answer{State: "declined", By: "shell"}, "--json", outcome{10, "{\n  \"state\": \"declined\",\n  \"by\": \"shell\"\n}\n", ""}},
		{"unanswered", ipc.Answer{State: "unanswered"}, "", outcome{12, "", ""}},
		{"withdrawn", ipc.Answer{State: "withdrawn"}, "", outcome{1, "", "jobd: the question was withdrawn before anybody answered\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := askDaemon(tt.answer)
			got := invocation{daemon: d, env: inJob}.call(t, append([]string{"ask", "Go?"}, strings.Fields(tt.args)...)...)
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestAskSendsWhatTheFlagsSay(t *testing.T) {
	d, asked := askDaemon(ipc.Answer{State: "answered", Content: json.RawMessage(`{"value":"s3cret"}`)})
	var received int
	d.await = func(_ context.Context, r ipc.AwaitRequest) (ipc.Answer, error) {
		if r.Received {
			received++
		}
		return ipc.Answer{State: "answered", Content: json.RawMessage(`{"value":"s3cret"}`)}, nil
	}
	got := invocation{daemon: d, env: inJob}.call(t, "ask", "Token?", "--secret", "--raw", "--timeout", "90s", "--on-timeout", "continue", "--key", "token")
	if got != (outcome{0, "s3cret\n", ""}) {
		t.Fatalf("got %+v", got)
	}
	want := ipc.AskRequest{Job: idA, Key: "token", Message: "Token?", Schema: json.RawMessage(`{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}`),
		Secret: true, TimeoutMS: 90000, OnTimeout: "continue"}
	r := (*asked)[0]
	if len(r.ID) < 20 {
		t.Errorf("the asker's id %q is not one that nobody guesses", r.ID)
	}
	r.ID = ""
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("the request differs (-want +got):\n%s", diff)
	}
	if received != 1 {
		t.Errorf("the daemon was told %d times that the secret arrived, not once", received)
	}
}

func TestAskOutlivesADaemonThatIsReplaced(t *testing.T) {
	away := &ipc.Error{Code: ipc.CodeUnavailable, Message: "jobd is stopping"}
	var asks []string
	awaits := 0
	d := &fakeDaemon{
		ask: func(r ipc.AskRequest) (ipc.Answer, error) {
			if asks = append(asks, r.ID); len(asks) == 1 {
				return ipc.Answer{}, away
			}
			return ipc.Answer{State: "open"}, nil
		},
		await: func(context.Context, ipc.AwaitRequest) (ipc.Answer, error) {
			switch awaits++; awaits {
			case 1, 3:
				return ipc.Answer{}, away
			case 2:
				return ipc.Answer{State: "open"}, nil
			}
			return ipc.Answer{State: "answered", Content: json.RawMessage(`{"answer":"yes"}`)}, nil
		},
	}
	got := invocation{daemon: d, env: inJob}.call(t, "ask", "Go?", "--raw")
	if got != (outcome{0, "yes\n", ""}) {
		t.Errorf("got %+v", got)
	}
	if len(asks) != 2 || asks[0] != asks[1] {
		t.Errorf("the question was asked under the ids %q; repeated, it must keep its id", asks)
	}
}

func TestAskRefusesAtOnceWhatCannotBeAsked(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"ask", "Go?", "-f", "password:string"}, `the field "password" looks like a secret`},
		{[]string{"ask", "Go?", "--schema", "/nonexistent"}, "reading the schema: open /nonexistent"},
		{[]string{"ask", "Go?", "--secret", "-f", "a:integer"}, "a secret is one string"},
		{[]string{"ask", "Go?", "--schema", "-"}, `the question's schema`},
	} {
		got := invocation{env: inJob, in: `{"type":"array"}`}.call(t, tt.args...)
		if got.code == 0 || !strings.Contains(got.err, tt.want) {
			t.Errorf("%v: got %+v, want an error that holds %q", tt.args, got, tt.want)
		}
	}
	for _, command := range []string{"ask Go?", "progress 3", "result --text x"} {
		got := invocation{}.call(t, strings.Fields(command)...)
		if got.code != 1 || !strings.Contains(got.err, "works inside a job only, and JOBD_JOB_ID is not set") {
			t.Errorf("%s: got %+v", command, got)
		}
	}
}

func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want ipc.ProgressRequest
	}{
		{[]string{"3/10", "compiling", "it"}, ipc.ProgressRequest{Done: 3, Total: 10, Text: "compiling it"}},
		{[]string{"2.5"}, ipc.ProgressRequest{Done: 2.5}},
		{[]string{"40%", "uploading"}, ipc.ProgressRequest{Done: 40, Total: 100, Text: "uploading"}},
		{[]string{"waiting 3/4"}, ipc.ProgressRequest{Text: "waiting 3/4"}},
		{[]string{"3/"}, ipc.ProgressRequest{Text: "3/"}},
	} {
		d := &fakeDaemon{}
		if got := (invocation{daemon: d, env: inJob}).call(t, append([]string{"progress"}, tt.args...)...); got != (outcome{}) {
			t.Errorf("%v: got %+v", tt.args, got)
		}
		tt.want.Job = idA
		if diff := cmp.Diff([]ipc.ProgressRequest{tt.want}, d.progress); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.args, diff)
		}
	}
	away := &fakeDaemon{fault: &ipc.Error{Code: ipc.CodeUnavailable, Message: "jobd is not running"}}
	if got := (invocation{daemon: away, env: inJob}).call(t, "progress", "1"); got != (outcome{0, "", "jobd: the progress was not reported: jobd is not running\n"}) {
		t.Errorf("without a daemon: got %+v", got)
	}
	ended := &fakeDaemon{fault: &ipc.Error{Code: ipc.CodeState, Message: "the job has ended"}}
	if got := (invocation{daemon: ended, env: inJob}).call(t, "progress", "1"); got != (outcome{1, "", "jobd: the job has ended\n"}) {
		t.Errorf("refused: got %+v", got)
	}
}
