package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/form"
	"jobd/internal/jobs"
)

var rules = Rules{Forms: form.Forms{}, Reserved: []string{"run_job"}}

// text renders faults without the name of the file.
func faultLines(f *File) string {
	var b strings.Builder
	for _, fault := range f.Faults {
		fmt.Fprintln(&b, strings.TrimPrefix(fault.Error(), f.Name+":"))
	}
	return b.String()
}

func TestAJobSaysAllItCan(t *testing.T) {
	f := Parse("jobs.yaml", []byte(`jobs:
  deploy:
    title: Deploy
    description: Deploy a commit.
    params:
      env: {type: string, enum: [staging, production], default: staging}
      commit: {type: string}
    required: [commit]
    argv: [./deploy.sh, --, $env, $commit, $$HOME, 10]
    cwd: ops
    env: {A: 1, B: x y}
    task: required
    answer_within: 0
    timeout: 1d12h
    question_timeout: 30m
    on_question_timeout: default
    unattended: wait
    answer_by: anyone
    concurrency: deploy
    dedupe: off
    grace: 1m
    ask_first:
      confirm: {type: boolean, default: false}
    annotations: {read_only: false, destructive: true}
    rerun: if_interrupted
  list:
    description: List.
    shell: zsh
    run: |
      ls
      pwd
`), rules)
	if got := faultLines(f); got != "" {
		t.Fatal(got)
	}
	j := f.Jobs[0]
	got := map[string]any{"name": j.Name, "title": j.Title, "argv": j.Argv, "dir": j.Dir, "env": j.Env, "task": j.Task, "answer_within": *j.AnswerWithin,
		"timeout": *j.Timeout, "question_timeout": *j.QuestionTimeout, "on": j.OnTimeout, "unattended": j.Unattended, "by": j.AnswerBy, "group": j.Group,
		"dedupe off": j.JoinOff, "grace": *j.Grace, "rerun": j.RerunInterrupted, "line": j.Line,
		"annotations": string(j.Annotations), "ask_first": string(j.AskFirst), "schema": string(j.InputSchema)}
	want := map[string]any{"name": "deploy", "title": "Deploy", "argv": []string{"./deploy.sh", "--", "$env", "$commit", "$$HOME", "10"}, "dir": "ops",
		"env": map[string]string{"A": "1", "B": "x y"}, "task": "required", "answer_within": time.Duration(0),
		"timeout": 36 * time.Hour, "question_timeout": 30 * time.Minute, "on": jobs.OnTimeoutDefault, "unattended": jobs.UnattendedWait,
		"by": jobs.AnswerByAnyone, "group": "deploy", "dedupe off": true, "grace": time.Minute, "rerun": true, "line": 2,
		"annotations": `{"readOnlyHint":false,"destructiveHint":true}`,
		"ask_first":   `{"type":"object","title":"Deploy","properties":{"confirm":{"type":"boolean","default":false}}}`,
		"schema": `{"type":"object","properties":{"env":{"type":"string","enum":["staging","production"],"default":"staging"},"commit":{"type":"string"},` +
			`"confirm":{"type":"boolean","default":false}},"required":["commit"],"additionalProperties":false}`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if l := f.Jobs[1]; !cmp.Equal(l.Shell, []string{"zsh", "-c"}) || l.Run != "ls\npwd\n" || l.Task != "optional" || l.Timeout != nil {
		t.Errorf("got %+v", l)
	}
}

func TestFaultsNamePlaceAndFix(t *testing.T) {
	// one is a good job after the faulty one.
	job := func(lines string) string { return "jobs:\n  a:\n    description: d\n    run: x\n" + lines }
	for _, c := range []struct{ name, file, want string }{
		{"unknown key", job("    timout: 5m\n"), "5:5: unknown key \"timout\"; did you mean \"timeout\"?\n"},
		{"key with a dash", job("    answer-within: 5s\n"), "5:5: unknown key \"answer-within\"; did you mean \"answer_within\"?\n"},
		{"strange key", job("    zzzzzz: 5m\n"), "5:5: unknown key \"zzzzzz\"; there are " + strings.Join(keyNames(), ", ") + "\n"},
		{"top key", "job:\n  a: {}\n", "1:1: unknown key \"job\"; did you mean \"jobs\", or is this a job that belongs below it?\n"},
		{"a text", "hello\n", "1:1: this is no job file: it must be a mapping; begin with \"jobs:\" and put each job below it, indented\n"},
		{"a list", "- jobs\n", "1:1: this is no job file: it must be a mapping; begin with \"jobs:\" and put each job below it, indented\n"},
		{"jobs is a list", "jobs:\n- a\n", "2:1: jobs must be a mapping of names to jobs; write each job as \"name:\" with its keys below, indented\n"},
		{"a job is a text", "jobs:\n  a: make\n", "2:6: the job must be a mapping, not a text; write its keys below its name, indented\n"},
		{"a job is nothing", "jobs:\n  a:\n", "2:5: the job must be a mapping, not nothing; write its keys below its name, indented\n"},
		{"name", "jobs:\n  run tests: {description: d, run: x}\n", "2:3: \"run tests\" cannot be the name of a tool; use letters, digits, \"_\" and \"-\", at most 64\n"},
		{"name of ours", "jobs:\n  run_job: {description: d, run: x}\n", "2:3: \"run_job\" is the name of one of jobd's own tools; choose another name\n"},
		{"name twice", "jobs:\n  a: {description: d, run: x}\n  a: {description: e, run: y}\n", "3:3: the job \"a\" is there twice; the first one holds; rename one of them\n"},
		{"key twice", job("    run: y\n"), "5:5: \"run\" is there twice; keep one of them\n"},
		{"no command", "jobs:\n  a:\n    description: d\n", "2:3: the job \"a\" has no command; add run for a shell's text, or argv for a program and its arguments\n"},
		{"two commands", job("    argv: [x]\n"), "5:5: run and argv exclude each other; keep run for a shell's text, argv for a program and its arguments\n"},
		{"no description", "jobs:\n  a: {run: x}\n", "2:3: the job \"a\" has no description; add one that says when to use it: models find tools by it\n"},
		{"shell without run", "jobs:\n  a: {description: d, argv: [x], shell: bash}\n", "2:34: shell runs the text of run, and there is none; remove it, or use run\n"},
		{"duration", job("    timeout: 5 minutes\n"), "5:14: timeout cannot be \"5 minutes\"; write a number with a unit, such as 90s, 15m, 24h or 30d\n"},
		{"duration without a unit", job("    timeout: 90\n"), "5:14: timeout cannot be \"90\"; write a number with a unit, such as 90s, 15m, 24h or 30d\n"},
		{"duration too long", job("    answer_within: 5m\n"), "5:20: answer_within is 5m0s, and must be at most 30s\n"},
		{"word", job("    task: requird\n"), "5:11: task cannot be \"requird\"; did you mean \"required\"?\n"},
		{"other word", job("    task: maybe\n"), "5:11: task cannot be \"maybe\"; use one of optional, required, never\n"},
		{"description is a number", "jobs:\n  a:\n    description: 5\n    run: x\n", "3:18: description must be a text, not a number; put it in quotes\n"},
		{"empty run", "jobs:\n  a:\n    description: d\n    run: ''\n", "4:10: run is empty\n"},
		{"env name", job("    env: {A-B: x}\n"), "5:11: \"A-B\" cannot be the name of a variable; use letters, digits and \"_\"\n"},
		{"env of ours", job("    env: {JOBD_HOME: x}\n"), "5:11: variables that begin with JOBD_ are set by jobd; use another name\n"},
		{"env boolean", job("    env: {A: true}\n"), "5:14: the variable A must be a text, not true or false; put it in quotes\n"},
		{"cwd of a shell", job("    cwd: ~/x\n"), "5:10: cwd is not expanded by a shell, so \"~/x\" would be a directory of that name; write an absolute path, or one relative to the project\n"},
		{"param name", job("    params: {a-b: {}}\n"), "5:14: \"a-b\" cannot be the name of an argument; use letters, digits and \"_\", at most 64, no digit first: it becomes the variable JOBD_ARG_…\n"},
		{"param no schema", job("    params: {p: string}\n"), "5:17: params.p must be a JSON Schema, not a text; write {type: string}, say\n"},
		{"param type", job("    params: {p: {type: strng}}\n"), "5:24: params.p has the type \"strng\"; did you mean \"string\"?\n"},
		{"param keyword", job("    params:\n      p: {type: array, items: {type: string, maxlength: 3}}\n"), "6:46: params.p.items has the keyword \"maxlength\", which JSON Schema does not have; did you mean \"maxLength\"?\n"},
		{"param pattern", job("    params: {p: {type: string, pattern: '('}}\n"), "5:14: params.p: pattern: error parsing regexp: missing closing ): `(`\n"},
		{"param default", job("    params: {p: {type: integer, default: x}}\n"), "5:14: params.p: type: x has type \"string\", want \"integer\"\n"},
		{"param refers", job("    params: {p: {$ref: '#/properties/p'}}\n"), "5:18: params.p uses $ref; references are not used in job files; write the schema out, or use a YAML alias\n"},
		{"required", job("    params: {commit: {}}\n    required: [comit]\n"), "6:5: required names \"comit\", which is not among params; did you mean \"commit\"?\n"},
		{"required in a param", job("    params: {p: {type: string, required: true}}\n"), "5:42: params.p.required must be a list, not true or false; list the names of required arguments in \"required\" beside params\n"},
		{"keyword of the wrong kind", job("    params: {p: {type: string, maxLength: long}}\n"), "5:43: params.p.maxLength must be a number, not a text\n"},
		{"ask_first secret", job("    ask_first: {password: {type: string}}\n"), "5:17: ask_first.password: the field \"password\" looks like a secret, and a form must not ask for one: its value would pass through the client and stay in its records; ask with --secret, which takes the value on a page of its own and hands it to the job only\n"},
		{"ask_first like a param", job("    params: {p: {}}\n    ask_first: {p: {type: string}}\n"), "6:17: ask_first has the field \"p\", which is also among params; rename one of them\n"},
		{"ask_first empty", job("    ask_first: {}\n"), "5:16: ask_first must be a mapping of names to JSON Schemas; write name: {type: string} below it, indented\n"},
		{"annotation", job("    annotations: {readonly: true}\n"), "5:19: unknown annotation \"readonly\"; did you mean \"read_only\"?\n"},
		{"annotation value", job("    annotations: {read_only: yes}\n"), "5:30: the annotation read_only must be true or false, not a text; write true or false\n"},
		{"argv text", "jobs:\n  a:\n    description: d\n    argv: make test\n", "4:11: argv must be a list that is not empty, not a text; write the program and its arguments as a list: [make, test]\n"},
		{"placeholder unknown", "jobs:\n  a:\n    description: d\n    params: {file: {}}\n    required: [file]\n    argv: [cat, $fil]\n", "6:17: $fil stands for the argument \"fil\", which is not among params; write $$fil for the text itself; did you mean \"file\"?\n"},
		{"placeholder optional", "jobs:\n  a:\n    description: d\n    params: {file: {}}\n    argv: [cat, $file]\n", "5:17: $file stands for the argument \"file\", which a call may leave out; list it in required, or give it a default\n"},
		{"placeholder inside", "jobs:\n  a:\n    description: d\n    params: {file: {}}\n    required: [file]\n    argv: [cat, --in=$file]\n", "6:17: --in=$file: an argument is a whole element of argv, never a part of one; make it an element of its own\n"},
		{"placeholder program", "jobs:\n  a:\n    description: d\n    params: {file: {}}\n    required: [file]\n    argv: [$file]\n", "6:12: the program cannot be an argument of the call; name the program itself\n"},
		{"tab", "jobs:\n\ta: {}\n", "2:1: this is not YAML: found character ' ' that cannot start any token; indent with spaces; YAML knows no tabs\n"},
		{"colon", "jobs:\n  a:\n    description: Note: this\n", "3:18: this is not YAML: mapping value is not allowed in this context; put a text that holds \": \" in quotes, or write it below \"|\"\n"},
		{"unclosed", "jobs: [1, 2\n", "1:7: this is not YAML: sequence end token ']' not found\n"},
		{"not UTF-8", "jobs:\n  a: \xff\n", "2:6: the file is not UTF-8: it has the byte 0xff; save it as UTF-8\n"},
		{"UTF-16", "j\x00o\x00", "1:2: there is the control character U+0000; write it in double quotes, as \"\\x1b\" is written\n"},
		{"carriage return", "jobs:\r  a: 1\r", "1:6: there is a carriage return that ends no line; end lines with a line feed\n"},
		{"huge", strings.Repeat("# x\n", MaxFile), "1:1: the file is larger than 262144 bytes; move long scripts into files of their own\n"},
		{"deep", "jobs: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "1:71: values are nested deeper than 64 here\n"},
		{"deep in a line", "jobs:\n" + strings.Repeat("- ", 5000), "2:129: values are nested deeper than 64 here\n"},
		{"tag", job("    title: !!str 5\n"), "5:12: tags such as !!str are not used in job files; quote the value to make it a text\n5:12: title must be a text, not nothing; put it in quotes\n"},
		{"unknown alias", job("    title: *t\n"), "5:12: nothing above is called \"t\"; mark the value that is meant with &t, above\n5:12: title must be a text, not nothing; put it in quotes\n"},
		{"merge", job("    <<: {title: x}\n"), "5:5: merging by << is not part of YAML 1.2 and not used in job files; repeat the keys, or use an alias for the whole value\n"},
		{"second document", "jobs: {}\n---\njobs: {}\n", "3:5: this is a second document; a job file has one; put all jobs below one \"jobs:\"\n"},
		{"NUL in a script", "jobs:\n  a:\n    description: d\n    run: \"x\\0y\"\n", "4:10: run holds a NUL character, which no program can be given; leave it out\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, faultLines(Parse("jobs.yaml", []byte(c.file), rules))); d != "" {
				t.Error(d)
			}
		})
	}
}

