package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A questionForm is what a question asks for, as a person sees it: fields in
// their order. On the wire it is a JSON Schema, which package form checks, as
// it does answers.
type questionForm struct {
	fields []field
}

// A field is one thing that a form asks for.
type field struct {
	name        string
	title       string
	description string
	kind        fieldKind
	required    bool
	choices     []choice
	// min and max bound the value of a number, the characters of a string, or
	// the number of choices; nil = no bound.
	min, max *float64
	format   string // email, uri, date, date-time; "" = any text
	pattern  string
	// def is the default as JSON, nil = none.
	def json.RawMessage
}

// A fieldKind is the kind of value of a field.
type fieldKind string

// The kinds of fields.
const (
	kindString  fieldKind = "string"
	kindNumber  fieldKind = "number"
	kindInteger fieldKind = "integer"
	kindBoolean fieldKind = "boolean"
	kindChoice  fieldKind = "choice"  // one of several strings
	kindChoices fieldKind = "choices" // any of several strings
)

// A choice is one of the values that a field can have.
type choice struct {
	value string
	title string // "" = the value
}

// label returns what a person is shown for a field.
func (f *field) label() string {
	if f.title != "" {
		return f.title
	}
	return f.name
}

// The wire form of a field.
type (
	wireField struct {
		Type        string          `json:"type,omitempty"`
		Title       string          `json:"title,omitempty"`
		Description string          `json:"description,omitempty"`
		Enum        []string        `json:"enum,omitempty"`
		EnumNames   []string        `json:"enumNames,omitempty"`
		OneOf       []wireChoice    `json:"oneOf,omitempty"`
		Items       *wireItems      `json:"items,omitempty"`
		MinItems    *float64        `json:"minItems,omitempty"`
		MaxItems    *float64        `json:"maxItems,omitempty"`
		MinLength   *float64        `json:"minLength,omitempty"`
		MaxLength   *float64        `json:"maxLength,omitempty"`
		Minimum     *float64        `json:"minimum,omitempty"`
		Maximum     *float64        `json:"maximum,omitempty"`
		Format      string          `json:"format,omitempty"`
		Pattern     string          `json:"pattern,omitempty"`
		Default     json.RawMessage `json:"default,omitempty"`
	}
	wireItems struct {
		Type  string       `json:"type,omitempty"`
		Enum  []string     `json:"enum,omitempty"`
		AnyOf []wireChoice `json:"anyOf,omitempty"`
	}
	wireChoice struct {
		Const string `json:"const"`
		Title string `json:"title"`
	}
)

// parseForm reads the schema of a question; none is a form without fields.
// Whether the schema is in the subset is for package form to say; the error
// here is only about what cannot be shown at all.
func parseForm(schema []byte) (*questionForm, error) {
	if len(bytes.TrimSpace(schema)) == 0 || string(schema) == "null" {
		return &questionForm{}, nil
	}
	var wire struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if err := json.Unmarshal(schema, &wire); err != nil {
		return nil, fmt.Errorf("reading the question's schema: %w", err)
	}
	names, properties, err := orderedObject(wire.Properties)
	if err != nil {
		return nil, fmt.Errorf(`reading the "properties" of the question's schema: %w`, err)
	}
	var f questionForm
	for i, name := range names {
		fl, err := parseField(name, properties[i])
		if err != nil {
			return nil, err
		}
		fl.required = slices.Contains(wire.Required, name)
		f.fields = append(f.fields, fl)
	}
	return &f, nil
}

// orderedObject splits a JSON object into its members, in their order.
func orderedObject(data []byte) (names []string, values []json.RawMessage, err error) {
	if len(data) == 0 {
		return nil, nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("it is not a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		name, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		if slices.Contains(names, name) {
			return nil, nil, fmt.Errorf("the member %q is there twice", name)
		}
		names, values = append(names, name), append(values, value)
	}
	return names, values, nil
}

