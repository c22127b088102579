package jobfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"jobd/internal/jobs"
)

// A Call is a call of a job whose arguments have been checked.
type Call struct {
	job *Job
	// Arguments are all values that the command gets, defaults and answers
	// included, as one JSON object in the order of the file.
	Arguments json.RawMessage
	// Identity are the arguments that make two calls the same: what was sent,
	// with the defaults of params, without answers.
	Identity json.RawMessage
	// Missing are the fields of ask_first that have no value yet, in the order
	// of the file. While there are any the call can join a job but make none.
	Missing []string

	values []value
}

type value struct {
	name string
	json json.RawMessage
	// text is what the variable and the element of argv hold.
	text string
	// large: it does not fit into a variable.
	large bool
}

// The bounds of the environment that arguments make. One string may have
// 128 KiB, and all strings of arguments and environment together an eighth of
// the stack's limit at least (execve(2)); macOS has 1 MiB for all.
const (
	maxVariable  = maxText
	maxVariables = 400_000
)

// FileVariable is the variable that names the file with a call's arguments.
const FileVariable = "JOBD_ARGS_FILE"

// Bind checks the arguments of a call and the answers to ask_first, which may
// both be empty. Its error, of kind [jobs.ErrInvalid], is a sentence that says
// which argument is wrong and what is expected instead.
func (j *Job) Bind(arguments, answers json.RawMessage) (*Call, error) {
	sent, err := j.object(arguments, "the arguments")
	if err != nil {
		return nil, err
	}
	answered, err := j.object(answers, "the answers to ask_first")
	if err != nil {
		return nil, err
	}
	if err := j.known(sent, answered); err != nil {
		return nil, err
	}
	all := make(map[string]json.RawMessage, len(sent)+len(answered))
	maps.Copy(all, sent)
	maps.Copy(all, answered)
	for _, name := range j.required {
		if _, ok := all[name]; !ok {
			return nil, j.wrong("needs the argument %q, %s", name, j.expectation(name))
		}
	}
	plainValues := map[string]any{}
	for name, js := range all {
		var v any
		if err := json.Unmarshal(js, &v); err != nil {
			return nil, j.wrong("cannot read the argument %q: %v", name, err)
		}
		plainValues[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := j.each.Validate(map[string]any{name: plainValues[name]}); err != nil {
			return nil, j.wrong("needs %q to be %s; it got %s%s", name, j.expectation(name), shown(all[name]), j.detail(name, err))
		}
	}
	if err := j.applyDefaults(all, plainValues); err != nil {
		return nil, err
	}
	c := &Call{job: j}
	identity := object{}
	for _, e := range j.params {
		if js, ok := all[e.key]; ok {
			identity = append(identity, member{e.key, js})
		}
	}
	for _, e := range j.fields {
		js, direct := sent[e.key]
		_, ok := all[e.key]
		switch {
		case direct:
			identity = append(identity, member{e.key, js})
		case answered == nil:
			// A field with a default is asked for, too.
			c.Missing = append(c.Missing, e.key)
		case !ok:
			return nil, j.wrong("needs an answer for the field %q, %s", e.key, j.expectation(e.key))
		}
	}
	c.Identity = identity.json()
	if err := c.fill(all); err != nil {
		return nil, err
	}
	return c, nil
}

// object reads a JSON object and brings its values into one form. It is nil for
// empty input.
func (j *Job) object(data json.RawMessage, what string) (map[string]json.RawMessage, error) {
	if data = bytes.TrimSpace(data); len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, j.wrong("takes %s as a JSON object; it got %s", what, shown(data))
	}
	out := make(map[string]json.RawMessage, len(raw))
	for name, js := range raw {
		// Models send null for what they leave out.
		if string(js) == "null" && !j.takesNull(name) {
			continue
		}
		one, err := canonical(js)
		if err != nil {
			return nil, j.wrong("cannot read the argument %q: %v", name, err)
		}
		out[name] = one
	}
	return out, nil
}

// canonical writes JSON in one form: no white space, keys sorted, numbers as
// they were sent.
func canonical(js json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(js))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// takesNull reports whether null is a value of an argument.
func (j *Job) takesNull(name string) bool {
	s := j.schema.Schema().Properties[name]
	return s != nil && (s.Type == "null" || slices.Contains(s.Types, "null")) && j.each.Validate(map[string]any{name: nil}) == nil
}

