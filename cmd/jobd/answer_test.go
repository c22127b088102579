package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/ipc"
)

// asking is a job with open questions, and the daemon that takes answers.
func asking(t *testing.T, reply ipc.AnswerReply, questions ...ipc.Question) (*fakeDaemon, *[]ipc.AnswerRequest) {
	t.Helper()
	job := ipc.Job{ID: idA, Name: "deploy", State: "waiting", Questions: questions}
	d := ofJobs(nil, job)
	var answers []ipc.AnswerRequest
	d.answer = func(r ipc.AnswerRequest) (ipc.AnswerReply, error) { answers = append(answers, r); return reply, nil }
	return d, &answers
}

func question(t *testing.T, key, message string, fields ...string) ipc.Question {
	t.Helper()
	return ipc.Question{ID: "ask-" + key, Key: key, Mode: ipc.ModeForm, Message: message, LeftMS: 60000, OnTimeout: "fail", Schema: formOf(t, fields...).schema()}
}

func secretQuestion(t *testing.T, key string) ipc.Question {
	q := question(t, key, "The token?", "value:string")
	q.Mode = ipc.ModeURL
	return q
}

func TestAnswerOnATerminalAsksForFieldAfterField(t *testing.T) {
	d, answers := asking(t, ipc.AnswerReply{Taken: true},
		question(t, "q1", "Where to?", "env:choice,enum=staging=The small one|prod,title=Environment", "n:integer,min=1,max=3,default=2,description=How many machines",
			"sure:boolean", "tags?:choices,enum=a|b|c", "note?:string,max=5"))
	got := invocation{daemon: d, terminal: true, in: "mars\n2\n9\n\nmaybe\ny\n1,c\ntoo long\n\n"}.call(t, "answer", "3f2a")
	want := []ipc.AnswerRequest{{Job: idA, Question: "q1", Action: "accept", By: "shell",
		Content: json.RawMessage(`{"env":"prod","n":2,"sure":true,"tags":["a","c"]}`)}}
	if diff := cmp.Diff(want, *answers); diff != "" {
		t.Errorf("the answer differs (-want +got):\n%s", diff)
	}
	if got.code != 0 || got.out != "" {
		t.Errorf("got %+v", got)
	}
	for _, text := range []string{
		"deploy asks (1m left, then the job is ended):\n  Where to?\n",
		"    1) staging  The small one\n    2) prod\n  Environment (a number or value): ",
		`  "mars" is no choice; the choices are staging, prod` + "\n",
		"  How many machines\n  n (a whole number from 1 to 3) [2]: ",
		"  it must be a whole number from 1 to 3\n",
		`  it must be yes or no, not "maybe"` + "\n",
		"  tags (numbers or values, parted by commas) [none]: ",
		"  it must be text of at most 5 characters\n",
		"answered Where to?\n",
	} {
		if !strings.Contains(got.err, text) {
			t.Errorf("the terminal does not show %q; it shows\n%s", text, got.err)
		}
	}
}

func TestAnswerOnATerminalAsksEveryQuestionInTurn(t *testing.T) {
	d, answers := asking(t, ipc.AnswerReply{Taken: true}, question(t, "q1", "One?", "a:string"), secretQuestion(t, "q2"), question(t, "q3", "Three?", "c:boolean"))
	got := invocation{daemon: d, terminal: true, in: "x\nn\n", secret: "hunter2"}.call(t, "answer", "3f2a")
	want := []ipc.AnswerRequest{
		{Job: idA, Question: "q1", Action: "accept", By: "shell", Content: json.RawMessage(`{"a":"x"}`)},
		{Job: idA, Question: "ask-q2", Action: "accept", By: "shell", Secret: true, Content: json.RawMessage(`{"value":"hunter2"}`)},
		{Job: idA, Question: "q3", Action: "accept", By: "shell", Content: json.RawMessage(`{"c":false}`)},
	}
	if diff := cmp.Diff(want, *answers); diff != "" {
		t.Errorf("the answers differ (-want +got):\n%s", diff)
	}
	if got.code != 0 || strings.Contains(got.err+got.out, "hunter2") {
		t.Errorf("got %+v, which must not show the secret", got)
	}
}

func TestLeavingTheFormLeavesTheQuestionOpen(t *testing.T) {
	d, answers := asking(t, ipc.AnswerReply{Taken: true}, question(t, "q1", "One?", "a:string", "b:string"))
	got := invocation{daemon: d, terminal: true, in: "x\n"}.call(t, "answer", "3f2a")
	if got.code != 1 || len(*answers) != 0 || !strings.Contains(got.err, "nothing was answered; the question stays open for 1m") {
		t.Errorf("got %+v and the answers %v", got, *answers)
	}
}

