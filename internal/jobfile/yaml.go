package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of what is read. The YAML parser takes memory with the square of
// the depth, so depth is bounded before it runs.
const (
	// MaxFile is the size in bytes that a job file may have.
	MaxFile = 256 << 10
	// maxDepth is how deep values may be nested.
	maxDepth = 64
	// maxTokens is how many tokens a file may have: the YAML parser takes time
	// with the square of a mapping's length.
	maxTokens = 30_000
	// maxFaults is how many faults of a job, and of a file, are told.
	maxFaults = 20
	// maxKeys is how many keys a mapping may have.
	maxKeys = 500
	// maxValues is how many values a job may have, aliases counted as often as
	// they are used.
	maxValues = 10_000
)

// source is the text of a file, for positions and excerpts.
type source struct {
	name  string
	lines []string
}

// fault makes a fault at a place. A place outside the text is moved into it.
func (s *source) fault(at place, hint, format string, args ...any) Fault {
	at.line = max(1, min(at.line, len(s.lines)))
	line := s.lines[at.line-1]
	at.column = max(1, min(at.column, utf8.RuneCountInString(line)+1))
	return Fault{File: s.name, Line: at.line, Column: at.column, Message: visible(fmt.Sprintf(format, args...)), Hint: visible(hint), Source: line}
}

// clean checks the characters of a file and returns it without byte order mark
// and with lines that end by line feeds only: a script must not get the
// carriage returns of the editor it was written with. A nil fault is good news.
func clean(name string, data []byte) (*source, string, *Fault) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) > MaxFile {
		return nil, "", &Fault{File: name, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file is larger than %d bytes", MaxFile), Hint: "move long scripts into files of their own"}
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	src := &source{name: name, lines: strings.Split(string(data), "\n")}
	at := place{1, 1}
	for rest := data; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		var f Fault
		switch {
		case r == utf8.RuneError && n == 1:
			f = src.fault(at, "save it as UTF-8", "the file is not UTF-8: it has the byte 0x%02x", rest[0])
		case r == '\r':
			f = src.fault(at, "end lines with a line feed", "there is a carriage return that ends no line")
		case r < ' ' && r != '\n' && r != '\t', r >= 0x7f && r <= 0x9f && r != 0x85, r == 0xfeff:
			f = src.fault(at, `write it in double quotes, as "\x1b" is written`, "there is the control character %U", r)
		}
		if f.Message != "" {
			return nil, "", &f
		}
		rest = rest[n:]
		if at.column++; r == '\n' {
			at = place{at.line + 1, 1}
		}
	}
	return src, string(data), nil
}

// parseYAML returns the documents of a text.
func parseYAML(src *source, data string) (docs []ast.Node, fault *Fault) {
	fail := func(at place, hint, format string, args ...any) ([]ast.Node, *Fault) {
		f := src.fault(at, hint, format, args...)
		return nil, &f
	}
	tokens, fault := tokenize(src, data)
	if fault != nil {
		return nil, fault
	}
	// A panic of the parser is a fault of the file as far as its author is
	// concerned.
	defer func() {
		if v := recover(); v != nil {
			docs, fault = fail(place{1, 1}, "simplify it", "the file cannot be read as YAML: %v", v)
		}
	}()
	if len(tokens) > maxTokens {
		return fail(placeOf(tokens[maxTokens]), "use several files", "the file has more than %d words and signs", maxTokens)
	}
	if at, ok := tooDeep(tokens); ok {
		return fail(at, "", "values are nested deeper than %d here", maxDepth)
	}
	// Duplicate keys are found later, so that they cost one job only.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var bad yaml.Error
		if errors.As(err, &bad) {
			return fail(placeOf(bad.GetToken()), yamlHint(bad.GetMessage()), "this is not YAML: %s", bad.GetMessage())
		}
		return fail(place{1, 1}, "", "this is not YAML: %s", err)
	}
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType && d.Body.Type() != ast.NullType {
			docs = append(docs, d.Body)
		}
	}
	return docs, nil
}

func tokenize(src *source, data string) (tokens token.Tokens, fault *Fault) {
	defer func() {
		if v := recover(); v != nil {
			f := src.fault(place{1, 1}, "simplify it", "the file cannot be read as YAML: %v", v)
			fault = &f
		}
	}()
	return lexer.Tokenize(data), nil
}

// yamlHint says what is usually behind an error of the YAML parser.
func yamlHint(message string) string {
	switch {
	case strings.Contains(message, "'\t'"):
		return "indent with spaces; YAML knows no tabs"
	case strings.Contains(message, "mapping value is not allowed"):
		return `put a text that holds ": " in quotes, or write it below "|"`
	case strings.Contains(message, "value is not allowed in this context"):
		return "look at the indentation of this line and of those above"
	case strings.Contains(message, "could not find end character"):
		return "close the quotes"
	}
	return ""
}

