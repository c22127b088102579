package mcptasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A reply is a result of ours. It is encoded once, into one buffer of the right
// size, when it is written; the SDK would copy a big one five times.
type reply struct {
	mcp.ResultBase
	// members are the encoded members, without braces; may be empty.
	members []byte
	// result, if set, is the value of a further member "result"; inline, if set,
	// has its members among the reply's own.
	result, inline *toolResult
	// request is where a reply on a wrapped connection is kept until it is
	// written; nil = the SDK encodes it.
	request *request
}

// MarshalJSON implements [json.Marshaler] for the SDK. On a wrapped connection
// it returns a place holder.
func (r *reply) MarshalJSON() ([]byte, error) {
	if r.request.keep(r) {
		return []byte("{}"), nil
	}
	return r.encode()
}

// encode returns the whole result.
func (r *reply) encode() ([]byte, error) {
	var meta []byte
	if len(r.Meta) > 0 {
		var err error
		if meta, err = encode(r.Meta); err != nil {
			return nil, fmt.Errorf("encoding _meta: %w", err)
		}
	}
	b := make([]byte, 0, len(r.members)+len(meta)+r.result.size()+r.inline.size()+64)
	b = append(b, '{')
	b = append(b, r.members...)
	if r.inline != nil {
		b = r.inline.append(comma(b))
	}
	if r.result != nil {
		b = append(comma(b), `"result":{"resultType":"complete",`...)
		b = append(r.result.append(b), '}')
	}
	if meta != nil {
		b = append(comma(b), `"_meta":`...)
		b = append(b, meta...)
	}
	return append(b, '}'), nil
}

// comma separates a member from what is before it.
func comma(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' && b[len(b)-1] != ',' {
		b = append(b, ',')
	}
	return b
}

// A toolResult is a CallToolResult, encoded but for its plain texts, which are
// where the size is. Its _meta belongs to it only where it is nested.
type toolResult struct {
	content    []piece
	structured []byte
	isError    bool
	meta       []byte
}

// A piece of content is encoded, or a text.
type piece struct {
	encoded []byte
	text    *string
}

// newToolResult prepares a result; what cannot be encoded is found here.
func newToolResult(r *mcp.CallToolResult, nested bool) (*toolResult, error) {
	t := &toolResult{isError: r.IsError}
	for i, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok && text != nil && text.Annotations == nil && len(text.Meta) == 0 {
			t.content = append(t.content, piece{text: &text.Text})
			continue
		}
		encoded, err := encode(c)
		if err != nil || c == nil {
			return nil, fmt.Errorf("encoding content %d: %w", i, errors.Join(err, errNil(c)))
		}
		t.content = append(t.content, piece{encoded: encoded})
	}
	if r.StructuredContent != nil {
		var err error
		if t.structured, err = encode(r.StructuredContent); err != nil {
			return nil, fmt.Errorf("encoding structuredContent: %w", err)
		}
	}
	if nested && len(r.Meta) > 0 {
		var err error
		if t.meta, err = encode(r.Meta); err != nil {
			return nil, fmt.Errorf("encoding _meta: %w", err)
		}
	}
	return t, nil
}

func errNil(c mcp.Content) error {
	if c == nil {
		return errors.New("it is nil")
	}
	return nil
}

// size returns about how many bytes append adds.
func (t *toolResult) size() int {
	if t == nil {
		return 0
	}
	n := 128 + len(t.structured) + len(t.meta)
	for _, p := range t.content {
		n += 32 + len(p.encoded)
		if p.text != nil {
			n += quotedSize(*p.text)
		}
	}
	return n
}

// append appends the members.
func (t *toolResult) append(b []byte) []byte {
	b = append(b, `"content":[`...)
	for i, p := range t.content {
		if i > 0 {
			b = append(b, ',')
		}
		if p.text == nil {
			b = append(b, p.encoded...)
			continue
		}
		b = append(b, `{"type":"text","text":`...)
		b = append(appendQuoted(b, *p.text), '}')
	}
	b = append(b, ']')
	if t.structured != nil {
		b = append(b, `,"structuredContent":`...)
		b = append(b, t.structured...)
	}
	if t.isError {
		b = append(b, `,"isError":true`...)
	}
	if t.meta != nil {
		b = append(b, `,"_meta":`...)
		b = append(b, t.meta...)
	}
	return b
}

