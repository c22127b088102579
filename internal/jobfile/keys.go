package jobfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"jobd/internal/jobs"
)

// A key is one key of a job: how it is read, and all that is said of it.
type key struct {
	name string
	// about is one or two sentences for editors and the reference.
	about string
	// more is Markdown for the reference only.
	more string
	// schema is its JSON Schema less the description.
	schema string
	// example is a job with the key, as YAML below "jobs:".
	example string
	take    func(*builder, *node)
}

// The bounds of single values. An environment string, and an argument, may
// have 128 KiB on Linux (MAX_ARG_STRLEN, execve(2)).
const (
	maxText        = 100_000
	maxDescription = 4_000
	maxTitle       = 100
	maxGroup       = 100
	maxTimeout     = 10 * 365 * 24 * time.Hour
)

const durationSchema = `{"type":["string","integer"],"pattern":"^(0|([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*)$","maximum":0,"minimum":0}`

// keys describes every key of a job, in the order of the reference.
var keys = []key{
	{
		name:   "description",
		about:  "What the tool does and when to use it. Models choose tools by it. Required.",
		schema: `{"type":"string","minLength":1,"maxLength":4000}`,
		example: `  unit_tests:
    description: Run the unit tests. Use it before a commit.
    run: make test
`,
		take: func(b *builder, n *node) { b.job.Description = b.someText(n, "description", maxDescription) },
	},
	{
		name:   "title",
		about:  "A name for people, shown instead of the tool's name.",
		schema: `{"type":"string","minLength":1,"maxLength":100}`,
		example: `  unit_tests:
    title: Unit tests
    description: Run the unit tests.
    run: make test
`,
		take: func(b *builder, n *node) { b.job.Title = b.line(n, "title", maxTitle) },
	},
	{
		name: "params",
		about: "The arguments of the tool: a JSON Schema for each name. Names are made of letters, digits and \"_\". " +
			"An argument that is left out gets its default; one that is not declared is refused.",
		more: "The schemas may use all of JSON Schema 2020-12 but references (`$ref`, `$id`, `$anchor`), for which a YAML alias does\n" +
			"the same. Patterns are those of Go (RE2), which have no look-ahead and need no time that an attacker could choose.\n" +
			"`format` is a note for the reader and is not checked. How arguments reach the command is told under *Arguments*.",
		schema: `{"type":"object","propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]{0,63}$"},"additionalProperties":{"type":["object","boolean"]}}`,
		example: `  deploy:
    description: Deploy a commit to an environment.
    params:
      env: {type: string, enum: [staging, production], default: staging}
      commit:
        type: string
        pattern: "^[0-9a-f]{7,40}$"
        description: The commit's hash, at least 7 digits of it.
      replicas: {type: integer, minimum: 1, maximum: 20}
    required: [commit]
    run: ./scripts/deploy.sh "$JOBD_ARG_env" "$JOBD_ARG_commit" "${JOBD_ARG_replicas:-2}"
`,
		take: func(b *builder, n *node) { b.job.params = b.declared(n, "params") },
	},
	{
		name:   "required",
		about:  "The names of the params that a call must give.",
		schema: `{"type":"array","items":{"type":"string"},"uniqueItems":true}`,
		example: `  lint:
    description: Lint one directory.
    params:
      dir: {type: string}
    required: [dir]
    argv: [golangci-lint, run, --, $dir]
`,
		take: func(b *builder, n *node) { b.job.required = b.texts(n, "required") },
	},
	{
		name:  "run",
		about: "The command as a text for the shell. Arguments are variables in it: \"$JOBD_ARG_name\". Either this or argv.",
		more: "Write the quotes around a variable: without them the shell splits the value into words and expands `*` in it. A value\n" +
			"that may begin with `-` goes behind `--`.",
		schema: `{"type":"string","minLength":1,"maxLength":100000}`,
		example: `  search:
    description: Search the sources for a text.
    params:
      what: {type: string, minLength: 1}
    required: [what]
    run: |
      set -euo pipefail
      git grep -n -e "$JOBD_ARG_what" -- src
`,
		take: func(b *builder, n *node) { b.job.Run = b.someText(n, "run", maxText) },
	},
	{
		name:  "argv",
		about: "The command as a program and its arguments, without a shell. An element that is $name as a whole is the argument of that name. Either this or run.",
		more: "Only whole elements are replaced: `--env=$env` is refused, `--env, $env` is right. An argument that is a list becomes as many\n" +
			"elements as it has items. The argument must always be there: it is listed in `required`, or has a default. `$$name` is the\n" +
			"text `$name` itself. A program without a slash is looked for on the caller's PATH; one with a slash is relative to `cwd`.",
		schema: `{"type":"array","items":{"type":["string","number"]},"minItems":1}`,
		example: `  format:
    description: Format files.
    params:
      files: {type: array, items: {type: string}, minItems: 1}
    required: [files]
    argv: [gofmt, -w, --, $files]
`,
		take: (*builder).takeArgv,
	},
	{
		name:   "shell",
		about:  "What runs the text of run, which is added as the last argument: a list, or one program that is called with -c. Default: bash -c, or sh -c where there is no bash.",
		schema: `{"type":["string","array"],"items":{"type":"string"},"minItems":1,"minLength":1}`,
		example: `  count_words:
    description: Count the words of a text.
    params:
      text: {type: string}
    required: [text]
    shell: [python3, -c]
    run: |
      import os
      print(len(os.environ["JOBD_ARG_text"].split()))
`,
		take: (*builder).takeShell,
	},
	{
		name:   "cwd",
		about:  "The working directory. A relative one starts at the project. Default: the project.",
		schema: `{"type":"string","minLength":1}`,
		example: `  frontend_build:
    description: Build the web front end.
    cwd: web
    argv: [npm, run, build]
`,
		take: (*builder).takeDir,
	},
	{
		name:   "env",
		about:  "Variables on top of the environment of whoever calls the tool. Values are taken as they are written; nothing is expanded in them.",
		schema: `{"type":"object","propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]*$"},"additionalProperties":{"type":["string","number"]}}`,
		example: `  nightly:
    description: Run the slow tests.
    env:
      GOFLAGS: -count=1
      SLOW: "1"
    run: go test ./...
`,
		take: (*builder).takeEnv,
	},
	{
		name: "task",
		about: "Whether a call becomes a background task: optional (where the client knows tasks and the job is not done within answer_within), " +
			"required (a client that does not know tasks is refused), never (every call waits for the result). Default: optional.",
		schema: `{"enum":["optional","required","never"]}`,
		example: `  version:
    description: Print the version of the sources.
    task: never
    run: git describe --tags --always
`,
		take: func(b *builder, n *node) { b.job.Task = b.word(n, "task", "optional", "required", "never") },
	},
	{
		name:   "answer_within",
		about:  "How long a call waits for the result before it is answered with a task, at most 30s. 0 = it is always a task. Default: answer_within of config.yaml, 1s.",
		schema: durationSchema,
		example: `  deploy:
    description: Deploy what is checked out.
    answer_within: 0s
    run: ./scripts/deploy.sh
`,
		take: func(b *builder, n *node) { b.job.AnswerWithin = b.duration(n, "answer_within", 0, 30*time.Second) },
	},
	{
		name:   "timeout",
		about:  "How long the job may run; it is ended then. Time in which it waits for an answer does not count. 0 = no limit. Default: timeout of config.yaml, 24h.",
		schema: durationSchema,
		example: `  integration_tests:
    description: Run the integration tests, about 20 minutes.
    timeout: 45m
    run: make integration
`,
		take: func(b *builder, n *node) { b.job.Timeout = b.duration(n, "timeout", 0, maxTimeout) },
	},
	{
		name:   "question_timeout",
		about:  "How long a question of the job (jobd ask) waits for an answer where it does not say. Default: question_timeout of config.yaml, 1h.",
		schema: durationSchema,
		example: `  release:
    description: Make a release.
    question_timeout: 30m
    run: |
      [ "$(jobd ask "Publish it?" --field confirm:boolean --raw)" = true ] || exit 1
      ./scripts/publish.sh
`,
		take: func(b *builder, n *node) {
			b.job.QuestionTimeout = b.duration(n, "question_timeout", time.Second, maxTimeout)
		},
	},
	{
		name: "on_question_timeout",
		about: "What happens when nobody answers in time and the question does not say: fail (the job ends as unanswered), default (the defaults of " +
			"the form are the answer), continue (jobd ask ends with code 12 and the job goes on). Default: fail.",
		schema: `{"enum":["fail","default","continue"]}`,
		example: `  cleanup:
    description: Remove old build results.
    on_question_timeout: default
    run: |
      answer=$(jobd ask "Remove the caches, too?" --field 'caches:boolean,default=false')
      ./scripts/cleanup.sh "$answer"
`,
		take: func(b *builder, n *node) {
			b.job.OnTimeout = jobs.OnTimeout(b.word(n, "on_question_timeout", "fail", "default", "continue"))
		},
	},
	{
		name: "unattended",
		about: "What happens when a client without a person (claude -p) cancels the job because of its question: cancel (it is cancelled), wait (it goes " +
			"on waiting for an answer from elsewhere). Default: unattended of config.yaml, cancel.",
		schema: `{"enum":["cancel","wait"]}`,
		example: `  migrate:
    description: Migrate the database. Asks before it changes anything.
    unattended: wait
    run: ./scripts/migrate.sh
`,
		take: func(b *builder, n *node) {
			b.job.Unattended = jobs.Unattended(b.word(n, "unattended", "cancel", "wait"))
		},
	},
	{
		name: "answer_by",
		about: "Who may answer the job's questions: person, or anyone (also the model, by answer_job, and the fields of ask_first are offered to it as " +
			"arguments). Default: person.",
		schema: `{"enum":["person","anyone"]}`,
		example: `  triage:
    description: Sort new issues. Asks for the label where it is not sure.
    answer_by: anyone
    run: ./scripts/triage.sh
`,
		take: func(b *builder, n *node) {
			b.job.AnswerBy = jobs.AnswerBy(b.word(n, "answer_by", "person", "anyone"))
		},
	},
	{
		name:   "concurrency",
		about:  "The name of a group of which one job at a time runs in this project; others of the group queue. A job that waits for an answer keeps its place. Default: none.",
		schema: `{"type":"string","minLength":1,"maxLength":100}`,
		example: `  deploy:
    description: Deploy what is checked out.
    concurrency: deploy
    run: ./scripts/deploy.sh
  rollback:
    description: Go back to the version that was deployed before.
    concurrency: deploy
    run: ./scripts/rollback.sh
`,
		take: func(b *builder, n *node) { b.job.Group = b.line(n, "concurrency", maxGroup) },
	},
	{
		name: "dedupe",
		about: "Whether an identical call of the same session joins the job that runs, or gets the result that nobody was given yet: session (it does), " +
			"off (every call is a job of its own). Default: session.",
		schema: `{"enum":["session","off"]}`,
		example: `  roll_dice:
    description: Roll dice.
    dedupe: off
    run: echo $((RANDOM % 6 + 1))
`,
		take: func(b *builder, n *node) { b.job.JoinOff = b.word(n, "dedupe", "session", "off") == "off" },
	},
	{
		name:   "grace",
		about:  "How long the job may clean up after SIGTERM before SIGKILL, from 100ms to 1h. Default: 10s.",
		schema: durationSchema,
		example: `  load_test:
    description: Put load on the staging servers.
    grace: 1m
    run: ./scripts/load.sh
`,
		take: func(b *builder, n *node) { b.job.Grace = b.duration(n, "grace", 100*time.Millisecond, time.Hour) },
	},
	{
		name: "ask_first",
		about: "Fields that the person is asked for before there is a job. Each is a JSON Schema of the subset that forms have: string, number, integer, " +
			"boolean, or a choice. The values arrive like arguments.",
		more: "A field without a default must be filled in. A client that cannot show a form gets an error that names the fields, and may\n" +
			"pass them as arguments. A call that joins a job asks nothing. A field that looks like a secret is refused: the job itself\n" +
			"can ask for one with `jobd ask --secret`.",
		schema: `{"type":"object","minProperties":1,"propertyNames":{"pattern":"^[A-Za-z_][A-Za-z0-9_]{0,63}$"},"additionalProperties":{"type":"object"}}`,
		example: `  drop_table:
    description: Drop a table of the test database.
    params:
      table: {type: string, pattern: "^[a-z_]+$"}
    required: [table]
    ask_first:
      confirm: {type: boolean, title: Really drop it?, default: false}
      reason: {type: string, title: Why, minLength: 3}
    run: |
      [ "$JOBD_ARG_confirm" = true ] || { echo "not confirmed"; exit 1; }
      ./scripts/drop.sh "$JOBD_ARG_table" "$JOBD_ARG_reason"
`,
		take: func(b *builder, n *node) { b.job.fields = b.declared(n, "ask_first") },
	},
	{
		name: "annotations",
		about: "Hints for clients, which may ask the person less or more: read_only (it changes nothing), destructive (it may destroy), idempotent (a second " +
			"call changes nothing more), open_world (it reaches beyond this machine).",
		schema: `{"type":"object","properties":{"read_only":{"type":"boolean"},"destructive":{"type":"boolean"},"idempotent":{"type":"boolean"},"open_world":{"type":"boolean"}},"additionalProperties":false}`,
		example: `  status_report:
    description: Report the state of the servers.
    annotations: {read_only: true, open_world: true}
    run: ./scripts/report.sh
`,
		take: (*builder).takeAnnotations,
	},
	{
		name: "rerun",
		about: "What happens after the machine was restarted while the job ran: never (it is lost), if_interrupted (it is run again as a new job). " +
			"Default: never.",
		more: "It must be safe to run it twice. The new job has the arguments of the old one and what the file says now; the environment of\n" +
			"the caller is gone, so it gets the daemon's (HOME, PATH and the like) and the file's `env`. It starts with jobd, that is, when\n" +
			"the first client comes, and at most three times in a row.",
		schema: `{"enum":["never","if_interrupted"]}`,
		example: `  backup:
    description: Back up the database.
    rerun: if_interrupted
    run: ./scripts/backup.sh
`,
		take: func(b *builder, n *node) {
			b.job.RerunInterrupted = b.word(n, "rerun", "never", "if_interrupted") == "if_interrupted"
		},
	},
}

