// Package form knows the forms that a job may ask a person to fill in: the
// subset of JSON Schema that MCP elicitation allows (elicitation, revision
// 2026-07-28, "Requested Schema"): one flat object of strings, numbers,
// booleans and choices.
//
// A form must never ask for a secret, for it passes through the client and the
// conversation's records; [Forms.Check] refuses fields that look like one.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"jobd/internal/jobs"
)

// Forms implements [jobs.Forms]. Its zero value is ready for use.
type Forms struct{}

var _ jobs.Forms = Forms{}

// maxSchema bounds the size of a schema in bytes.
const maxSchema = 64 << 10

// object is a requested schema.
type object struct {
	Schema      string                     `json:"$schema,omitempty"`
	Type        string                     `json:"type"`
	Title       string                     `json:"title,omitempty"`
	Description string                     `json:"description,omitempty"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required,omitempty"`
}

// field is one property, with every keyword that the subset knows.
type field struct {
	Type        string          `json:"type"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"`
	MinLength   *int            `json:"minLength,omitempty"`
	MaxLength   *int            `json:"maxLength,omitempty"`
	Pattern     *string         `json:"pattern,omitempty"`
	Format      string          `json:"format,omitempty"`
	Minimum     *float64        `json:"minimum,omitempty"`
	Maximum     *float64        `json:"maximum,omitempty"`
	Enum        []string        `json:"enum,omitempty"`
	EnumNames   []string        `json:"enumNames,omitempty"`
	OneOf       []choice        `json:"oneOf,omitempty"`
	Items       *items          `json:"items,omitempty"`
	MinItems    *int            `json:"minItems,omitempty"`
	MaxItems    *int            `json:"maxItems,omitempty"`
}

type choice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

type items struct {
	Type  string   `json:"type,omitempty"`
	Enum  []string `json:"enum,omitempty"`
	AnyOf []choice `json:"anyOf,omitempty"`
}

// secretName matches names and titles of fields that ask for a secret.
var secretName = regexp.MustCompile(`(?i)pass(word|wd|phrase|code)|\bpwd\b|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key|credential|\bpin\b|\bcvv\b|\bcvc\b|card[ _-]?(number|no)|\biban\b|one[ _-]?time[ _-]?(code|pass)|\botp\b|\b2fa\b|\bmfa\b`)

// Check implements [jobs.Forms].
func (Forms) Check(schema []byte, secret bool) error {
	if len(schema) > maxSchema {
		return invalid("the question's schema has %d bytes; at most %d are taken", len(schema), maxSchema)
	}
	o, err := parse(schema)
	if err != nil {
		return err
	}
	if secret && len(o.Properties) != 1 {
		return invalid("a secret question asks for one value; the schema has %d fields", len(o.Properties))
	}
	for name, raw := range o.Properties {
		f, err := parseField(name, raw)
		if err != nil {
			return err
		}
		if secret && (f.Type != "string" || len(f.Default) > 0) {
			return invalid("a secret is one string without a default; the field %q is not", name)
		}
		words := camel(name) + " " + f.Title
		if !secret && f.Type == "string" && len(f.Enum) == 0 && len(f.OneOf) == 0 && secretName.MatchString(words) {
			return invalid("the field %q looks like a secret, and a form must not ask for one: its value would pass through the client and stay in its records; ask with --secret, which takes the value on a page of its own and hands it to the job only", name)
		}
	}
	for _, name := range o.Required {
		if _, ok := o.Properties[name]; !ok {
			return invalid("the required field %q is not among the schema's properties", name)
		}
	}
	if _, err := resolve(schema); err != nil {
		return invalid("the question's schema cannot be used: %v", err)
	}
	return nil
}

// camel puts spaces between the words of a name, so that word boundaries work.
func camel(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_' || r == '-' || r == '.':
			r = ' '
		case i > 0 && r >= 'A' && r <= 'Z':
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func parse(schema []byte) (object, error) {
	var o object
	if err := strict(schema, &o); err != nil {
		return o, invalid("the question's schema is not what a form can have: %v", err)
	}
	if o.Type != "object" || len(o.Properties) == 0 {
		return o, invalid(`the question's schema must be {"type": "object", "properties": {...}} with at least one field`)
	}
	return o, nil
}

func parseField(name string, raw json.RawMessage) (field, error) {
	var f field
	if err := strict(raw, &f); err != nil {
		return f, invalid("the field %q is not what a form can have: %v", name, err)
	}
	switch f.Type {
	case "string", "number", "integer", "boolean":
		if f.Items != nil {
			return f, invalid("the field %q has items, which only an array can", name)
		}
	case "array":
		if f.Items == nil || (len(f.Items.Enum) == 0 && len(f.Items.AnyOf) == 0) {
			return f, invalid("the field %q is an array, which a form knows only as a choice: give its items an enum", name)
		}
	default:
		return f, invalid("the field %q has the type %q; a form knows string, number, integer, boolean, and array of choices", name, f.Type)
	}
	switch f.Format {
	case "", "email", "uri", "date", "date-time":
	default:
		return f, invalid("the field %q has the format %q; a form knows email, uri, date and date-time", name, f.Format)
	}
	if f.Pattern != nil {
		if _, err := regexp.Compile(*f.Pattern); err != nil {
			return f, invalid("the field %q has a pattern that cannot be used: %v", name, err)
		}
	}
	return f, nil
}

// strict decodes one JSON value and refuses unknown keywords.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one JSON value")
	}
	return nil
}

// Defaults implements [jobs.Forms].
func (Forms) Defaults(schema []byte) ([]byte, error) {
	o, err := parse(schema)
	if err != nil {
		return nil, err
	}
	content := map[string]json.RawMessage{}
	for name, raw := range o.Properties {
		f, err := parseField(name, raw)
		if err != nil {
			return nil, err
		}
		if len(f.Default) > 0 {
			content[name] = f.Default
		} else if slices.Contains(o.Required, name) {
			return nil, invalid("the required field %q has no default", name)
		}
	}
	b, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("writing the defaults: %w", err)
	}
	return b, Forms{}.Validate(schema, b)
}

// Validate implements [jobs.Forms].
func (Forms) Validate(schema, content []byte) error {
	var v map[string]any
	if err := json.Unmarshal(content, &v); err != nil || v == nil {
		return invalid("the answer must be a JSON object with the form's fields")
	}
	o, err := parse(schema)
	if err != nil {
		return err
	}
	for name := range v {
		if _, ok := o.Properties[name]; !ok {
			return invalid("the form has no field %q", name)
		}
	}
	for _, name := range o.Required {
		if _, ok := v[name]; !ok {
			return invalid("the field %q is required", name)
		}
	}
	rs, err := resolve(schema)
	if err != nil {
		return invalid("the question's schema cannot be used: %v", err)
	}
	if err := rs.Validate(v); err != nil {
		return invalid("%s", plain(err))
	}
	for name, value := range v {
		f, err := parseField(name, o.Properties[name])
		if err != nil {
			return err
		}
		if s, ok := value.(string); ok && s != "" {
			if err := checkFormat(name, f.Format, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func resolve(schema []byte) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}

// plain makes one sentence of a validator's error chain: its innermost part
// says what is wrong.
func plain(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func invalid(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf(format, args...)}
}

// OnlyField returns the name, title and description of a secret's one field.
func OnlyField(schema []byte) (name, title, description string) {
	o, err := parse(schema)
	if err != nil {
		return "", "", ""
	}
	for n, raw := range o.Properties {
		f, err := parseField(n, raw)
		if err == nil {
			return n, f.Title, f.Description
		}
	}
	return "", "", ""
}
