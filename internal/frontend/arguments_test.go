package frontend

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

func TestWrongArgumentsAreToldWhatToSend(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{`{"cmd": "ls"}`, `run_job has no argument “cmd”. Did you mean "command"? It takes command, argv, cwd,`},
		{`{"comand": "ls"}`, `Did you mean "command"?`},
		{`{"shell_text": "ls"}`, `run_job has no argument “shell_text”. It takes`},
		{`{"timeout": 5}`, `Did you mean "timeout_seconds"?`},
		{`{"command": 5}`, `The argument "command" of run_job must be a string, like {"command": "make test"}; it got the number 5.`},
		{`{"command": "a\u0000b"}`, "contains a NUL character"},
		{`{"argv": "ls -l"}`, `The argument "argv" of run_job must be a list of strings that is not empty, like {"argv": ["go", "test", "./..."]}; it got the string "ls -l".`},
		{`{"argv": []}`, "a list of strings that is not empty"},
		{`{"argv": ["a", null]}`, "a list of strings that is not empty"},
		{`{"argv": ["a", "b\u0000"]}`, "contains a NUL character"},
		{`{"env": {"A": 1}}`, `an object whose values are strings, like {"env": {"CI": "1"}}; it got the object {"A": 1}`},
		{`{"env": {"A": null}}`, "an object whose values are strings"},
		{`{"env": {"A=B": "1"}}`, `has the name "A=B"`},
		{`{"timeout_seconds": "600"}`, `a whole number from 0 to 31536000, like {"timeout_seconds": 3600}; it got the string "600".`},
		{`{"timeout_seconds": 1.5}`, "it got the number 1.5"},
		{`{"timeout_seconds": -1}`, "it got the number -1"},
		{`{"timeout_seconds": 1e30}`, "it got the number 1e30"},
		{`{"question_timeout_seconds": 0}`, "a whole number from 1 to"},
		{`"ls"`, `run_job takes its arguments as a JSON object, like {"command": "make test"}; it got the string "ls".`},
		{`[1]`, "it got the list [1]"},
	} {
		var into map[string]any
		err := decode(toolRunJob, runJobParams, json.RawMessage(c.args), &into)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", c.args, err, c.want)
		}
	}
	var into map[string]any
	if err := decode(toolGetJob, getJobParams, nil, &into); err == nil || !strings.Contains(err.Error(), `get_job needs the argument "job_id"`) {
		t.Errorf("without the id: %v", err)
	}
}

func TestRightArgumentsAreTaken(t *testing.T) {
	var a struct {
		Command string            `json:"command"`
		Argv    []string          `json:"argv"`
		Env     map[string]string `json:"env"`
		Timeout *int64            `json:"timeout_seconds"`
	}
	if err := decode(toolRunJob, runJobParams, json.RawMessage(`{"command":"ls","argv":null,"env":{"A":"=1"},"timeout_seconds":6e2}`), &a); err != nil {
		t.Fatal(err)
	}
	if a.Command != "ls" || a.Argv != nil || a.Env["A"] != "=1" || a.Timeout == nil || *a.Timeout != 600 {
		t.Errorf("got %+v", a)
	}
	if err := decode(toolListJobs, listJobsParams, nil, &struct{}{}); err != nil {
		t.Errorf("no arguments: %v", err)
	}
}

// The check and the schema that clients see must agree: what one takes, the
// other takes. Differences that are meant: null for "left out", and what JSON
// Schema cannot say of strings.
func TestCheckAgreesWithTheSchema(t *testing.T) {
	values := []string{`"x"`, `""`, `5`, `0`, `-1`, `2.0`, `1.5`, `1e30`, `true`, `[]`, `["a"]`, `["a",1]`, `[["a"]]`, `{}`, `{"A":"b"}`, `{"A":1}`, `"live"`, `"accept"`}
	for tool, params := range map[string][]param{
		toolRunJob: runJobParams, toolGetJob: getJobParams, toolListJobs: listJobsParams,
		toolReadOutput: readOutputParams, toolCancelJob: cancelJobParams, toolAnswerJob: answerJobParams,
	} {
		var schema jsonschema.Schema
		if err := json.Unmarshal(schemaOf(params), &schema); err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		for _, p := range append(params, param{name: "unknown"}) {
			for _, v := range values {
				args := `{"` + p.name + `":` + v + `}`
				if p.name != "job_id" && params[0].name == "job_id" {
					args = `{"job_id":"a","` + p.name + `":` + v + `}`
				}
				var instance any
				if err := json.Unmarshal([]byte(args), &instance); err != nil {
					t.Fatal(err)
				}
				var into map[string]any
				bySchema, byUs := resolved.Validate(instance), decode(tool, params, json.RawMessage(args), &into)
				if (bySchema == nil) != (byUs == nil) {
					t.Errorf("%s %s: the schema says %v, the check %v", tool, args, bySchema, byUs)
				}
			}
		}
		for _, p := range params {
			var v any
			if err := json.Unmarshal([]byte(p.sample()), &v); err != nil {
				t.Errorf("%s: the example of %s is no JSON: %v", tool, p.name, err)
			}
		}
	}
}
