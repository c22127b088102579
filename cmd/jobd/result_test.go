package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/ipc"
)

const onePixel = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"

func TestResultInsideAJobSetsIt(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		name string
		args []string
		in   string
		kind string
		body string
	}{
		{"text", []string{"--text", "12 failed"}, "", "text", "12 failed"},
		{"text from standard input", []string{"--text", "-"}, "many\nlines\n", "text", "many\nlines\n"},
		{"empty text", []string{"--text", ""}, "", "text", ""},
		{"JSON", []string{"--json", `{"n":1}`}, "", "json", `{"n":1}`},
		{"JSON after an equals sign", []string{`--json=[1]`}, "", "json", `[1]`},
		{"JSON that looks like an id", []string{"--json", "12345678"}, "", "json", "12345678"},
		{"JSON from standard input", []string{"--json", "-"}, `{"n":2}`, "json", `{"n":2}`},
		{"JSON from standard input, unsaid", []string{"--json"}, `{"n":3}`, "json", `{"n":3}`},
		{"a text file", []string{"--file", file("a.txt", "text\n")}, "", "text", "text\n"},
		{"a JSON file", []string{"--file", file("a.json", "[2]")}, "", "json", "[2]"},
		{"a file that is JSON by name only", []string{"--file", file("b.json", "[2")}, "", "text", "[2"},
		{"an image", []string{"--file", file("a.bin", onePixel)}, "", "mcp", `{"content":[{"type":"image","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAA=","mimeType":"image/png"}]}`},
		{"a whole result", []string{"--mcp", `{"content":[]}`}, "", "mcp", `{"content":[]}`},
		{"a protocol error", []string{"--protocol-error", "no such branch"}, "", "error", `{"code":-32000,"message":"no such branch"}`},
		{"a protocol error with data", []string{"--protocol-error", "no", "--data", `{"a":[1]}`}, "", "error", `{"code":-32000,"message":"no","data":{"a":[1]}}`},
		{"a protocol error with a code", []string{"--protocol-error", "no", "--code", "-32602"}, "", "error", `{"code":-32602,"message":"no"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &fakeDaemon{}
			got := invocation{daemon: d, env: inJob, in: tt.in}.call(t, append([]string{"result"}, tt.args...)...)
			if got != (outcome{}) {
				t.Errorf("got %+v", got)
			}
			if diff := cmp.Diff([]ipc.SetResultRequest{{Job: idA, Kind: tt.kind, Body: []byte(tt.body)}}, d.results); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for args, want := range map[string]string{
		"--json {":                        "the value of --json is not one JSON value: \"{\"",
		"--file /nonexistent":             "reading the result: open /nonexistent",
		"--file " + file("x", "\x00\x01"): "holds application/octet-stream, which no result can",
		"--text a 3f2a9c1d":               `"3f2a9c1d" is too much: the result of this job is set, so no job is named`,
		"":                                "say what the result of this job is",
	} {
		got := invocation{env: inJob}.call(t, append([]string{"result"}, strings.Fields(args)...)...)
		if got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("result %s: got %+v, want an error that holds %q", args, got, want)
		}
	}
}

func TestResultPrintsWhatTheJobSet(t *testing.T) {
	job := func(state, kind string) ipc.Job {
		j := finished(idA, state)
		j.ResultKind, j.Reason = kind, "why"
		return j
	}
	for _, tt := range []struct {
		name string
		r    ipc.Result
		want outcome
		json string // the result's part of --json
	}{
		{"text", ipc.Result{Job: job("succeeded", "text"), Body: []byte("all \x1b[2Jgood")}, outcome{0, "all \x1b[2Jgood\n", ""}, `{"kind":"text","text":"all \u001b[2Jgood"}`},
		{"empty text", ipc.Result{Job: job("succeeded", "text"), Tail: ipc.Output{Data: []byte("out")}}, outcome{}, `{"kind":"text","text":""}`},
		{"JSON", ipc.Result{Job: job("succeeded", "json"), Body: []byte(`{"n":1}`)}, outcome{0, `{"n":1}` + "\n", ""}, `{"kind":"json","value":{"n":1}}`},
		{"MCP", ipc.Result{Job: job("succeeded", "mcp"), Body: []byte(`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"resource_link","uri":"x://y"}]}`)},
			outcome{0, "a\n[image image/png, 3 bytes; jobd result ID --json gives it]\n[resource_link: x://y]\n", ""},
			`{"kind":"mcp","value":{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"resource_link","uri":"x://y"}]}}`},
		{"protocol error", ipc.Result{Job: job("errored", "error"), Body: []byte(`{"code":-3,"message":"no"}`)},
			outcome{0, "error -3: no\n", "jobd: job 3f2a9c1d errored: why\n"}, `{"kind":"error","value":{"code":-3,"message":"no"}}`},
		{"output", ipc.Result{Job: job("failed", ""), Tail: ipc.Output{Data: []byte("last\n"), Offset: 900}},
			outcome{0, "last\n", "jobd: the last 5 bytes of output; all of it: jobd logs 3f2a9c1d\njobd: job 3f2a9c1d failed: why\n"}, `{"kind":"output","text":"last\n"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &fakeDaemon{result: func(ipc.GetRequest) (ipc.Result, error) { return tt.r, nil }}
			if got := (invocation{daemon: d}).call(t, "result", "3f2a"); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			got := invocation{daemon: d, env: inJob}.call(t, "result", "3f2a", "--json")
			r := asJSON[readResultJSON](t, got.out)
			if diff := cmp.Diff(filled(tt.r.Job), r.Job); diff != "" {
				t.Errorf("the job differs (-want +got):\n%s", diff)
			}
			r.Job = ipc.Job{}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(mustJSON(r), &fields); err != nil {
				t.Fatal(err)
			}
			delete(fields, "job")
			if part := string(mustJSON(fields)); !sameJSON(t, part, tt.json) {
				t.Errorf("--json gives %s, want %s", part, tt.json)
			}
			if len(d.delivered) != 2 {
				t.Errorf("the job was delivered %d times, not twice", len(d.delivered))
			}
		})
	}
}

func TestResultOfALiveJob(t *testing.T) {
	d := &fakeDaemon{result: func(ipc.GetRequest) (ipc.Result, error) {
		return ipc.Result{Job: ipc.Job{ID: idA, State: "running"}}, nil
	}}
	want := outcome{11, "", "jobd: job 3f2a9c1d is still running and has no result yet; wait for it with: jobd wait 3f2a9c1d\n"}
	if got := (invocation{daemon: d}).call(t, "result", "3f2a"); got != want {
		t.Errorf("got %+v", got)
	}
}