func keyNamed(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// keyNames returns the names of all keys.
func keyNames() []string {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].name
	}
	return names
}

func (b *builder) takeArgv(n *node) {
	if n.kind != list || len(n.items) == 0 {
		b.fault(n.at, "write the program and its arguments as a list: [make, test]", "argv must be a list that is not empty, not %s", n.kind)
		return
	}
	total := 0
	for i, item := range n.items {
		switch {
		case item.kind != text && item.kind != number:
			b.fault(item.at, "quote it", "an element of argv must be a text, not %s", item.kind)
		case i == 0 && item.text == "":
			b.fault(item.at, "", "the program's name is empty")
		case len(item.text) > maxText:
			b.fault(item.at, "", "an element of argv has %d bytes; at most %d can be given to a program", len(item.text), maxText)
		}
		total += len(item.text)
		b.job.Argv = append(b.job.Argv, item.text)
	}
	if total > maxText {
		b.fault(n.at, "", "argv has %d bytes; at most %d are taken", total, maxText)
	}
	b.argv = n.items
}

func (b *builder) takeShell(n *node) {
	if n.kind == text {
		n = &node{kind: list, at: n.at, items: []*node{n, {kind: text, text: "-c"}}}
	}
	b.job.Shell = b.texts(n, "shell")
	if n.kind == list && (len(b.job.Shell) == 0 || b.job.Shell[0] == "") {
		b.fault(n.at, "name the program, such as bash", "shell names no program")
	}
}

