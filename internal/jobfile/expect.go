package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// expectation says in words what an argument must be, with its description.
func (j *Job) expectation(name string) string {
	s := j.schema.Schema().Properties[name]
	if s == nil {
		return "a value"
	}
	words := wanted(s)
	if d := strings.Join(strings.Fields(s.Description), " "); d != "" {
		words += " (" + clip(strings.TrimSuffix(d, "."), 200) + ")"
	}
	return words
}

// detail is what a schema library says of a value, for schemas that words do not
// say all of.
func (j *Job) detail(name string, err error) string {
	s := j.schema.Schema().Properties[name]
	if s == nil || len(s.Enum) > 0 || s.Const != nil {
		return ""
	}
	simple := s.AllOf == nil && s.AnyOf == nil && s.OneOf == nil && s.Not == nil && s.If == nil
	if simple && slices.Contains([]string{"string", "number", "integer", "boolean"}, s.Type) {
		return ""
	}
	return " (" + plain(err) + ")"
}

// wanted says in words what a schema takes, as far as words are short.
func wanted(s *jsonschema.Schema) string {
	if len(s.Enum) > 0 {
		return "one of " + clip(jsonList(s.Enum), 300)
	}
	if s.Const != nil {
		return jsonList([]any{*s.Const})
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	var nouns []string
	for _, t := range types {
		nouns = append(nouns, noun(t, s))
	}
	if len(nouns) == 0 {
		return "a value that fits its schema"
	}
	return strings.Join(nouns, " or ")
}

func noun(t string, s *jsonschema.Schema) string {
	var more []string
	add := func(format string, args ...any) { more = append(more, fmt.Sprintf(format, args...)) }
	what := "a " + t
	switch t {
	case "string":
		if s.MinLength != nil {
			add("of at least %d characters", *s.MinLength)
		}
		if s.MaxLength != nil {
			add("of at most %d characters", *s.MaxLength)
		}
		if s.Pattern != "" {
			add("that matches %s", clip(s.Pattern, 100))
		}
		if s.Format != "" {
			add("in the format %s", s.Format)
		}
	case "integer", "number":
		if what = "a number"; t == "integer" {
			what = "a whole number"
		}
		for _, bound := range []struct {
			words string
			value *float64
		}{{"of at least", s.Minimum}, {"of at most", s.Maximum}, {"above", s.ExclusiveMinimum}, {"below", s.ExclusiveMaximum}, {"that is a multiple of", s.MultipleOf}} {
			if bound.value != nil {
				add("%s %s", bound.words, strconv.FormatFloat(*bound.value, 'f', -1, 64))
			}
		}
	case "boolean":
		what = "true or false"
	case "array":
		what = "a list"
		if s.MinItems != nil {
			add("of at least %d", *s.MinItems)
		}
		if s.MaxItems != nil {
			add("of at most %d", *s.MaxItems)
		}
		if s.Items != nil {
			add("whose items are each %s", wanted(s.Items))
		}
	case "object":
		what = "an object"
		if len(s.Required) > 0 {
			add("with %s", strings.Join(s.Required, ", "))
		}
	case "null":
		what = "null"
	}
	if len(more) == 0 {
		return what
	}
	return what + " " + strings.Join(more, " and ")
}

func jsonList(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		js, err := json.Marshal(v)
		if err != nil {
			js = []byte("?")
		}
		out[i] = string(js)
	}
	return strings.Join(out, ", ")
}

// shown is the beginning of a JSON value.
func shown(js json.RawMessage) string {
	if js = bytes.TrimSpace(js); len(js) == 0 {
		return "nothing"
	}
	return visible(clip(string(js), 80))
}

// libraryPrefix is what the schema library puts before a sentence.
var libraryPrefix = regexp.MustCompile(`^jsonschema(\.Schema)?: (<[^>]*>: )?`)

// plain makes one line of an error chain of the schema library: its innermost
// part says what is wrong.
func plain(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	words := strings.Join(strings.Fields(libraryPrefix.ReplaceAllString(err.Error(), "")), " ")
	return clip(visible(words), 300)
}
