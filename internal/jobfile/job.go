package jobfile

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/jsonschema-go/jsonschema"

	"jobd/internal/jobs"
)

// A Job is one job of a file: a command that is offered as a tool. It is not
// changed after [Parse].
type Job struct {
	// Name is the tool's name: letters, digits, "_" and "-", at most 64.
	Name string
	// File is the file that declares it, Line where.
	File string
	Line int

	Title, Description string
	// InputSchema is the JSON Schema of the arguments.
	InputSchema json.RawMessage
	// Annotations are MCP's hints about the tool as JSON, nil if there are none.
	Annotations json.RawMessage
	// Task says whether a call becomes a task: "optional", "required", "never".
	Task string

	// Run is the text for the shell, Argv the program and its arguments; one of
	// them is set.
	Run  string
	Argv []string
	// Shell are the program that runs Run and its arguments before the text;
	// nil = bash -c, or sh -c where there is no bash.
	Shell []string
	// Dir is the working directory, relative ones to the project; "" = the
	// project.
	Dir string
	// Env is put on top of the caller's environment.
	Env map[string]string

	// Timeout bounds the run time, 0 = none. This and what follows is nil or ""
	// where the file does not say: then the configuration decides.
	Timeout         *time.Duration
	QuestionTimeout *time.Duration
	AnswerWithin    *time.Duration
	// Grace is the time between TERM and KILL.
	Grace      *time.Duration
	OnTimeout  jobs.OnTimeout
	Unattended jobs.Unattended
	AnswerBy   jobs.AnswerBy
	// Group is the concurrency group.
	Group string
	// JoinOff: an identical call is a job of its own.
	JoinOff bool
	// RerunInterrupted: run again what a reboot interrupted.
	RerunInterrupted bool
	// AskFirst is the schema of the form to fill in before there is a job, nil
	// if there is none.
	AskFirst json.RawMessage

	params   []entry // the properties, in the file's order
	required []string
	fields   []entry // of ask_first
	schema   *jsonschema.Resolved
	// each is schema without required, for one argument alone.
	each *jsonschema.Resolved
}

// A File is what a job file says.
type File struct {
	// Name is the path that was given.
	Name string
	// Jobs are the jobs that can be used, in the order of the file.
	Jobs []*Job
	// Faults are what is wrong, in the order of the file; of very many, the
	// first. The jobs that they name are not among Jobs.
	Faults []Fault
}

// Rules are what a file is held to beside its own form.
type Rules struct {
	// Forms checks ask_first; nil = it is not checked.
	Forms jobs.Forms
	// Reserved are names of tools that jobs cannot have.
	Reserved []string
}

// toolName is what every client takes: MCP's own limit is wider, but the name
// gets a prefix of the client.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Parse reads a job file. name stands for the file in faults; data is not kept.
// It never fails: what is wrong is among the file's faults.
func Parse(name string, data []byte, rules Rules) *File {
	f := &File{Name: name}
	src, body, fault := clean(name, data)
	if fault != nil {
		f.Faults = []Fault{*fault}
		return f
	}
	docs, fault := parseYAML(src, body)
	if fault != nil {
		f.Faults = []Fault{*fault}
		return f
	}
	c := &converter{src: src, anchors: map[string]*node{}}
	for i, doc := range docs {
		if i > 0 {
			c.fault(placeOf(doc.GetToken()), "put all jobs below one \"jobs:\"", "this is a second document; a job file has one")
			break
		}
		f.document(c, doc, rules)
	}
	f.Faults = append(f.Faults, c.take()...)
	slices.SortStableFunc(f.Faults, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	f.Faults = f.Faults[:min(len(f.Faults), 5*maxFaults)]
	return f
}

// values returns the entries of a mapping as the YAML parser has them, so that
// faults can be counted for each.
func values(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.NullNode:
		return nil, true
	}
	return nil, false
}

// topKeys are the keys of a file.
var topKeys = []string{"jobs"}

func (f *File) document(c *converter, doc ast.Node, rules Rules) {
	top, ok := values(doc)
	if !ok {
		c.fault(placeOf(doc.GetToken()), `begin with "jobs:" and put each job below it, indented`, "this is no job file: it must be a mapping")
		return
	}
	seen := false
	for _, e := range top {
		name, at, ok := c.key(e.Key)
		switch {
		case !ok:
		case name != "jobs":
			hint := near(name, topKeys)
			if body, ok := values(e.Value); ok && len(body) > 0 {
				hint = `did you mean "jobs", or is this a job that belongs below it?`
			}
			c.fault(at, hint, "unknown key %q", name)
		case seen:
			c.fault(at, "keep one of them", "%q is there twice", name)
		default:
			seen = true
			f.jobs(c, e.Value, rules)
		}
	}
}