func (b *builder) takeDir(n *node) {
	b.job.Dir = b.line(n, "cwd", maxDescription)
	if strings.HasPrefix(b.job.Dir, "~") {
		b.fault(n.at, "write an absolute path, or one relative to the project", "cwd is not expanded by a shell, so %q would be a directory of that name", b.job.Dir)
	}
}

// identifier matches names of environment variables and of arguments.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (b *builder) takeEnv(n *node) {
	if n.kind != mapping {
		b.fault(n.at, "write NAME: value below it, indented", "env must be a mapping, not %s", n.kind)
		return
	}
	b.job.Env = map[string]string{}
	total := 0
	for _, e := range n.entries {
		switch {
		case !identifier.MatchString(e.key):
			b.fault(e.at, `use letters, digits and "_"`, "%q cannot be the name of a variable", e.key)
		case strings.HasPrefix(e.key, "JOBD_"):
			b.fault(e.at, "use another name", "variables that begin with JOBD_ are set by jobd")
		case e.value.kind != text && e.value.kind != number:
			b.fault(e.value.at, "put it in quotes", "the variable %s must be a text, not %s", e.key, e.value.kind)
		}
		total += len(e.key) + len(e.value.text) + 2
		b.job.Env[e.key] = e.value.text
	}
	if total > maxText {
		b.fault(n.at, "", "env has %d bytes; at most %d are taken", total, maxText)
	}
}

