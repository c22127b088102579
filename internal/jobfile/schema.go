package jobfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns a JSON Schema (draft 2020-12) of job files, for editors. It is
// made of the same description of keys as the parser; what only the parser can
// see, such as a name in required that is not among params, it does not know.
func Schema() []byte {
	job := object{{"type", raw(`"object"`)}, {"additionalProperties", raw("false")}, {"required", raw(`["description"]`)},
		{"oneOf", raw(`[{"required":["run"]},{"required":["argv"],"not":{"required":["shell"]}}]`)}}
	var properties object
	for _, k := range keys {
		// The description goes first, where people look.
		schema := `{"description":` + string(jsonString(k.about)) + "," + strings.TrimPrefix(k.schema, "{")
		properties = append(properties, member{k.name, raw(schema)})
	}
	job = append(job, member{"properties", properties.json()})
	whole := object{
		{"$schema", raw(`"https://json-schema.org/draft/2020-12/schema"`)},
		{"title", raw(`"jobd job file"`)},
		{"description", raw(`"Commands that jobd offers as tools: .jobd/jobs.yaml in a project, or a file in jobd's configuration."`)},
		{"type", raw(`"object"`)},
		{"additionalProperties", raw("false")},
		{"properties", raw(fmt.Sprintf(`{"jobs":{"description":"The jobs by the name of their tool.","type":["object","null"],"propertyNames":{"pattern":%s},"additionalProperties":{"$ref":"#/$defs/job"}}}`,
			jsonString(toolName.String())))},
		{"$defs", object{{"job", job.json()}}.json()},
	}
	var pretty strings.Builder
	e := json.NewEncoder(&pretty)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(json.RawMessage(whole.json())); err != nil {
		return whole.json() // the tables hold nothing that is no JSON
	}
	return []byte(pretty.String())
}

// An object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func (o object) json() json.RawMessage {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(jsonString(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return raw(b.String())
}

// The keywords of JSON Schema 2020-12 by what their value holds.
const (
	aValue     = iota // anything
	aText             // a text
	aNumber           // a number
	aFlag             // true or false
	someValues        // a list of values
	aSchema           // a schema
	aList             // a list of schemas
	aMapping          // a mapping of names to schemas
)

var keywords = map[string]int{
	"default": aValue, "const": aValue, "type": aValue, "dependentRequired": aValue,
	"$comment": aText, "title": aText, "description": aText, "pattern": aText, "format": aText, "contentEncoding": aText, "contentMediaType": aText,
	"deprecated": aFlag, "readOnly": aFlag, "writeOnly": aFlag, "uniqueItems": aFlag,
	"multipleOf": aNumber, "minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber, "minLength": aNumber,
	"maxLength": aNumber, "minItems": aNumber, "maxItems": aNumber, "minContains": aNumber, "maxContains": aNumber, "minProperties": aNumber, "maxProperties": aNumber,
	"examples": someValues, "enum": someValues, "required": someValues,
	// Of older forms, which clients still show: the titles of an enum.
	"enumNames": someValues,

	"items": aSchema, "contains": aSchema, "unevaluatedItems": aSchema, "additionalProperties": aSchema, "propertyNames": aSchema,
	"unevaluatedProperties": aSchema, "not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema, "contentSchema": aSchema,
	"prefixItems": aList, "allOf": aList, "anyOf": aList, "oneOf": aList,
	"properties": aMapping, "patternProperties": aMapping, "dependentSchemas": aMapping,
}

// references can make a schema that never ends, or that lies elsewhere.
var references = []string{"$ref", "$dynamicRef", "$id", "$anchor", "$dynamicAnchor", "$schema", "$defs", "definitions", "$vocabulary"}

var types = []string{"string", "number", "integer", "boolean", "array", "object", "null"}

