package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"jobd/internal/form"
)

func (f *questionForm) unknown(name string) error {
	if len(f.fields) == 0 {
		return fmt.Errorf("there is no field %q: the question has none and is only accepted or declined", name)
	}
	return fmt.Errorf("there is no field %q; the fields are %s", name, strings.Join(f.names(), ", "))
}

// encode returns content as JSON with the fields in their order.
func (f *questionForm) encode(content map[string]json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, fl := range f.fields {
		value, ok := content[fl.name]
		if !ok {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(mustJSON(fl.name))
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// valid returns a sentence about a value that the field cannot have, nil for
// one that it can.
func (f *field) valid(value json.RawMessage) error {
	alone := questionForm{fields: []field{*f}}
	alone.fields[0].def = nil
	err := form.Forms{}.Validate(alone.schema(), alone.encode(map[string]json.RawMessage{f.name: value}))
	if err != nil {
		return fmt.Errorf("it must be %s", f.expected())
	}
	return nil
}

var formatNames = map[string]string{
	"email":     "an email address such as name@example.com",
	"uri":       "an address such as https://example.com/",
	"date":      "a date such as 2026-11-29",
	"date-time": "a time such as 2026-11-29T20:00:00Z",
}

// expected says in words what the value may be.
func (f *field) expected() string {
	switch f.kind {
	case kindInteger:
		return "a whole number" + interval(f.min, f.max)
	case kindNumber:
		return "a number" + interval(f.min, f.max)
	case kindBoolean:
		return "yes or no"
	case kindChoice:
		return "one of " + f.values()
	case kindChoices:
		return bounds(f.min, f.max, "") + "of " + f.values()
	case kindString:
		what := "text"
		if name, ok := formatNames[f.format]; ok {
			what = name
		}
		if b := bounds(f.min, f.max, "character"); b != "" {
			what += " of " + strings.TrimSpace(b)
		}
		if f.pattern != "" {
			what += " that matches " + f.pattern
		}
		return what
	}
	return "text"
}

func interval(low, high *float64) string {
	switch {
	case low != nil && high != nil:
		return fmt.Sprintf(" from %s to %s", number(*low), number(*high))
	case low != nil:
		return fmt.Sprintf(" of %s or more", number(*low))
	case high != nil:
		return fmt.Sprintf(" of %s or less", number(*high))
	}
	return ""
}

// bounds puts the bounds of a count in words, with the noun that is counted, ""
// where there are none.
func bounds(low, high *float64, noun string) string {
	var s string
	var last float64
	switch {
	case low != nil && high != nil:
		s, last = fmt.Sprintf("%s to %s", number(*low), number(*high)), *high
	case low != nil:
		s, last = fmt.Sprintf("at least %s", number(*low)), *low
	case high != nil:
		s, last = fmt.Sprintf("at most %s", number(*high)), *high
	default:
		return ""
	}
	if noun != "" {
		s += " " + noun
		if last != 1 {
			s += "s"
		}
	}
	return s + " "
}

// number writes a number as a person would.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// values lists the choices by value.
func (f *field) values() string {
	var values []string
	for _, c := range f.choices {
		values = append(values, c.value)
	}
	return strings.Join(values, ", ")
}

func (f *field) has(value string) bool {
	return slices.ContainsFunc(f.choices, func(c choice) bool { return c.value == value })
}

// convert makes the JSON value that a person means by text, and checks it.
// Choices may be given by title, whatever the case; several are parted by
// commas.
func (f *field) convert(text string) (json.RawMessage, error) {
	var value json.RawMessage
	switch f.kind {
	case kindString:
		if !utf8.ValidString(text) {
			return nil, errors.New("it must be UTF-8 text")
		}
		value = mustJSON(text)
	case kindInteger:
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("it must be %s, not %q", f.expected(), text)
		}
		value = mustJSON(n)
	case kindNumber:
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, fmt.Errorf("it must be %s, not %q", f.expected(), text)
		}
		value = mustJSON(n)
	case kindBoolean:
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "true", "yes", "y", "on", "1":
			value = json.RawMessage("true")
		case "false", "no", "n", "off", "0":
			value = json.RawMessage("false")
		default:
			return nil, fmt.Errorf("it must be yes or no, not %q", text)
		}
	case kindChoice:
		v, err := f.choose(text)
		if err != nil {
			return nil, err
		}
		value = mustJSON(v)
	case kindChoices:
		list := []string{}
		for part := range strings.SplitSeq(text, ",") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			v, err := f.choose(part)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
		value = mustJSON(list)
	}
	return value, f.valid(value)
}

func (f *field) choose(text string) (string, error) {
	if f.has(text) {
		return text, nil
	}
	text = strings.TrimSpace(text)
	for _, c := range f.choices {
		if strings.EqualFold(c.value, text) || strings.EqualFold(c.title, text) {
			return c.value, nil
		}
	}
	return "", fmt.Errorf("%q is no choice; the choices are %s", text, f.values())
}

// bare returns a value as a shell script wants it: text without quotes, a list
// with one choice a line.
func bare(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(value, &list) == nil {
		return strings.Join(list, "\n")
	}
	return string(value)
}