// hints are the names of the annotations, here and in MCP.
var hints = [][2]string{
	{"read_only", "readOnlyHint"}, {"destructive", "destructiveHint"}, {"idempotent", "idempotentHint"}, {"open_world", "openWorldHint"},
}

func (b *builder) takeAnnotations(n *node) {
	if n.kind != mapping {
		b.fault(n.at, "write read_only: true below it, indented", "annotations must be a mapping, not %s", n.kind)
		return
	}
	var names, parts []string
	for _, h := range hints {
		names = append(names, h[0])
	}
	for _, e := range n.entries {
		i := slices.Index(names, e.key)
		switch {
		case i < 0:
			b.fault(e.at, near(e.key, names), "unknown annotation %q", e.key)
		case e.value.kind != boolean:
			b.fault(e.value.at, "write true or false", "the annotation %s must be true or false, not %s", e.key, e.value.kind)
		default:
			parts = append(parts, fmt.Sprintf("%q:%s", hints[i][1], strings.ToLower(e.value.text)))
		}
	}
	if len(parts) > 0 {
		b.job.Annotations = []byte("{" + strings.Join(parts, ",") + "}")
	}
}

// declared reads a mapping of names to schemas.
func (b *builder) declared(n *node, key string) []entry {
	if n.kind == null && key == "params" {
		return nil
	}
	if n.kind != mapping || (key == "ask_first" && len(n.entries) == 0) {
		b.fault(n.at, "write name: {type: string} below it, indented", "%s must be a mapping of names to JSON Schemas", key)
		return nil
	}
	for _, e := range n.entries {
		switch {
		case !identifier.MatchString(e.key) || len(e.key) > 64:
			b.fault(e.at, `use letters, digits and "_", at most 64, no digit first: it becomes the variable JOBD_ARG_…`, "%q cannot be the name of an argument", clip(e.key, 80))
		case strings.HasPrefix(e.key, "JOBD_"):
			b.fault(e.at, "use another name", "names that begin with JOBD_ are jobd's")
		default:
			b.keywords(e.value, key+"."+e.key)
		}
	}
	return n.entries
}