// keywords checks the keywords of a schema and of those in it. JSON Schema
// itself passes over what it does not know, so that "maxlength" would check
// nothing.
func (b *builder) keywords(n *node, path string) {
	if n.kind == boolean {
		return
	}
	if n.kind != mapping {
		b.fault(n.at, "write {type: string}, say", "%s must be a JSON Schema, not %s", path, n.kind)
		return
	}
	for _, e := range n.entries {
		what, ok := keywords[e.key]
		switch {
		case slices.Contains(references, e.key):
			b.fault(e.at, "write the schema out, or use a YAML alias", "%s uses %s; references are not used in job files", path, e.key)
			continue
		case !ok && !strings.HasPrefix(e.key, "x-"):
			b.fault(e.at, nearKeyword(e.key), "%s has the keyword %q, which JSON Schema does not have", path, e.key)
			continue
		case e.key == "type":
			b.types(e.value, path)
			continue
		}
		inside := path + "." + e.key
		if want, ok := kinds[what]; ok && e.value.kind != want && (what != aSchema || e.value.kind != boolean) {
			hint := ""
			if e.key == "required" {
				hint = "list the names of required arguments in \"required\" beside params"
			}
			b.fault(e.value.at, hint, "%s must be %s, not %s", inside, want, e.value.kind)
			continue
		}
		switch what {
		case aSchema:
			b.keywords(e.value, inside)
		case aList:
			for _, item := range e.value.items {
				b.keywords(item, inside)
			}
		case aMapping:
			for _, p := range e.value.entries {
				b.keywords(p.value, inside+"."+p.key)
			}
		}
	}
}

// kinds are the kinds of node that keywords need.
var kinds = map[int]kind{aText: text, aNumber: number, aFlag: boolean, someValues: list, aSchema: mapping, aList: list, aMapping: mapping}

func nearKeyword(word string) string {
	hint := near(word, slices.Sorted(maps.Keys(keywords)))
	if strings.HasPrefix(hint, "there") {
		return "remove it, or begin it with x-"
	}
	return hint
}

func (b *builder) types(n *node, path string) {
	all := []*node{n}
	if n.kind == list {
		all = n.items
	}
	for _, t := range all {
		if (t.kind != text && t.kind != null) || !slices.Contains(types, cmpText(t)) {
			b.fault(t.at, near(cmpText(t), types), "%s has the type %q", path, clip(cmpText(t), 40))
		}
	}
}

// cmpText is a type's name; YAML reads the word null as nothing.
func cmpText(n *node) string {
	if n.kind == null {
		return "null"
	}
	return n.text
}

// schemas makes the schemas of the tool and of the form.
func (b *builder) schemas() {
	j := b.job
	if _, err := resolve(inputSchema(j.params, j.required)); err != nil {
		b.blame("params", j.params, err, func(one []entry) error {
			_, err := resolve(inputSchema(one, nil))
			return err
		})
		return
	}
	if len(j.fields) > 0 {
		j.AskFirst = formSchema(j, j.fields)
		if b.rules.Forms != nil {
			if err := b.rules.Forms.Check(j.AskFirst, false); err != nil {
				b.blame("ask_first", j.fields, err, func(one []entry) error {
					return b.rules.Forms.Check(formSchema(j, one), false)
				})
				return
			}
		}
	}
	all := append(slices.Clone(j.params), j.fields...)
	var err error
	if j.schema, err = resolve(inputSchema(all, j.required)); err != nil {
		b.fault(b.places["ask_first"], "", "ask_first: %s", plain(err))
		return
	}
	if j.each, err = resolve(inputSchema(all, nil)); err != nil {
		b.fault(b.places["params"], "", "params: %s", plain(err))
		return
	}
	offered := j.params
	if j.AnswerBy == "anyone" {
		offered = all
	}
	j.InputSchema = inputSchema(offered, j.required)
}

// blame reports an error about several schemas where the first lies that has it
// alone.
func (b *builder) blame(key string, entries []entry, err error, check func([]entry) error) {
	for _, e := range entries {
		if alone := check([]entry{e}); alone != nil {
			b.fault(e.at, "", "%s.%s: %s", key, e.key, plain(alone))
			return
		}
	}
	b.fault(b.places[key], "", "%s: %s", key, plain(err))
}

func inputSchema(params []entry, required []string) json.RawMessage {
	o := object{{"type", raw(`"object"`)}, {"properties", properties(params)}}
	if len(required) > 0 {
		list, _ := json.Marshal(required) // strings can always be encoded
		o = append(o, member{"required", list})
	}
	return append(o, member{"additionalProperties", raw("false")}).json()
}

func formSchema(j *Job, fields []entry) json.RawMessage {
	o := object{{"type", raw(`"object"`)}}
	if j.Title != "" {
		o = append(o, member{"title", jsonString(j.Title)})
	}
	o = append(o, member{"properties", properties(fields)})
	var required []string
	for _, e := range fields {
		if e.value.get("default") == nil {
			required = append(required, e.key)
		}
	}
	if len(required) > 0 {
		list, _ := json.Marshal(required) // strings can always be encoded
		o = append(o, member{"required", list})
	}
	return o.json()
}

func properties(entries []entry) json.RawMessage {
	o := make(object, len(entries))
	for i, e := range entries {
		o[i] = member{e.key, e.value.json()}
	}
	return o.json()
}

func resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}