// The form that "jobd validate" prints.
func TestAFaultShowsItsLine(t *testing.T) {
	f := Parse("dir/jobs.yaml", []byte("jobs:\n  a:\n    description: d\n    run: x\n    timout: \x1b\n"), rules)
	if len(f.Faults) != 1 || !strings.Contains(f.Faults[0].Message, "U+001B") {
		t.Fatalf("got %v", f.Faults)
	}
	if got := f.Faults[0].Text(); strings.Contains(got, "\x1b") {
		t.Errorf("the text %q holds an escape", got)
	}
	f = Parse("dir/jobs.yaml", []byte("jobs:\n  a:\n    description: d\n    run: x\n    timout: 5m\n"), rules)
	want := "dir/jobs.yaml:5:5: unknown key \"timout\"\n" +
		"     5 |     timout: 5m\n" +
		"       |     ^\n" +
		"         did you mean \"timeout\"?\n"
	if d := cmp.Diff(want, f.Faults[0].Text()); d != "" {
		t.Error(d)
	}
	want = `dir/jobs.yaml:5:5: unknown key "timout"; did you mean "timeout"? (the line is: timout: 5m)`
	if d := cmp.Diff(want, f.Faults[0].Sentence()); d != "" {
		t.Error(d)
	}
	far := Fault{File: "f", Line: 1, Column: 5000, Message: "m", Source: strings.Repeat("é", 10000)}
	if got := far.Text(); len(got) > 600 {
		t.Errorf("a long line makes %d bytes", len(got))
	}
}

