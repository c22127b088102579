package jobfile

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// A kind is what a YAML value is.
type kind int

const (
	null kind = iota
	boolean
	number
	text
	list
	mapping
)

// String names the kind for a sentence.
func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a text", "a list", "a mapping"}[k]
}

// A node is one value of a file. An alias is the node that it stands for, so
// nodes form a graph without cycles.
type node struct {
	kind kind
	at   place
	// text is a scalar as it is written, quotes resolved.
	text string
	// number is a number's JSON.
	number  string
	items   []*node
	entries []entry
	// size counts the values that the node holds, itself included, aliases as
	// often as they are used.
	size int
}

// An entry is a key of a mapping with its value.
type entry struct {
	key   string
	at    place
	value *node
}

// A place is a position in a file, both counted from 1.
type place struct{ line, column int }

// get returns the value of a key, nil if there is none.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// json returns the node as JSON, keys in their order.
func (n *node) json() json.RawMessage {
	var b bytes.Buffer
	n.writeJSON(&b)
	return b.Bytes()
}

func (n *node) writeJSON(b *bytes.Buffer) {
	switch n.kind {
	case null:
		b.WriteString("null")
	case boolean:
		b.WriteString(strings.ToLower(n.text))
	case number:
		b.WriteString(n.number)
	case text:
		b.Write(jsonString(n.text))
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeJSON(b)
		}
		b.WriteByte(']')
	case mapping:
		b.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(jsonString(e.key))
			b.WriteByte(':')
			e.value.writeJSON(b)
		}
		b.WriteByte('}')
	}
}

// jsonString is a JSON string without HTML's escapes: the text is shown to
// people.
func jsonString(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return []byte(`""`) // a string can always be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// jsonNumber returns the JSON of a number as YAML 1.2's core schema writes it,
// and false for what JSON has no number for.
func jsonNumber(s string) (string, bool) {
	digits := strings.TrimPrefix(s, "+")
	for prefix, base := range map[string]int{"0x": 16, "0o": 8} {
		if hex, ok := strings.CutPrefix(digits, prefix); ok {
			v, err := strconv.ParseUint(hex, base, 64)
			return strconv.FormatUint(v, 10), err == nil
		}
	}
	if json.Valid([]byte(digits)) {
		return digits, true
	}
	if v, err := strconv.ParseFloat(digits, 64); err == nil && !math.IsInf(v, 0) && !strings.ContainsAny(digits, "_xXpP") {
		if whole := strings.TrimLeft(strings.TrimPrefix(digits, "-"), "0123456789"); whole == "" {
			return "", false // "017": octal to some, decimal to others
		}
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}
