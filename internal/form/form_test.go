package form

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"jobd/internal/jobs"
)

const deploy = `{"type":"object","properties":{
	"confirm":{"type":"boolean","title":"Deploy?","default":false},
	"branch":{"type":"string","minLength":1,"maxLength":20,"default":"main"},
	"colour":{"type":"string","enum":["red","green"]},
	"size":{"type":"integer","minimum":1,"maximum":9},
	"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"maxItems":2},
	"mail":{"type":"string","format":"email"},
	"on":{"type":"string","format":"date"}},"required":["confirm"]}`

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		secret       bool
		wants        string // part of the error; "" = accepted
	}{
		{"all kinds of field", deploy, false, ""},
		{"titled choices", `{"type":"object","properties":{"c":{"type":"string","oneOf":[{"const":"r","title":"Red"}]}}}`, false, ""},
		{"no schema", ``, false, "not what a form can have"},
		{"not an object", `{"type":"string"}`, false, "must be"},
		{"no fields", `{"type":"object","properties":{}}`, false, "at least one field"},
		{"nested object", `{"type":"object","properties":{"a":{"type":"object"}}}`, false, `the type "object"`},
		{"unknown keyword", `{"type":"object","properties":{"a":{"type":"string","if":{}}}}`, false, "unknown field"},
		{"free array", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}`, false, "enum"},
		{"unknown format", `{"type":"object","properties":{"a":{"type":"string","format":"ipv4"}}}`, false, "format"},
		{"required but missing", `{"type":"object","properties":{"a":{"type":"string"}},"required":["b"]}`, false, `"b"`},
		{"bad default", `{"type":"object","properties":{"a":{"type":"integer","default":"x"}}}`, false, "cannot be used"},
		{"bad pattern", `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`, false, "pattern"},
		{"password", `{"type":"object","properties":{"dbPassword":{"type":"string"}}}`, false, "--secret"},
		{"token by title", `{"type":"object","properties":{"t":{"type":"string","title":"GitHub token"}}}`, false, "--secret"},
		{"api key", `{"type":"object","properties":{"api_key":{"type":"string"}}}`, false, "--secret"},
		{"card number", `{"type":"object","properties":{"cardNumber":{"type":"string"}}}`, false, "--secret"},
		{"pinned is no pin", `{"type":"object","properties":{"pinned":{"type":"string"}}}`, false, ""},
		{"a choice of tokens is no secret", `{"type":"object","properties":{"token":{"type":"string","enum":["a"]}}}`, false, ""},
		{"secret", `{"type":"object","properties":{"password":{"type":"string"}}}`, true, ""},
		{"two secrets", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, true, "one value"},
		{"secret with default", `{"type":"object","properties":{"a":{"type":"string","default":"x"}}}`, true, "without a default"},
		{"huge", `{"type":"object","title":"` + strings.Repeat("x", maxSchema) + `"}`, false, "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, Forms{}.Check([]byte(c.schema), c.secret), c.wants) })
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct{ name, content, wants string }{
		{"all", `{"confirm":true,"branch":"x","colour":"red","size":3,"tags":["a"],"mail":"a@b.c","on":"2026-11-29"}`, ""},
		{"least", `{"confirm":false}`, ""},
		{"missing", `{}`, `"confirm" is required`},
		{"unknown", `{"confirm":true,"x":1}`, `no field "x"`},
		{"wrong type", `{"confirm":"yes"}`, "boolean"},
		{"too long", `{"confirm":true,"branch":"` + strings.Repeat("x", 21) + `"}`, "20"},
		{"no choice", `{"confirm":true,"colour":"blue"}`, "enum"},
		{"fraction", `{"confirm":true,"size":1.5}`, "integer"},
		{"too big", `{"confirm":true,"size":10}`, "9"},
		{"bad mail", `{"confirm":true,"mail":"nobody"}`, "e-mail"},
		{"bad date", `{"confirm":true,"on":"yesterday"}`, "date"},
		{"no object", `[]`, "JSON object"},
		{"null", `null`, "JSON object"},
		{"no JSON", `{`, "JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, Forms{}.Validate([]byte(deploy), []byte(c.content)), c.wants) })
	}
}

func TestDefaults(t *testing.T) {
	got, err := Forms{}.Defaults([]byte(deploy))
	if err != nil || string(got) != `{"branch":"main","confirm":false}` {
		t.Errorf("got %s, %v", got, err)
	}
	_, err = Forms{}.Defaults([]byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`))
	expect(t, err, `"a" has no default`)
}

func expect(t *testing.T, err error, wants string) {
	t.Helper()
	switch {
	case wants == "" && err != nil:
		t.Errorf("got the error %v", err)
	case wants != "" && (err == nil || !strings.Contains(err.Error(), wants)):
		t.Errorf("got %v, want an error that holds %q", err, wants)
	case wants != "" && !errors.Is(err, jobs.ErrInvalid):
		t.Errorf("%v is not of kind ErrInvalid", err)
	}
}

// FuzzForms checks that no schema and no answer makes the package panic, and
// that defaults it gives out are answers it accepts.
func FuzzForms(f *testing.F) {
	f.Add([]byte(deploy), []byte(`{"confirm":true}`))
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string","pattern":"^x"}}}`), []byte(`{"a":"x"}`))
	f.Fuzz(func(t *testing.T, schema, content []byte) {
		if Forms.Check(Forms{}, schema, false) != nil {
			return
		}
		if b, err := (Forms{}).Defaults(schema); err == nil && !json.Valid(b) {
			t.Errorf("the defaults %q are not JSON", b)
		}
		_ = Forms{}.Validate(schema, content)
	})
}