func TestAFaultyJobLeavesTheOthers(t *testing.T) {
	f := Parse("jobs.yaml", []byte(`jobs:
  one: {description: d, run: x}
  two: {description: d, run: x, tsk: never}
  three: {description: d, params: {p: {type: strng}}, run: x}
  four: {description: d, run: y}
extra: 1
`), rules)
	var names []string
	for _, j := range f.Jobs {
		names = append(names, j.Name)
	}
	if d := cmp.Diff([]string{"one", "four"}, names); d != "" {
		t.Error(d)
	}
	var of []string
	for _, x := range f.Faults {
		of = append(of, x.Job)
	}
	if d := cmp.Diff([]string{"two", "three", ""}, of); d != "" {
		t.Error(d)
	}
}

func TestFilesOfOtherEditorsAreRead(t *testing.T) {
	for name, file := range map[string]string{
		"CRLF":            "jobs:\r\n  a:\r\n    description: d\r\n    run: |\r\n      x\r\n      y\r\n",
		"byte order mark": "\xef\xbb\xbfjobs:\n  a:\n    description: d\n    run: |\n      x\n      y\n",
		"aliases":         "jobs:\n  a:\n    description: &d d\n    run: &r |\n      x\n      y\n  b: {description: *d, run: *r}\n",
		"flow":            `{"jobs": {"a": {"description": "d", "run": "x\ny\n"}}}`,
		"comments":        "# c\njobs: # c\n  # c\n  a:\n    # c\n    description: d # c\n    run: |\n      x\n      y\n",
		"document":        "---\njobs:\n  a:\n    description: d\n    run: |\n      x\n      y\n...\n",
	} {
		f := Parse("jobs.yaml", []byte(file), rules)
		if len(f.Faults) > 0 || f.Jobs[len(f.Jobs)-1].Run != "x\ny\n" {
			t.Errorf("%s: %v", name, f.Faults)
		}
	}
	for _, empty := range []string{"", "\n", "# nothing\n", "---\n", "jobs:\n", "jobs: {}\n", "\xef\xbb\xbf"} {
		if f := Parse("jobs.yaml", []byte(empty), rules); len(f.Faults)+len(f.Jobs) > 0 {
			t.Errorf("%q: %v", empty, f.Faults)
		}
	}
}

