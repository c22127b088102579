package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// A kind is the type of an argument.
type kind int

const (
	aString kind = iota
	anInteger
	aBoolean
	aStringList // not empty
	aStringMap
	anObject
)

// A param is one argument of a built-in tool. The JSON schema that clients see
// and the check of what they send are both made of it.
type param struct {
	name  string
	kind  kind
	about string
	must  bool
	enum  []string
	// min and max bound an integer.
	min, max int64
	// example is what the sentence about a wrong value shows; JSON.
	example string
}

// property is the JSON schema of a param.
func (p param) property() map[string]any {
	s := map[string]any{"description": p.about}
	switch p.kind {
	case aString:
		s["type"] = "string"
		if p.enum != nil {
			s["enum"] = p.enum
		}
	case anInteger:
		s["type"], s["minimum"], s["maximum"] = "integer", p.min, p.max
	case aBoolean:
		s["type"] = "boolean"
	case aStringList:
		s["type"], s["items"], s["minItems"] = "array", map[string]any{"type": "string"}, 1
	case aStringMap:
		s["type"], s["additionalProperties"] = "object", map[string]any{"type": "string"}
	case anObject:
		s["type"] = "object"
	}
	return s
}

// schemaOf makes the input schema of a tool.
func schemaOf(params []param) json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, p := range params {
		properties[p.name] = p.property()
		if p.must {
			required = append(required, p.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		panic(err) // the tables hold nothing that cannot be marshalled
	}
	return raw
}

// A wrongArgument says what is wrong with a call and what to send instead.
type wrongArgument string

func (e wrongArgument) Error() string { return string(e) }

func wrong(format string, args ...any) error { return wrongArgument(fmt.Sprintf(format, args...)) }

// decode checks the arguments of a call to tool and stores them in into, a
// pointer to a struct with JSON tags. Its error is a [wrongArgument].
func decode(tool string, params []param, arguments json.RawMessage, into any) error {
	if trimmed := bytes.TrimSpace(arguments); len(trimmed) == 0 || string(trimmed) == "null" {
		arguments = json.RawMessage("{}")
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(arguments, &sent); err != nil {
		return wrong("%s takes its arguments as a JSON object, like %s; it got %s.", tool, example(params), kindOf(arguments))
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		i := slices.IndexFunc(params, func(p param) bool { return p.name == name })
		if i < 0 {
			return unknownArgument(tool, name, params)
		}
		if string(bytes.TrimSpace(sent[name])) == "null" {
			delete(sent, name) // models send null for what they leave out
			continue
		}
		if err := params[i].check(tool, sent[name]); err != nil {
			return err
		}
		if params[i].kind == anInteger { // 600.0 is a whole number in JSON Schema
			var f float64
			_ = json.Unmarshal(sent[name], &f)
			sent[name], _ = json.Marshal(int64(f))
		}
	}
	for _, p := range params {
		if _, ok := sent[p.name]; p.must && !ok {
			return wrong("%s needs the argument %q: %s Send for example %s.", tool, p.name, p.about, p.sample())
		}
	}
	checked, err := json.Marshal(sent)
	if err != nil {
		return wrong("The arguments of %s cannot be read: %v.", tool, err)
	}
	if err := json.Unmarshal(checked, into); err != nil {
		return wrong("The arguments of %s cannot be read: %v.", tool, err)
	}
	return nil
}

// check says what is wrong with a value.
func (p param) check(tool string, raw json.RawMessage) error {
	bad := func(want string) error {
		return wrong("The argument %q of %s must be %s, like %s; it got %s.", p.name, tool, want, p.sample(), kindOf(raw))
	}
	switch p.kind {
	case aString:
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return bad("a string")
		}
		if p.enum != nil && !slices.Contains(p.enum, s) {
			return bad("one of " + strings.Join(p.enum, ", "))
		}
		if strings.ContainsRune(s, 0) {
			return wrong("The argument %q of %s contains a NUL character, which no program can be given; leave it out.", p.name, tool)
		}
	case anInteger:
		var f float64
		if json.Unmarshal(raw, &f) != nil || f != math.Trunc(f) || f < float64(p.min) || f > float64(p.max) {
			return bad(fmt.Sprintf("a whole number from %d to %d", p.min, p.max))
		}
	case aBoolean:
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return bad("true or false")
		}
	case aStringList:
		var list []string
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 || bytes.Contains(raw, []byte("null")) && hasNull(raw) {
			return bad("a list of strings that is not empty")
		}
		if slices.ContainsFunc(list, func(s string) bool { return strings.ContainsRune(s, 0) }) {
			return wrong("The argument %q of %s contains a NUL character, which no program can be given; leave it out.", p.name, tool)
		}
	case aStringMap:
		var m map[string]*string
		if json.Unmarshal(raw, &m) != nil {
			return bad("an object whose values are strings")
		}
		for name, value := range m {
			if value == nil {
				return bad("an object whose values are strings")
			}
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(*value, 0) {
				return wrong("The argument %q of %s has the name %q, or a value with a NUL character: names of variables are not empty and hold no “=”.", p.name, tool, name)
			}
		}
	case anObject:
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			return bad("an object")
		}
	}
	return nil
}

// hasNull reports whether a JSON list has a null in it, which Go reads as "".
func hasNull(raw json.RawMessage) bool {
	var list []*string
	return json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil)
}

// unknownArgument names the argument that was probably meant.
func unknownArgument(tool, name string, params []param) error {
	names := make([]string, len(params))
	best, distance := "", 1+len(name)/3
	for i, p := range params {
		names[i] = p.name
		d := levenshtein.ComputeDistance(strings.ToLower(name), p.name)
		if abbreviates(name, p.name) || abbreviates(p.name, name) {
			d = 0
		}
		if d < distance {
			best, distance = p.name, d
		}
	}
	hint := ""
	if best != "" {
		hint = fmt.Sprintf(" Did you mean %q?", best)
	}
	return wrong("%s has no argument %s.%s It takes %s.", tool, quoted(name, 60), hint, strings.Join(names, ", "))
}

// abbreviates reports whether all letters of short are in long, in order, from
// the first on: "cmd" for "command", "timeout" for "timeout_seconds".
func abbreviates(short, long string) bool {
	if len(short) < 3 || len(long) < len(short) || short[0] != long[0] {
		return false
	}
	i := 0
	for j := 0; j < len(long) && i < len(short); j++ {
		if short[i] == long[j] {
			i++
		}
	}
	return i == len(short)
}

// sample is a value that the param takes, with its name.
func (p param) sample() string { return fmt.Sprintf("{%q: %s}", p.name, p.example) }

// example is a call's arguments.
func example(params []param) string {
	for _, p := range params {
		if p.must {
			return p.sample()
		}
	}
	if len(params) == 0 {
		return "{}"
	}
	return params[0].sample()
}

// kindOf says what a JSON value is, without repeating much of it.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	shown := oneLine(string(raw), 60)
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "the string " + shown
	case raw[0] == '{':
		return "the object " + shown
	case raw[0] == '[':
		return "the list " + shown
	case raw[0] == 't' || raw[0] == 'f':
		return "the value " + shown
	case raw[0] == 'n':
		return "null"
	}
	return "the number " + shown
}