// someText reads a text of 1 to most bytes.
func (b *builder) someText(n *node, key string, most int) string {
	switch {
	case n.kind != text:
		b.fault(n.at, "put it in quotes", "%s must be a text, not %s", key, n.kind)
	case strings.TrimSpace(n.text) == "":
		b.fault(n.at, "", "%s is empty", key)
	case len(n.text) > most:
		b.fault(n.at, "", "%s has %d bytes; at most %d are taken", key, len(n.text), most)
	case strings.ContainsRune(n.text, 0):
		b.fault(n.at, "leave it out", "%s holds a NUL character, which no program can be given", key)
	}
	return n.text
}

// line reads a text of one line.
func (b *builder) line(n *node, key string, most int) string {
	s := b.someText(n, key, most)
	if i := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		b.fault(n.at, "", "%s is one line without control characters, and this has %U", key, r)
	}
	return strings.TrimSpace(s)
}

// texts reads a list of texts.
func (b *builder) texts(n *node, key string) []string {
	if n.kind != list {
		b.fault(n.at, "write it as [a, b]", "%s must be a list, not %s", key, n.kind)
		return nil
	}
	var out []string
	for _, item := range n.items {
		if item.kind != text || strings.ContainsRune(item.text, 0) || len(item.text) > maxText {
			b.fault(item.at, "quote it", "%s must be a list of texts, and one of them is %s", key, item.kind)
			continue
		}
		out = append(out, item.text)
	}
	return out
}

// word reads one of a few words.
func (b *builder) word(n *node, key string, words ...string) string {
	if n.kind == text && slices.Contains(words, n.text) {
		return n.text
	}
	hint := "use one of " + strings.Join(words, ", ")
	if n.kind == text {
		if h := near(n.text, words); strings.HasPrefix(h, "did") {
			hint = h
		}
	}
	b.fault(n.at, hint, "%s cannot be %q", key, clip(n.text, 40))
	return words[0]
}

// duration reads a span of time.
func (b *builder) duration(n *node, key string, least, most time.Duration) *time.Duration {
	d, ok := time.Duration(0), false
	if n.kind == text || n.kind == number {
		d, ok = span(n.text)
	}
	switch {
	case !ok:
		b.fault(n.at, "write a number with a unit, such as 90s, 15m, 24h or 30d", "%s cannot be %q", key, clip(n.text, 40))
	case d < least:
		b.fault(n.at, "", "%s is %s, and must be at least %s", key, d, least)
	case d > most:
		b.fault(n.at, "", "%s is %s, and must be at most %s", key, d, most)
	}
	return &d
}

// span reads what [time.ParseDuration] reads, with a number of days before it:
// "30d", "1d12h".
func span(s string) (time.Duration, bool) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		d, err := time.ParseDuration(s)
		return d, err == nil && !strings.HasPrefix(s, "+")
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, false
	}
	sum := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return sum, true
	}
	d, err := time.ParseDuration(rest)
	return sum + d, err == nil && d >= 0 && !strings.HasPrefix(rest, "+")
}