// Files that are made to use up time or memory end in a fault, quickly.
func TestMaliciousFilesCostLittle(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, MaxFile/len(s)-10) }
	bomb := "jobs:\n  a:\n    description: d\n    run: x\n    params:\n      p0: &p0 {type: string, title: xxxxxxxxxxxxxxxxxxxx}\n"
	for i := 1; i < 40; i++ {
		bomb += fmt.Sprintf("      p%d: &p%d {anyOf: [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*p%d, ", i-1), 10), ", "))
	}
	for name, file := range map[string]string{
		"brackets": fill("["), "closed brackets": fill("[]"), "maps": fill("{a: "), "entries": fill("- "), "questions": fill("? "), "tags": fill("!a "),
		"anchors": fill("&a "), "aliases": "jobs:\n  a: [" + fill("*a, ") + "]", "colons": fill(": "), "quotes": fill("\""), "single quotes": fill("'"),
		"lines": fill("a: b\n"), "blank lines": fill("\n"), "spaces": "a: b" + fill(" "), "comments": fill("#\n"), "plain": "jobs: " + fill("x\n  "),
		"literal": "jobs: |\n" + fill("  x\n"), "items": "jobs: [" + fill("x, ") + "]", "steps": steps(), "bomb": bomb, "commas": fill(","), "documents": fill("---\n"),
		"many jobs": "jobs:\n" + fill("  a: {}\n"), "bars": fill("|\n"), "percent": fill("%a\n"), "mixed": fill("- [{a: 'b\n"),
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			f := Parse("jobs.yaml", []byte(file), rules)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(f.Faults) == 0 && name != "blank lines" && name != "comments" && name != "documents" {
				t.Error("there is no fault")
			}
			checkPlaces(t, file, f)
		})
	}
}

// steps is a file that goes one level deeper with each line.
func steps() string {
	var b strings.Builder
	for i := 0; b.Len() < MaxFile-2000; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// checkPlaces requires of every fault a place within the file, on one line.
func checkPlaces(t *testing.T, file string, f *File) {
	t.Helper()
	lines := strings.Count(file, "\n") + 1
	for _, x := range f.Faults {
		if x.Line < 1 || x.Line > lines || x.Column < 1 || x.Message == "" {
			t.Errorf("the fault %+v has no place in %d lines", x, lines)
		}
		for _, s := range []string{x.Error(), x.Sentence()} {
			if strings.ContainsAny(s, "\n\r\x1b") {
				t.Errorf("the sentence %q is not one plain line", s)
			}
		}
		_ = x.Text()
	}
}

func TestExampleFilesOfTheRepositoryAreGood(t *testing.T) {
	found, err := filepath.Glob("../../examples/*/.jobd/jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../e2e/testdata/*/.jobd/jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if found = append(found, more...); len(found) < 5 {
		t.Fatalf("found %v only", found)
	}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if f := Parse(path, data, rules); len(f.Faults) > 0 || len(f.Jobs) == 0 {
			t.Errorf("%s:%s", path, faultLines(f))
		}
	}
}