// known refuses arguments that are not declared.
func (j *Job) known(sent, answered map[string]json.RawMessage) error {
	params, fields := names(j.params), names(j.fields)
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if !slices.Contains(params, name) && !slices.Contains(fields, name) {
			hint := near(name, params)
			if len(params) == 0 {
				hint = "it takes none"
			}
			return j.wrong("has no argument %q; %s", clip(name, 60), hint)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(answered)) {
		if !slices.Contains(fields, name) {
			return j.wrong("has no field %q in ask_first; %s", clip(name, 60), near(name, fields))
		}
	}
	return nil
}

// applyDefaults adds the defaults of the schema.
func (j *Job) applyDefaults(all map[string]json.RawMessage, values map[string]any) error {
	before := map[string]any{}
	for name, v := range values {
		// The library changes objects in place.
		before[name] = clone(v)
	}
	if err := j.schema.ApplyDefaults(&values); err != nil {
		return j.wrong("has defaults that cannot be used: %s", plain(err))
	}
	if err := j.schema.Validate(values); err != nil {
		return j.wrong("cannot be called like this: %s", plain(err))
	}
	for name, v := range values {
		old, sent := before[name]
		if sent && reflect.DeepEqual(old, v) {
			continue // as it was sent: large numbers keep all their digits
		}
		s := j.schema.Schema().Properties[name]
		js, err := json.Marshal(v)
		if !sent && s != nil && s.Default != nil && reflect.DeepEqual(decoded(s.Default), v) {
			js = s.Default
		}
		if err == nil {
			js, err = canonical(js)
		}
		if err != nil {
			return j.wrong("has a default of %q that cannot be used: %v", name, err)
		}
		all[name] = js
	}
	return nil
}

func decoded(js json.RawMessage) any {
	var v any
	_ = json.Unmarshal(js, &v) // resolved schemas hold JSON only
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// fill makes the values for the command.
func (c *Call) fill(all map[string]json.RawMessage) error {
	j := c.job
	o := object{}
	for _, e := range append(slices.Clone(j.params), j.fields...) {
		js, ok := all[e.key]
		if !ok {
			continue
		}
		o = append(o, member{e.key, js})
		v := value{name: e.key, json: js, text: textOf(js)}
		if strings.ContainsRune(v.text, 0) {
			return j.wrong("got a NUL character in the argument %q, which no program can be given; leave it out", e.key)
		}
		c.values = append(c.values, v)
	}
	c.Arguments = o.json()
	// The largest go into the file alone, until the rest fits.
	order := make([]int, len(c.values))
	total := 0
	for i, v := range c.values {
		order[i] = i
		total += len(v.text)
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(c.values[b].text) - len(c.values[a].text) })
	for _, i := range order {
		v := &c.values[i]
		if len(v.text) <= maxVariable && total <= maxVariables {
			break
		}
		v.large = true
		total -= len(v.text)
	}
	for _, v := range c.values {
		if v.large && !j.readsFile() {
			return j.wrong("takes at most %d bytes for the argument %q, and %d for all; it got %d: put the text into a file and give a path, if the tool can read one (the author of %s can take longer arguments from %s)",
				maxVariable, v.name, maxVariables, len(v.text), j.File, FileVariable)
		}
	}
	_, err := c.argv()
	return err
}

// readsFile reports whether the command is prepared for arguments that are in
// the file only. A command that is not would find a variable unset and might
// take it for an empty text.
func (j *Job) readsFile() bool { return strings.Contains(j.Run, FileVariable) }

// textOf is a value as a program gets it: a string as it is, anything else as
// JSON, whole numbers without fraction and exponent.
func textOf(js json.RawMessage) string {
	if len(js) > 0 && js[0] == '"' {
		var s string
		_ = json.Unmarshal(js, &s) // js is canonical
		return s
	}
	if len(js) > 0 && strings.ContainsAny(string(js[:1]), "-0123456789") && bytes.ContainsAny(js, ".eE") && len(js) < 64 {
		if r, ok := new(big.Rat).SetString(string(js)); ok && r.IsInt() && len(r.Num().String()) < 20 {
			return r.Num().String()
		}
	}
	return string(js)
}

