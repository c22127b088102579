package frontend

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"
)

// Whatever a model sends as arguments is understood, or answered with a sentence
// that it can act on.
func FuzzArguments(f *testing.F) {
	tools := map[string][]param{
		toolRunJob: runJobParams, toolGetJob: getJobParams, toolListJobs: listJobsParams,
		toolReadOutput: readOutputParams, toolCancelJob: cancelJobParams, toolAnswerJob: answerJobParams,
	}
	for tool := range tools {
		for _, args := range []string{
			``, `null`, `{}`, `[]`, `"ls"`, `{"command":"make test","cwd":"/src","name":"tests","timeout_seconds":600.0}`,
			`{"argv":["go","test","./..."],"env":{"CI":"1"},"idempotency_key":null}`, `{"argv":[],"env":{"A":1}}`, `{"cmd":"ls"}`,
			`{"job_id":"4b5c46b8d6264d70","wait_seconds":30}`, `{"job_id":"4b5c","offset":-1,"limit":1e30}`,
			`{"job_id":"4b5c","question":"q1","action":"accept","content":{"sure":true}}`, `{"state":"live","all_projects":true,"limit":5}`,
			`{"command":"\ud800\u0000"}`, `{"a":1,"a":2}`,
		} {
			f.Add(tool, []byte(args))
		}
	}
	f.Fuzz(func(t *testing.T, tool string, args []byte) {
		params, ok := tools[tool]
		if !ok {
			return
		}
		var into map[string]any
		err := decode(tool, params, args, &into)
		if err != nil {
			if w := wrongArgument(""); !errors.As(err, &w) || w == "" || !utf8.ValidString(string(w)) || len(w) > 2000 {
				t.Errorf("%q: the error is %q", args, err)
			}
			return
		}
		for name, value := range into {
			if value == nil || !slices.ContainsFunc(params, func(p param) bool { return p.name == name }) {
				t.Errorf("%q gave %s = %v", args, name, value)
			}
		}
		again, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(tool, params, again, &into); err != nil {
			t.Errorf("%q was understood, and then %q was not: %v", args, again, err)
		}
	})
}