func (f *File) jobs(c *converter, n ast.Node, rules Rules) {
	list, ok := values(n)
	if !ok {
		c.fault(placeOf(n.GetToken()), "write each job as \"name:\" with its keys below, indented", "jobs must be a mapping of names to jobs")
		return
	}
	if len(list) > maxKeys {
		c.fault(placeOf(n.GetToken()), "use several files", "there are %d jobs in this file; at most %d are taken", len(list), maxKeys)
		return
	}
	f.Faults = append(f.Faults, c.take()...)
	names := map[string]bool{}
	for _, e := range list {
		name, at, ok := c.key(e.Key)
		body := c.node(e.Value, 0)
		switch {
		case !ok:
		case names[name]:
			c.fault(at, "rename one of them", "the job %q is there twice; the first one holds", name)
			ok = false
		case !toolName.MatchString(name):
			c.fault(at, `use letters, digits, "_" and "-", at most 64`, "%q cannot be the name of a tool", clip(name, 80))
			ok = false
		case slices.Contains(rules.Reserved, name):
			c.fault(at, "choose another name", "%q is the name of one of jobd's own tools", name)
			ok = false
		case body.size > maxValues:
			c.fault(at, "use fewer aliases", "this job has more than %d values", maxValues)
			ok = false
		}
		duplicate := names[name]
		names[name] = true
		var j *Job
		if ok {
			b := &builder{converter: c, rules: rules, job: &Job{Name: name, File: f.Name, Line: at.line, Task: "optional"}}
			j = b.build(at, body)
		}
		faults := c.take()
		for i := range faults {
			if !duplicate {
				faults[i].Job = name
			}
		}
		f.Faults = append(f.Faults, faults...)
		if ok && len(faults) == 0 {
			f.Jobs = append(f.Jobs, j)
		}
	}
}

// A builder makes a job of its node.
type builder struct {
	*converter
	rules Rules
	job   *Job
	// where the keys are that are looked at again once all are known
	places map[string]place
	argv   []*node
}

func (b *builder) build(at place, n *node) *Job {
	if n.kind != mapping {
		b.fault(n.at, "write its keys below its name, indented", "the job must be a mapping, not %s", n.kind)
		return b.job
	}
	b.places = map[string]place{}
	for _, e := range n.entries {
		k, ok := keyNamed(e.key)
		if !ok {
			b.fault(e.at, near(e.key, keyNames()), "unknown key %q", e.key)
			continue
		}
		b.places[e.key] = e.at
		k.take(b, e.value)
	}
	b.whole(at)
	return b.job
}

// whole checks what concerns more than one key.
func (b *builder) whole(at place) {
	j := b.job
	has := func(key string) bool { _, ok := b.places[key]; return ok }
	switch {
	case has("run") && has("argv"):
		b.fault(b.places["argv"], "keep run for a shell's text, argv for a program and its arguments", "run and argv exclude each other")
	case !has("run") && !has("argv"):
		b.fault(at, "add run for a shell's text, or argv for a program and its arguments", "the job %q has no command", j.Name)
	case has("shell") && !has("run"):
		b.fault(b.places["shell"], "remove it, or use run", "shell runs the text of run, and there is none")
	}
	if !has("description") {
		b.fault(at, "add one that says when to use it: models find tools by it", "the job %q has no description", j.Name)
	}
	for _, name := range j.required {
		if !slices.ContainsFunc(j.params, func(e entry) bool { return e.key == name }) {
			b.fault(b.places["required"], near(name, names(j.params)), "required names %q, which is not among params", name)
		}
	}
	for _, e := range j.fields {
		if slices.ContainsFunc(j.params, func(p entry) bool { return p.key == e.key }) {
			b.fault(e.at, "rename one of them", "ask_first has the field %q, which is also among params", e.key)
		}
	}
	b.placeholders()
	if len(b.faults) > 0 {
		return
	}
	b.schemas()
}

func names(entries []entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.key
	}
	return out
}

// placeholder matches an element of argv that stands for an argument.
var placeholder = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)$`)

// inner finds what looks like a placeholder inside an element.
var inner = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?`)

// placeholders checks the elements of argv.
func (b *builder) placeholders() {
	j := b.job
	known := append(names(j.params), names(j.fields)...)
	for i, n := range b.argv {
		if literal, ok := strings.CutPrefix(n.text, "$$"); ok && literal != "" {
			continue
		}
		if m := placeholder.FindStringSubmatch(n.text); m != nil {
			switch {
			case i == 0:
				b.fault(n.at, "name the program itself", "the program cannot be an argument of the call")
			case !slices.Contains(known, m[1]):
				b.fault(n.at, near(m[1], known), "%s stands for the argument %q, which is not among params; write $%s for the text itself", n.text, m[1], n.text)
			case !j.always(m[1]):
				b.fault(n.at, "list it in required, or give it a default", "%s stands for the argument %q, which a call may leave out", n.text, m[1])
			}
			continue
		}
		for _, m := range inner.FindAllStringSubmatch(n.text, -1) {
			if slices.Contains(known, m[1]) {
				b.fault(n.at, "make it an element of its own", "%s: an argument is a whole element of argv, never a part of one", clip(n.text, 60))
				break
			}
		}
	}
}

// always reports whether every call has a value for a parameter.
func (j *Job) always(name string) bool {
	if slices.Contains(j.required, name) {
		return true
	}
	for _, e := range j.params {
		if e.key == name {
			return e.value.get("default") != nil
		}
	}
	return true // a field of ask_first: each is required or has a default
}
