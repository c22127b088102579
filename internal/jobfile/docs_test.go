package jobfile

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "write the generated part of docs/job-files.md anew")

const (
	docs = "../../docs/job-files.md"
	mark = "<!-- What follows is made of internal/jobfile/keys.go by \"make golden\". -->\n"
)

// reference is the part of the documentation that describes the keys.
func reference() string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", k.name, k.about)
		if k.more != "" {
			fmt.Fprintf(&b, "\n%s\n", k.more)
		}
		fmt.Fprintf(&b, "\n```yaml\njobs:\n%s```\n", k.example)
	}
	return b.String()
}

func TestGeneratedReferenceIsUpToDate(t *testing.T) {
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(b), mark)
	if !ok {
		t.Fatal("the mark of the generated part is gone")
	}
	if *update {
		if err := os.WriteFile(docs, []byte(before+mark+reference()), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(reference(), after); d != "" {
		t.Errorf("%s; run make golden", d)
	}
}

// editors resolves the schema for editors.
func editors(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// check validates a file by the schema for editors, as an editor would.
func check(t *testing.T, r *jsonschema.Resolved, file string) error {
	t.Helper()
	js, err := yaml.YAMLToJSON([]byte(file))
	if err != nil {
		t.Fatalf("%s\n%v", file, err)
	}
	var v any
	if err := json.Unmarshal(js, &v); err != nil {
		t.Fatal(err)
	}
	return r.Validate(v)
}

// Every example in the documentation is a good file, to the parser and to
// editors, and every key has one that uses it.
func TestExamplesInTheDocumentationAreGood(t *testing.T) {
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	r := editors(t)
	n := 0
	for _, block := range strings.Split(string(b), "```yaml\n")[1:] {
		file, _, _ := strings.Cut(block, "```")
		n++
		if f := Parse("example.yaml", []byte(file), rules); len(f.Faults) > 0 || len(f.Jobs) == 0 {
			t.Errorf("%s%s", file, faultLines(f))
		}
		if err := check(t, r, file); err != nil {
			t.Errorf("%s%v", file, err)
		}
	}
	if n < len(keys)+2 {
		t.Errorf("there are only %d examples", n)
	}
	for _, k := range keys {
		if !strings.Contains(k.example, "\n    "+k.name+":") {
			t.Errorf("the example of %s does not use it:\n%s", k.name, k.example)
		}
		if !strings.HasSuffix(k.about, ".") {
			t.Errorf("%s is described without an end: %s", k.name, k.about)
		}
	}
}

// The parser and the schema for editors refuse the same, as far as a schema can.
func TestEditorsSeeWhatTheParserSees(t *testing.T) {
	r := editors(t)
	for name, file := range map[string]string{
		"unknown key":        "jobs: {a: {description: d, run: x, timout: 5m}}",
		"unknown top key":    "job: {}",
		"tool name":          "jobs: {a b: {description: d, run: x}}",
		"no command":         "jobs: {a: {description: d}}",
		"two commands":       "jobs: {a: {description: d, run: x, argv: [x]}}",
		"no description":     "jobs: {a: {run: x}}",
		"shell with argv":    "jobs: {a: {description: d, argv: [x], shell: sh}}",
		"param name":         "jobs: {a: {description: d, run: x, params: {a-b: {}}}}",
		"param text":         "jobs: {a: {description: d, run: x, params: {p: string}}}",
		"duration":           "jobs: {a: {description: d, run: x, timeout: 5 minutes}}",
		"duration, no unit":  "jobs: {a: {description: d, run: x, timeout: 90}}",
		"word":               "jobs: {a: {description: d, run: x, task: maybe}}",
		"annotation":         "jobs: {a: {description: d, run: x, annotations: {readonly: true}}}",
		"annotation value":   "jobs: {a: {description: d, run: x, annotations: {read_only: 1}}}",
		"env name":           "jobs: {a: {description: d, run: x, env: {A-B: x}}}",
		"env value":          "jobs: {a: {description: d, run: x, env: {A: true}}}",
		"empty argv":         "jobs: {a: {description: d, argv: []}}",
		"empty run":          "jobs: {a: {description: d, run: ''}}",
		"dedupe":             "jobs: {a: {description: d, run: x, dedupe: never}}",
		"empty ask_first":    "jobs: {a: {description: d, run: x, ask_first: {}}}",
		"required is a text": "jobs: {a: {description: d, run: x, params: {p: {}}, required: p}}",
	} {
		if len(Parse("a.yaml", []byte(file), rules).Faults) == 0 {
			t.Errorf("%s: the parser takes %s", name, file)
		}
		if check(t, r, file) == nil {
			t.Errorf("%s: the schema takes %s", name, file)
		}
	}
	for _, d := range []string{"90s", "15m", "1h30m", "30d", "1d12h", "0", "0s", "1.5h", "100ms", "1µs"} {
		file := fmt.Sprintf("jobs: {a: {description: d, run: x, timeout: %s}}", d)
		if f := Parse("a.yaml", []byte(file), rules); len(f.Faults) > 0 {
			t.Error(faultLines(f))
		}
		if err := check(t, r, file); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
}