func TestAnswerWithoutATerminal(t *testing.T) {
	one := func(t *testing.T) []ipc.Question {
		return []ipc.Question{question(t, "q1", "Go?", "go:boolean", "n?:integer")}
	}
	two := func(t *testing.T) []ipc.Question { return append(one(t), question(t, "q2", "Why?", "why:string")) }
	secret := func(t *testing.T) []ipc.Question { return []ipc.Question{secretQuestion(t, "q1")} }
	none := func(*testing.T) []ipc.Question { return nil }
	for _, tt := range []struct {
		name      string
		questions func(*testing.T) []ipc.Question
		args, in  string
		env       map[string]string
		reply     ipc.AnswerReply
		want      *ipc.AnswerRequest
		code      int
		says      string
	}{
		{"by fields", one, "go=yes n=3", "", nil, ipc.AnswerReply{Taken: true}, &ipc.AnswerRequest{Question: "q1", Action: "accept", Content: json.RawMessage(`{"go":true,"n":3}`)}, 0, "answered Go?"},
		{"by key", two, "--question q2 why=so", "", nil, ipc.AnswerReply{Taken: true}, &ipc.AnswerRequest{Question: "q2", Action: "accept", Content: json.RawMessage(`{"why":"so"}`)}, 0, "answered Why?"},
		{"declined", one, "--decline", "", nil, ipc.AnswerReply{Taken: true}, &ipc.AnswerRequest{Question: "q1", Action: "decline"}, 0, "declined Go?"},
		{"as JSON", one, "--stdin", `{"go":false}`, nil, ipc.AnswerReply{Taken: true}, &ipc.AnswerRequest{Question: "q1", Action: "accept", Content: json.RawMessage(`{"go":false}`)}, 0, "answered"},
		{"a secret", secret, "--stdin", "hunter2\n", nil, ipc.AnswerReply{Taken: true},
			&ipc.AnswerRequest{Question: "ask-q1", Action: "accept", Secret: true, Content: json.RawMessage(`{"value":"hunter2"}`)}, 0, "answered The token?"},
		{"a secret declined", secret, "--decline", "", nil, ipc.AnswerReply{Taken: true}, &ipc.AnswerRequest{Question: "q1", Action: "decline"}, 0, "declined"},
		{"by a model", one, "go=yes", "", map[string]string{"CLAUDECODE": "1"}, ipc.AnswerReply{Taken: true},
			&ipc.AnswerRequest{Question: "q1", Action: "accept", Model: true, Content: json.RawMessage(`{"go":true}`)}, 0, "answered"},
		{"too late", one, "go=yes", "", nil, ipc.AnswerReply{Fault: "the question was answered already"},
			&ipc.AnswerRequest{Question: "q1", Action: "accept", Content: json.RawMessage(`{"go":true}`)}, 1, "the answer was not taken: the question was answered already"},
		{"no answer given", one, "", "", nil, ipc.AnswerReply{}, nil, 1, "standard input is no terminal; give it as jobd answer 3f2a9c1d go=BOOLEAN n=INTEGER"},
		{"several open", two, "go=yes", "", nil, ipc.AnswerReply{}, nil, 1, "asks 2 questions; name one of them with --question: q1 (Go?), q2 (Why?)"},
		{"no such question", one, "--question q9 go=yes", "", nil, ipc.AnswerReply{}, nil, 1, `has no open question "q9"; its open questions: q1 (Go?)`},
		{"nothing asked", none, "go=yes", "", nil, ipc.AnswerReply{}, nil, 1, "asks nothing at the moment"},
		{"a secret on the command line", secret, "value=hunter2", "", nil, ipc.AnswerReply{}, nil, 1, "others could see on a command line"},
		{"a secret from nowhere", secret, "", "", nil, ipc.AnswerReply{}, nil, 1, "a secret is typed on a terminal, or read with --stdin"},
		{"an empty secret", secret, "--stdin", "\n", nil, ipc.AnswerReply{}, nil, 1, "the secret is empty"},
		{"a field that is missing", one, "n=1", "", nil, ipc.AnswerReply{}, nil, 1, "the field go is missing; it must be yes or no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, answers := asking(t, tt.reply, tt.questions(t)...)
			got := invocation{daemon: d, in: tt.in, env: tt.env}.call(t, append([]string{"answer", "3f2a"}, strings.Fields(tt.args)...)...)
			if got.code != tt.code || !strings.Contains(got.err, tt.says) || strings.Contains(got.err, "hunter2") {
				t.Errorf("got %+v, want code %d and %q", got, tt.code, tt.says)
			}
			var want []ipc.AnswerRequest
			if tt.want != nil {
				tt.want.Job, tt.want.By = idA, "shell"
				want = []ipc.AnswerRequest{*tt.want}
			}
			if diff := cmp.Diff(want, *answers); diff != "" {
				t.Errorf("the answers differ (-want +got):\n%s", diff)
			}
		})
	}
}
