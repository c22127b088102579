package stdio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Limits of what is taken as a message.
const (
	maxDepth    = 500  // of objects and arrays in each other; the SDK fails at 1000
	maxStringID = 1024 // bytes of an id as it stands in the line
	maxNumberID = 64
)

// A message is one line, taken apart but not decoded: its parts are slices of
// the line.
type message struct {
	id     json.RawMessage // nil = absent
	method json.RawMessage
	params json.RawMessage
	result json.RawMessage
	err    json.RawMessage
	tag    json.RawMessage // "jsonrpc"
}

// A refusal is the answer to a line that is no message.
type refusal struct {
	id      json.RawMessage // nil = it has none that can be used
	code    int64
	message string
}

// split takes a line apart. It returns a nil message and a nil refusal for a
// line that is to be ignored.
func split(line []byte) (*message, *refusal) {
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	line = bytes.Trim(line, " \t\r\n")
	if len(line) == 0 {
		return nil, nil
	}
	deep := depth(line) > maxDepth
	if !deep && !json.Valid(line) {
		return nil, &refusal{nil, jsonrpc.CodeParseError, "the line is not valid JSON"}
	}
	switch {
	case line[0] == '[':
		return nil, &refusal{nil, jsonrpc.CodeInvalidRequest, "batches are not supported: send one message a line"}
	case line[0] != '{':
		return nil, &refusal{nil, jsonrpc.CodeInvalidRequest, "the line is not a JSON object"}
	}
	m := &message{}
	twice := ""
	members(line, func(key string, value []byte) {
		var part *json.RawMessage
		switch key {
		case "id":
			part = &m.id
		case "method":
			part = &m.method
		case "params":
			part = &m.params
		case "result":
			part = &m.result
		case "error":
			part = &m.err
		case "jsonrpc":
			part = &m.tag
		default:
			return
		}
		if *part != nil {
			twice = key
		}
		*part = value
	})
	switch {
	case twice == "id":
		return nil, &refusal{nil, jsonrpc.CodeInvalidRequest, `"id" is there twice`}
	case twice != "":
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, fmt.Sprintf("%q is there twice", twice)}
	case deep:
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is nested deeper than %d levels", maxDepth)}
	case !utf8.Valid(line):
		// Replaced characters would make another message of it, a command with
		// another file name say. The id is echoed where it can be read, for a
		// client waits for it.
		return nil, &refusal{echo(m.id), jsonrpc.CodeParseError, "the line is not valid UTF-8"}
	case m.method == nil && (m.result != nil || m.err != nil):
		return m, nil // a response: never answered, whatever is wrong with it
	case string(m.tag) != `"2.0"`:
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, `"jsonrpc" is not "2.0"`}
	case m.method == nil:
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, `the message has no "method"`}
	case m.method[0] != '"':
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, `"method" is not a string`}
	case m.id == nil:
		return m, nil
	}
	if _, ok := parseID(m.id); !ok {
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidRequest, `"id" is neither a string of at most 1024 bytes nor an integer of 64 bits`}
	}
	if m.params != nil && m.params[0] != '{' && string(m.params) != "null" {
		return nil, &refusal{echo(m.id), jsonrpc.CodeInvalidParams, `"params" is not an object`}
	}
	return m, nil
}

// depth returns how deep the objects and arrays of a JSON text are nested.
func depth(text []byte) int {
	now, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			if i = endOfString(text, i); i < 0 {
				return deepest
			}
			i--
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// members calls yield for each member of the object that text begins with, and
// stops where text is no JSON. Neither decodes nor copies a value.
func members(text []byte, yield func(key string, value []byte)) {
	i := blanks(text, 1)
	for i < len(text) && text[i] == '"' {
		end := endOfString(text, i)
		if end < 0 {
			return
		}
		key := unquote(text[i:end])
		if i = blanks(text, end); i >= len(text) || text[i] != ':' {
			return
		}
		i = blanks(text, i+1)
		if end = endOfValue(text, i); end < 0 {
			return
		}
		yield(key, text[i:end:end])
		if i = blanks(text, end); i >= len(text) || text[i] != ',' {
			return
		}
		i = blanks(text, i+1)
	}
}

// blanks returns the index of the first byte at or after i that is no blank.
func blanks(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

// endOfString returns the index after the string that begins at i, or -1.
func endOfString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// endOfValue returns the index after the value that begins at i, or -1.
func endOfValue(text []byte, i int) int {
	begin, open := i, 0
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			if i = endOfString(text, i); i < 0 {
				return -1
			}
			if open == 0 {
				return i
			}
			i--
		case '{', '[':
			open++
		case '}', ']':
			if open == 0 {
				return i // the end of the object that the value is in
			}
			if open--; open == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if open == 0 {
				if i == begin {
					return -1
				}
				return i
			}
		}
	}
	return -1
}

// unquote decodes a JSON string; what is none becomes "".
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && len(quoted) >= 2 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s)
	return s
}

// The SDK's ids hold integers exactly up to this.
const maxExactID = 1 << 53

// parseID returns the id that stands for this one inside of the SDK. Strings and
// integers stay what they are, but for integers that the SDK would round: they
// become strings that begin with NUL, and so does a string that begins with it.
// What a client sees is always the id as it stood in its line.
func parseID(raw []byte) (jsonrpc.ID, bool) {
	if len(raw) == 0 {
		return jsonrpc.ID{}, false
	}
	if raw[0] == '"' {
		if len(raw) > maxStringID+2 {
			return jsonrpc.ID{}, false
		}
		s := unquote(raw)
		if strings.HasPrefix(s, "\x00") {
			s = "\x00" + s
		}
		id, err := jsonrpc.MakeID(s)
		return id, err == nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return jsonrpc.ID{}, false
	}
	var stand any = float64(n)
	if n > maxExactID || n < -maxExactID {
		stand = "\x00" + string(raw)
	}
	id, err := jsonrpc.MakeID(stand)
	return id, err == nil
}

// echo returns the id for an error reply: any string or number that is not
// too long, even where it cannot be the id of a request.
func echo(raw json.RawMessage) json.RawMessage {
	switch {
	case len(raw) == 0:
	case raw[0] == '"' && len(raw) <= maxStringID+2 && utf8.Valid(raw):
		return raw
	case (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') && len(raw) <= maxNumberID && json.Valid(raw):
		return raw
	}
	return nil
}

// lastID finds the id at the end of a JSON object. It is for a line too long to
// be kept: its last brace closes the message itself, so an id just before it is
// the message's.
var lastID = regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?[0-9]{1,19}|"[^"\\]{0,256}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)

// idOfLong finds the id of a message of which only the first and the last bytes
// are known; nil = it is not there.
func idOfLong(head, tail []byte) json.RawMessage {
	if len(head) == 0 || head[0] != '{' {
		return nil
	}
	var id json.RawMessage
	members(head, func(key string, value []byte) {
		if key == "id" {
			id = value
		}
	})
	if id == nil {
		if found := lastID.FindSubmatch(tail); found != nil {
			id = found[1]
		}
	}
	if _, ok := parseID(id); !ok {
		return nil
	}
	return bytes.Clone(echo(id))
}