// tooDeep finds where values are nested deeper than maxDepth by brackets, or by
// indicators in one line. Indentation alone cannot get far: the size of the
// file bounds it.
func tooDeep(tokens token.Tokens) (place, bool) {
	brackets, line, inLine := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets = max(0, brackets-1)
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			inLine++
		default:
		}
		if brackets > maxDepth || (brackets == 0 && inLine > maxDepth) {
			return placeOf(t), true
		}
	}
	return place{}, false
}

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// A converter makes nodes of the YAML parser's. Faults collect in it.
type converter struct {
	src     *source
	anchors map[string]*node
	faults  []Fault
}

func (c *converter) fault(at place, hint, format string, args ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, c.src.fault(at, hint, format, args...))
	}
}

// take returns the faults found since the last time.
func (c *converter) take() []Fault {
	f := c.faults
	c.faults = nil
	return f
}

// node converts a value. What cannot be converted is null, with a fault.
func (c *converter) node(n ast.Node, depth int) *node {
	if n == nil {
		return &node{at: place{1, 1}, size: 1}
	}
	v := &node{at: placeOf(n.GetToken()), size: 1}
	if depth > maxDepth {
		c.fault(v.at, "", "values are nested deeper than %d here", maxDepth)
		return v
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		v.kind, v.text = boolean, n.Token.Value
	case *ast.IntegerNode, *ast.FloatNode:
		v.kind, v.text = number, n.GetToken().Value
		var ok bool
		if v.number, ok = jsonNumber(v.text); !ok {
			// It may still be meant as a text: whoever wants a number asks.
			v.kind = text
		}
	case *ast.StringNode:
		v.kind, v.text = text, n.Value
		if n.Token.Type == token.StringType {
			// YAML's core schema has numbers that the parser takes for texts.
			if js, ok := jsonNumber(n.Value); ok {
				v.kind, v.number = number, js
			}
		}
	case *ast.LiteralNode:
		v.kind, v.text = text, n.Value.Value
	case *ast.MappingNode:
		c.mapping(v, n.Values, depth)
	case *ast.MappingValueNode:
		c.mapping(v, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		v.kind = list
		for _, item := range n.Values {
			i := c.node(item, depth+1)
			v.size = min(v.size+i.size, maxValues+1)
			v.items = append(v.items, i)
		}
	case *ast.AnchorNode:
		v = c.node(n.Value, depth)
		if n.Name != nil {
			c.anchors[n.Name.GetToken().Value] = v
		}
	case *ast.AliasNode:
		name := ""
		if n.Value != nil {
			name = n.Value.GetToken().Value
		}
		if known := c.anchors[name]; known != nil {
			return known
		}
		c.fault(v.at, fmt.Sprintf("mark the value that is meant with &%s, above", name), "nothing above is called %q", name)
	case *ast.TagNode:
		c.fault(v.at, "quote the value to make it a text", "tags such as %s are not used in job files", n.Start.Value)
	case *ast.InfinityNode, *ast.NanNode:
		c.fault(v.at, "", "%s is no number that JSON has", n.GetToken().Value)
	default:
		c.fault(v.at, "", "this kind of value (%s) is not used in job files", n.Type())
	}
	return v
}

func (c *converter) mapping(v *node, values []*ast.MappingValueNode, depth int) {
	v.kind = mapping
	if len(values) > 0 && v.at == placeOf(values[0].Start) {
		v.at = placeOf(values[0].Key.GetToken()) // else it is at the colon
	}
	if len(values) > maxKeys {
		c.fault(v.at, "", "there are %d keys here; at most %d are taken", len(values), maxKeys)
		return
	}
	for _, m := range values {
		key, at, ok := c.key(m.Key)
		value := c.node(m.Value, depth+1)
		v.size = min(v.size+value.size, maxValues+1)
		if !ok {
			continue
		}
		if v.get(key) != nil {
			c.fault(at, "keep one of them", "%q is there twice", key)
			continue
		}
		v.entries = append(v.entries, entry{key, at, value})
	}
}

// key returns the text of a mapping's key.
func (c *converter) key(n ast.MapKeyNode) (string, place, bool) {
	at := placeOf(n.GetToken())
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, at, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, at, true
	case *ast.MergeKeyNode:
		c.fault(at, "repeat the keys, or use an alias for the whole value", "merging by << is not part of YAML 1.2 and not used in job files")
	default:
		c.fault(at, "write it as a plain word", "this kind of key (%s) is not used in job files", n.Type())
	}
	return "", at, false
}