// quotedSize returns the number of bytes that appendQuoted adds at most.
func quotedSize(s string) int {
	n := len(s) + 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < ' ':
			n += 5
		}
	}
	return n
}

// appendQuoted appends a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, s[from:i]...), "\ufffd"...)
		} else {
			b = append(b, s[from:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}

// wireTask are the members of a task, SEP-2663 "Tasks".
type wireTask struct {
	TaskID         string         `json:"taskId"`
	Status         Status         `json:"status"`
	StatusMessage  string         `json:"statusMessage,omitempty"`
	CreatedAt      string         `json:"createdAt"`
	LastUpdatedAt  string         `json:"lastUpdatedAt"`
	TTLMs          *int64         `json:"ttlMs"`
	PollIntervalMs int64          `json:"pollIntervalMs,omitempty"`
	InputRequests  InputRequests  `json:"inputRequests,omitempty"`
	Error          *jsonrpc.Error `json:"error,omitempty"`
}

// newWireTask checks a snapshot of a store and leaves in it what the client may
// see.
func newWireTask(t Task, c *Client) (wireTask, error) {
	w := wireTask{TaskID: t.ID, Status: t.Status, StatusMessage: t.StatusMessage, CreatedAt: stamp(t.CreatedAt),
		LastUpdatedAt: stamp(t.LastUpdatedAt), PollIntervalMs: milliseconds(t.PollInterval)}
	if !validID(t.ID) {
		return w, fmt.Errorf("the server has a task with the malformed id %.100q", t.ID)
	}
	if t.TTL != nil {
		ms := milliseconds(*t.TTL)
		w.TTLMs = &ms
	}
	switch t.Status {
	case StatusWorking, StatusCompleted, StatusFailed, StatusCancelled:
	case StatusInputRequired:
		w.InputRequests = InputRequests{}
		for key, r := range t.InputRequests {
			if c.Allows(r) {
				w.InputRequests[key] = r
			}
		}
		if len(w.InputRequests) == 0 {
			w.Status = StatusWorking
		}
	default:
		return w, fmt.Errorf("the server has task %s in the unknown status %q", t.ID, t.Status)
	}
	return w, nil
}

// stamp writes a time as ISO 8601 in UTC, to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// validID reports whether an id is one that clients take.
func validID(id string) bool {
	if len(id) < 1 || len(id) > 1024 {
		return false
	}
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

// detailed returns the snapshot that tasks/get and notifications/tasks send;
// first are members to begin with.
func detailed(t Task, c *Client, first string) (*reply, error) {
	w, err := newWireTask(t, c)
	if err != nil {
		return nil, err
	}
	r := &reply{}
	switch w.Status {
	case StatusCompleted:
		if t.Result == nil {
			return nil, fmt.Errorf("the server has no result of task %s, which is completed", t.ID)
		}
		if r.result, err = newToolResult(t.Result, true); err != nil {
			return nil, fmt.Errorf("the result of task %s: %w", t.ID, err)
		}
	case StatusFailed:
		if t.Error == nil {
			return nil, fmt.Errorf("the server has no error of task %s, which has failed", t.ID)
		}
		w.Error = t.Error
	default: // the others have nothing more to send
	}
	if r.members, err = members(first, w); err != nil {
		return nil, err
	}
	r.Meta = copied(t.Meta)
	return r, nil
}

// members encodes a struct without its braces, after what is given.
func members(first string, v any) ([]byte, error) {
	b, err := encode(v)
	if err != nil {
		return nil, err
	}
	b = b[1 : len(b)-1]
	if first == "" {
		return b, nil
	}
	return append(comma([]byte(first)), b...), nil
}

// copied copies a _meta, because the SDK writes into that of a result.
func copied(meta map[string]any) map[string]any {
	if len(meta) == 0 {
		return nil
	}
	out := make(map[string]any, len(meta)+1)
	for k, v := range meta {
		out[k] = v
	}
	return out
}

// encode is json.Marshal without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
