package jobfile

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
)

// one parses a file with one good job.
func one(t *testing.T, file string) *Job {
	t.Helper()
	f := Parse("jobs.yaml", []byte(file), rules)
	if len(f.Faults) > 0 || len(f.Jobs) != 1 {
		t.Fatal(faultLines(f))
	}
	return f.Jobs[0]
}

const deployFile = `jobs:
  deploy:
    description: d
    params:
      env: {type: string, enum: [staging, production], default: staging}
      commit: {type: string, pattern: "^[0-9a-f]{7}$", description: The commit's hash.}
      n: {type: integer, minimum: 1, maximum: 9}
      x: {type: number}
      dry: {type: boolean, default: false}
      files: {type: array, items: {type: string}, maxItems: 2}
      opts: {type: object, properties: {depth: {type: integer, default: 3}, name: {type: string}}, additionalProperties: false}
      note: {type: [string, "null"]}
    required: [commit]
    run: x
`

func TestArgumentsAreCheckedAndCompleted(t *testing.T) {
	j := one(t, deployFile)
	for _, c := range []struct{ name, args, want string }{
		{"least", `{"commit":"abcdef0"}`, `{"env":"staging","commit":"abcdef0","dry":false,"opts":{"depth":3}}`},
		{"null is left out", `{"commit":"abcdef0","env":null,"n":null}`, `{"env":"staging","commit":"abcdef0","dry":false,"opts":{"depth":3}}`},
		{"null as a value", `{"commit":"abcdef0","note":null}`, `{"env":"staging","commit":"abcdef0","dry":false,"opts":{"depth":3},"note":null}`},
		{"order and spelling", ` { "n" : 3.0, "files":[ "b","a" ], "commit":"abcdef0","opts":{"name":"<x>","depth":4},"x":1e2,"env":"production"}`,
			`{"env":"production","commit":"abcdef0","n":3.0,"x":1e2,"dry":false,"files":["b","a"],"opts":{"depth":4,"name":"<x>"}}`},
		{"default inside", `{"commit":"abcdef0","opts":{"name":"x"}}`, `{"env":"staging","commit":"abcdef0","dry":false,"opts":{"depth":3,"name":"x"}}`},
		{"large number", `{"commit":"abcdef0","x":123456789012345678901234567890.5}`, `{"env":"staging","commit":"abcdef0","x":123456789012345678901234567890.5,"dry":false,"opts":{"depth":3}}`},
	} {
		call, err := j.Bind([]byte(c.args), nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, string(call.Arguments)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	j := one(t, deployFile)
	for args, want := range map[string]string{
		``:                                      `deploy needs the argument "commit", a string that matches ^[0-9a-f]{7}$ (The commit's hash)`,
		`null`:                                  `deploy needs the argument "commit", a string that matches ^[0-9a-f]{7}$ (The commit's hash)`,
		`{}`:                                    `deploy needs the argument "commit", a string that matches ^[0-9a-f]{7}$ (The commit's hash)`,
		`[1]`:                                   `deploy takes the arguments as a JSON object; it got [1]`,
		`{"a"`:                                  `deploy takes the arguments as a JSON object; it got {"a"`,
		`"text"`:                                `deploy takes the arguments as a JSON object; it got "text"`,
		`{"commit":null}`:                       `deploy needs the argument "commit", a string that matches ^[0-9a-f]{7}$ (The commit's hash)`,
		`{"commit":"abcdef0","comit":1}`:        `deploy has no argument "comit"; did you mean "commit"?`,
		`{"commit":"xyz"}`:                      `deploy needs "commit" to be a string that matches ^[0-9a-f]{7}$ (The commit's hash); it got "xyz"`,
		`{"commit":"abcdef0","env":"prod"}`:     `deploy needs "env" to be one of "staging", "production"; it got "prod"`,
		`{"commit":"abcdef0","n":10}`:           `deploy needs "n" to be a whole number of at least 1 and of at most 9; it got 10`,
		`{"commit":"abcdef0","n":"3"}`:          `deploy needs "n" to be a whole number of at least 1 and of at most 9; it got "3"`,
		`{"commit":"abcdef0","dry":"yes"}`:      `deploy needs "dry" to be true or false; it got "yes"`,
		`{"commit":"abcdef0","files":[1]}`:      `deploy needs "files" to be a list of at most 2 and whose items are each a string; it got [1] (type: 1 has type "integer", want "string")`,
		`{"commit":"a\u0000"}`:                  `deploy needs "commit" to be a string that matches ^[0-9a-f]{7}$ (The commit's hash); it got "a\u0000"`,
		`{"commit":"abcdef0","note":"a\u0000"}`: `deploy got a NUL character in the argument "note", which no program can be given; leave it out`,
		`{"commit":"abcdef0","note":"` + strings.Repeat("x", 1<<20) + `"}`: `deploy takes at most 100000 bytes for the argument "note", and 400000 for all; it got 1048576: put the text into a file and give a path, if the tool can read one (the author of jobs.yaml can take longer arguments from JOBD_ARGS_FILE)`,
	} {
		_, err := j.Bind([]byte(args), nil)
		if err == nil || !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("%.60s: got %v", args, err)
			continue
		}
		if d := cmp.Diff(want, err.Error()); d != "" {
			t.Errorf("%.60s: %s", args, d)
		}
	}
}

func TestAnswersArriveLikeArguments(t *testing.T) {
	j := one(t, `jobs:
  drop:
    description: d
    params: {table: {type: string}}
    required: [table]
    ask_first:
      confirm: {type: boolean, default: false}
      reason: {type: string, minLength: 3}
    argv: [drop, $table, $confirm, $reason]
`)
	if want := `{"type":"object","properties":{"table":{"type":"string"}},"required":["table"],"additionalProperties":false}`; string(j.InputSchema) != want {
		t.Errorf("what only the person may say is offered to the model: %s", j.InputSchema)
	}
	for _, c := range []struct{ name, args, answers, missing, argv, identity string }{
		{"nothing yet", `{"table":"t"}`, ``, "confirm reason", "", `{"table":"t"}`},
		{"answered", `{"table":"t"}`, `{"confirm":true,"reason":"old"}`, "", "drop t true old", `{"table":"t"}`},
		{"a default accepted", `{"table":"t"}`, `{"reason":"old"}`, "", "drop t false old", `{"table":"t"}`},
		{"as arguments", `{"table":"t","reason":"old","confirm":true}`, ``, "", "drop t true old", `{"table":"t","confirm":true,"reason":"old"}`},
		{"some as arguments", `{"table":"t","reason":"old"}`, ``, "confirm", "", `{"table":"t","reason":"old"}`},
		{"the answer wins", `{"table":"t","reason":"old"}`, `{"confirm":true,"reason":"new"}`, "", "drop t true new", `{"table":"t","reason":"old"}`},
	} {
		call, err := j.Bind([]byte(c.args), []byte(c.answers))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := []string{strings.Join(call.Missing, " "), string(call.Identity)}
		want := []string{c.missing, c.identity}
		if c.missing == "" {
			got, want = append(got, strings.Join(call.Argv(""), " ")), append(want, c.argv)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if c.missing != "" {
			continue
		}
		// What a rerun reads back is the same call.
		args, answers, err := j.Split(call.Arguments)
		if err != nil {
			t.Fatal(err)
		}
		again, err := j.Bind(args, answers)
		if err != nil || string(again.Arguments) != string(call.Arguments) || len(again.Missing) > 0 {
			t.Errorf("%s: split and bound again it is %s, %v", c.name, again.Arguments, err)
		}
	}
	for answers, want := range map[string]string{
		`{"confirm":true}`:              `drop needs an answer for the field "reason", a string of at least 3 characters`,
		`{"reason":"x","confirm":true}`: `drop needs "reason" to be a string of at least 3 characters; it got "x"`,
		`{"table":"x"}`:                 `drop has no field "table" in ask_first; there are confirm, reason`,
	} {
		if _, err := j.Bind([]byte(`{"table":"t"}`), []byte(answers)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", answers, err, want)
		}
	}
}

func TestArgvTakesWholeElements(t *testing.T) {
	j := one(t, `jobs:
  a:
    description: d
    params:
      s: {type: string}
      n: {type: number, default: 1}
      list: {type: array}
      o: {type: object}
    required: [s, list, o]
    argv: [prog, --, $s, $n, $list, $o, $$s, "$ s", a$b, $$, "$"]
`)
	call, err := j.Bind([]byte(`{"s":"-x $(y) \"","n":2.50,"list":["a b",1,true,null,["c"]],"o":{"k":"v"}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"prog", "--", `-x $(y) "`, "2.50", "a b", "1", "true", "null", `["c"]`, `{"k":"v"}`, "$s", "$ s", "a$b", "$", "$"}
	if d := cmp.Diff(want, call.Argv("")); d != "" {
		t.Error(d)
	}
	if _, err := j.Bind([]byte(`{"s":"x","list":["\u0000"],"o":{}}`), nil); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("got %v", err)
	}
	if _, err := j.Bind([]byte(`{"s":"`+strings.Repeat("x", 200_000)+`","list":[],"o":{}}`), nil); err == nil || !strings.Contains(err.Error(), "100000") {
		t.Errorf("got %v", err)
	}
}

func TestValuesAreWrittenPlainly(t *testing.T) {
	for js, want := range map[string]string{`"x"`: "x", `""`: "", `true`: "true", `1`: "1", `1.0`: "1", `1e3`: "1000", `-2.0`: "-2", `1.5`: "1.5", `1e400`: "1e400",
		`9007199254740993`: "9007199254740993", `[1]`: "[1]", `{"a":1.0}`: `{"a":1.0}`, `-0.0`: "0"} {
		if got := textOf(json.RawMessage(js)); got != want {
			t.Errorf("%s becomes %q, want %q", js, got, want)
		}
	}
}

// texts makes texts that are hostile to shells: quotes, expansions, line feeds,
// leading dashes, and characters of every plane of Unicode.
func texts(r *rand.Rand, n int) []string {
	pieces := []string{"'", `"`, "`touch PWNED`", "$(touch PWNED)", "${IFS}", "$HOME", "\\", "\n", "\r\n", "\t", ";touch PWNED;", "&&touch PWNED", "|touch PWNED", ">PWNED",
		"*", "?", "~", "!", "#", " ", "  ", "-", "--", "-rf", "$JOBD_ARGS", "%s%n", "\x01", "\x1b[31m", "\x7f", "a", "=", "\u0085", "\u2028", "\ufeff", "\ufffd"}
	out := []string{"", "-", "--", "-n", "-e x", "\n", "\n\n", " ", "'", "$(touch PWNED)", "`touch PWNED`", "\\", "\\\n", "x\n"}
	for len(out) < n {
		var b strings.Builder
		for range r.IntN(30) {
			if r.IntN(3) > 0 {
				b.WriteString(pieces[r.IntN(len(pieces))])
				continue
			}
			c := rune(r.IntN(17)<<16 | r.IntN(0x10000))
			if utf8.ValidRune(c) && c != 0 {
				b.WriteRune(c)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// Arguments reach a real shell and a real program as they are, and nothing in
// them is run.
func TestHostileArgumentsArriveUnharmed(t *testing.T) {
	run := one(t, `jobs:
  a:
    description: d
    params: {text: {type: string}, other: {type: string}}
    required: [text, other]
    run: |
      printf %s "$JOBD_ARG_text" >text
      printf %s "$JOBD_ARG_other" >other
      printf %s "$JOBD_ARGS" >all
`)
	argv := one(t, `jobs:
  a:
    description: d
    params: {text: {type: string}, other: {type: string}}
    required: [text, other]
    argv: [sh, -c, 'printf %s "$1" >text; printf %s "$2" >other; printf %s "$JOBD_ARGS" >all', sh, $text, $other]
`)
	r := rand.New(rand.NewPCG(1, 2))
	values := texts(r, 120)
	values = append(values, strings.Repeat("$(touch PWNED)\n", 6_000))
	dir := t.TempDir()
	for i, text := range values {
		other := values[len(values)-1-i]
		if len(other) > 1000 {
			other = "x"
		}
		args, err := json.Marshal(map[string]string{"text": text, "other": other})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range []*Job{run, argv} {
			call, err := j.Bind(args, nil)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			words := call.Argv("/bin/sh")
			if j == run && strings.Contains(strings.Join(words, " "), "PWNED") {
				t.Fatalf("an argument is in the shell's text: %q", words)
			}
			cmd := exec.Command(words[0], words[1:]...)
			cmd.Dir, cmd.Env = dir, append(call.Environ(), "PATH="+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", text, err, out)
			}
			all := map[string]string{}
			if err := json.Unmarshal(file(t, dir, "all"), &all); len(args) < 90_000 && err != nil {
				t.Errorf("JOBD_ARGS: %v", err)
			}
			if string(file(t, dir, "text")) != text || string(file(t, dir, "other")) != other || (len(all) > 0 && (all["text"] != text || all["other"] != other)) {
				t.Errorf("%q and %q arrived as %q and %q", text, other, file(t, dir, "text"), file(t, dir, "other"))
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"text", "other", "all"}, e.Name()) {
			t.Errorf("an argument made the file %q", e.Name())
		}
	}
}

func file(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLongArgumentsAreInTheFileOnly(t *testing.T) {
	j := one(t, `jobs:
  a:
    description: d
    params: {long: {type: string}, short: {type: string}, more: {type: string}}
    run: cat "$JOBD_ARGS_FILE"
`)
	long := strings.Repeat("é", 1<<19)
	args, err := json.Marshal(map[string]string{"long": long, "short": "s"})
	if err != nil {
		t.Fatal(err)
	}
	call, err := j.Bind(args, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"JOBD_ARG_short=s"}, call.Environ()); d != "" {
		t.Error(d)
	}
	var got map[string]string
	if err := json.Unmarshal(call.Arguments, &got); err != nil || got["long"] != long {
		t.Errorf("the file does not hold the argument: %v", err)
	}
	if shown := call.Shown(); len(shown) > 1000 || !strings.Contains(string(shown), "1048576 bytes, SHA-256") {
		t.Errorf("shown as %s", shown)
	}
	// All together must fit, too.
	many := Job{Name: "m", Run: FileVariable}
	all := map[string]json.RawMessage{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		many.params = append(many.params, entry{key: name})
		all[name] = jsonString(strings.Repeat(name, 90_000))
	}
	call = &Call{job: &many}
	if err := call.fill(all); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, kv := range call.Environ() {
		total += len(kv)
	}
	if total > maxVariables+1000 || total < 300_000 {
		t.Errorf("the variables have %d bytes", total)
	}
}