// Argv is the command. shell runs the text of run where the job names no shell.
func (c *Call) Argv(shell string) []string {
	if c.job.Run != "" {
		argv := c.job.Shell
		if argv == nil {
			argv = []string{shell, "-c"}
		}
		return append(slices.Clone(argv), c.job.Run)
	}
	argv, _ := c.argv() // checked by Bind
	return argv
}

// argv puts arguments in the place of their elements.
func (c *Call) argv() ([]string, error) {
	var argv []string
	total := 0
	for _, e := range c.job.Argv {
		m := placeholder.FindStringSubmatch(e)
		if m == nil {
			if literal, ok := strings.CutPrefix(e, "$$"); ok {
				e = "$" + literal
			}
			argv = append(argv, e)
			continue
		}
		i := slices.IndexFunc(c.values, func(v value) bool { return v.name == m[1] })
		if i < 0 {
			continue // missing: an answer that is still to come
		}
		for _, element := range elements(c.values[i]) {
			if total += len(element); len(element) > maxVariable || total > maxVariables {
				return nil, c.job.wrong("takes at most %d bytes for the argument %q, and %d for all; it got more: a program can be given no more", maxVariable, m[1], maxVariables)
			}
			if strings.ContainsRune(element, 0) {
				return nil, c.job.wrong("got a NUL character in the argument %q, which no program can be given; leave it out", m[1])
			}
			argv = append(argv, element)
		}
	}
	return argv, nil
}

// elements are the elements of argv that a value makes: a list makes one of
// each item.
func elements(v value) []string {
	if len(v.json) == 0 || v.json[0] != '[' {
		return []string{v.text}
	}
	var items []json.RawMessage
	_ = json.Unmarshal(v.json, &items) // v.json is canonical
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = textOf(item)
	}
	return out
}

// Environ are the variables that hold the arguments: JOBD_ARG_<name> for each
// that fits, and JOBD_ARGS with all as JSON if that fits. A null has no
// variable.
func (c *Call) Environ() []string {
	var out []string
	total := 0
	for _, v := range c.values {
		if v.large || string(v.json) == "null" {
			continue
		}
		total += len(v.text)
		out = append(out, "JOBD_ARG_"+v.name+"="+v.text)
	}
	if len(c.Arguments) <= maxVariable && total+len(c.Arguments) <= maxVariables {
		out = append(out, "JOBD_ARGS="+string(c.Arguments))
	}
	return out
}

// IsArgument reports whether a variable of this name is one that [Call.Environ]
// could make, or [FileVariable]: a job must not take those of the job that it
// was called from for its own.
func IsArgument(name string) bool {
	return name == "JOBD_ARGS" || name == FileVariable || strings.HasPrefix(name, "JOBD_ARG_")
}

// Shown are the arguments for showing: long texts are cut, with a hash of the
// whole.
func (c *Call) Shown() json.RawMessage {
	const most = 2_000
	o := object{}
	for _, v := range c.values {
		js := v.json
		if len(js) > most {
			sum := sha256.Sum256(js)
			js = jsonString(fmt.Sprintf("%s (%d bytes, SHA-256 %x)", clip(v.text, 200), len(v.text), sum[:8]))
		}
		o = append(o, member{v.name, js})
	}
	return o.json()
}

// Split takes apart what [Call.Arguments] put together: the arguments, and the
// answers to ask_first, nil if there are none.
func (j *Job) Split(all json.RawMessage) (arguments, answers json.RawMessage, err error) {
	values, err := j.object(all, "the arguments")
	if err != nil {
		return nil, nil, err
	}
	var sent, answered object
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(names(j.fields), name) {
			answered = append(answered, member{name, values[name]})
		} else {
			sent = append(sent, member{name, values[name]})
		}
	}
	if len(answered) > 0 {
		answers = answered.json()
	}
	return sent.json(), answers, nil
}

// wrong makes an error that begins with the tool's name.
func (j *Job) wrong(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.ErrInvalid, Message: j.Name + " " + fmt.Sprintf(format, args...)}
}