func parseField(name string, schema json.RawMessage) (field, error) {
	var w wireField
	if err := json.Unmarshal(schema, &w); err != nil {
		return field{}, fmt.Errorf("reading the field %q of the question's schema: %w", name, err)
	}
	f := field{name: name, title: w.Title, description: w.Description, def: w.Default, format: w.Format, pattern: w.Pattern}
	switch {
	case len(w.Enum) > 0:
		f.kind = kindChoice
		for i, v := range w.Enum {
			c := choice{value: v}
			if i < len(w.EnumNames) {
				c.title = w.EnumNames[i]
			}
			f.choices = append(f.choices, c)
		}
	case len(w.OneOf) > 0:
		f.kind, f.choices = kindChoice, fromWire(w.OneOf)
	case w.Type == "array" && w.Items != nil:
		f.kind, f.min, f.max = kindChoices, w.MinItems, w.MaxItems
		f.choices = fromWire(w.Items.AnyOf)
		for _, v := range w.Items.Enum {
			f.choices = append(f.choices, choice{value: v})
		}
	case w.Type == "number" || w.Type == "integer":
		f.kind, f.min, f.max = fieldKind(w.Type), w.Minimum, w.Maximum
	case w.Type == "boolean":
		f.kind = kindBoolean
	case w.Type == "string":
		f.kind, f.min, f.max = kindString, w.MinLength, w.MaxLength
	default:
		return field{}, fmt.Errorf("the field %q has the type %q, which cannot be asked for", name, w.Type)
	}
	return f, nil
}

func fromWire(ws []wireChoice) []choice {
	var cs []choice
	for _, w := range ws {
		cs = append(cs, choice{value: w.Const, title: w.Title})
	}
	return cs
}

// schema returns the form's JSON Schema.
func (f *questionForm) schema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	for i := range f.fields {
		fl := &f.fields[i]
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(mustJSON(fl.name))
		b.WriteByte(':')
		b.Write(mustJSON(fl.wire()))
		if fl.required {
			required = append(required, fl.name)
		}
	}
	b.WriteByte('}')
	if len(required) > 0 {
		b.WriteString(`,"required":`)
		b.Write(mustJSON(required))
	}
	b.WriteByte('}')
	return b.Bytes()
}

func (f *field) wire() wireField {
	w := wireField{Type: string(f.kind), Title: f.title, Description: f.description, Format: f.format, Pattern: f.pattern, Default: f.def}
	titled := slices.ContainsFunc(f.choices, func(c choice) bool { return c.title != "" })
	var values []string
	var constants []wireChoice
	for _, c := range f.choices {
		values = append(values, c.value)
		title := c.title
		if title == "" {
			title = c.value
		}
		constants = append(constants, wireChoice{Const: c.value, Title: title})
	}
	switch f.kind {
	case kindString:
		w.MinLength, w.MaxLength = f.min, f.max
	case kindNumber, kindInteger:
		w.Minimum, w.Maximum = f.min, f.max
	case kindBoolean:
	case kindChoice:
		w.Type = "string"
		if titled {
			w.OneOf = constants
		} else {
			w.Enum = values
		}
	case kindChoices:
		w.Type, w.MinItems, w.MaxItems = "array", f.min, f.max
		if titled {
			w.Items = &wireItems{AnyOf: constants}
		} else {
			w.Items = &wireItems{Type: "string", Enum: values}
		}
	}
	return w
}

// mustJSON encodes values that cannot fail to be encoded: strings, and
// structures of strings and numbers that were checked.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// field returns the field of that name, nil if there is none.
func (f *questionForm) field(name string) *field {
	for i := range f.fields {
		if f.fields[i].name == name {
			return &f.fields[i]
		}
	}
	return nil
}

// names lists the names of the fields.
func (f *questionForm) names() []string {
	var names []string
	for _, fl := range f.fields {
		names = append(names, fl.name)
	}
	return names
}
