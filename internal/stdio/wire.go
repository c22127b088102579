package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// small is the size up to which a message is put together for one write.
const small = 64 << 10

// maxErrorText bounds the message of an error, in bytes: the SDK quotes whole
// parameters and method names in some.
const maxErrorText = 2048

// response returns a reply as pieces that make one line. The result is passed
// on as it is, not encoded again.
func response(id, result json.RawMessage, err error) [][]byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	if err != nil {
		text, merr := encode(wireError(err))
		if merr != nil {
			text = []byte(`{"code":-32603,"message":"the error could not be encoded"}`)
		}
		return [][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), text, []byte("}\n")}
	}
	if len(result) == 0 {
		result = json.RawMessage("{}")
	}
	return [][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), oneLine(result), []byte("}\n")}
}

// request returns a request (id not nil) or a notification as pieces that make
// one line.
func request(id json.RawMessage, method string, params json.RawMessage) ([][]byte, error) {
	quoted, err := encode(method)
	if err != nil {
		return nil, err
	}
	pieces := [][]byte{[]byte(`{"jsonrpc":"2.0"`)}
	if id != nil {
		pieces = append(pieces, []byte(`,"id":`), id)
	}
	pieces = append(pieces, []byte(`,"method":`), quoted)
	if len(params) > 0 {
		pieces = append(pieces, []byte(`,"params":`), oneLine(params))
	}
	return append(pieces, []byte("}\n")), nil
}

// oneLine returns JSON without line ends between its tokens.
func oneLine(raw json.RawMessage) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return []byte("null")
	}
	return b.Bytes()
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// wireError makes the error object of a reply. The SDK knows errors without a
// code, and quotes parameters in others.
func wireError(err error) *jsonrpc.Error {
	out := jsonrpc.Error{Message: err.Error()}
	if wire, ok := err.(*jsonrpc.Error); ok { //nolint:errorlint // the wrapped ones come next
		out = *wire
	} else if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		out.Code = wire.Code // the SDK gives up the data of a wrapped error, too
	}
	quoted := strings.Contains(out.Message, `unmarshaling "`)
	if out.Code == 0 || strings.Contains(out.Message, missingParams) {
		out.Code = codeOf(out.Message, quoted)
	}
	if quoted {
		out.Message = unquoted(out.Message)
	}
	out.Message = bounded(out.Message)
	return &out
}

// missingParams is how the SDK says that a request needs parameters.
const missingParams = `missing required "params"`

// codeOf tells the code of an error that the SDK gave none.
func codeOf(message string, quoted bool) int64 {
	switch {
	case quoted, strings.Contains(message, missingParams):
		return jsonrpc.CodeInvalidParams
	case strings.Contains(message, "is invalid during session initialization"),
		strings.HasPrefix(message, `duplicate "initialize"`):
		return jsonrpc.CodeInvalidRequest
	}
	return jsonrpc.CodeInternalError
}

// unquoted takes the parameters out of a message of the SDK, which has the form
// `…: unmarshaling "PARAMS" into a TYPE: CAUSE`.
func unquoted(message string) string {
	const begin, end = `unmarshaling "`, `" into a `
	before, _, _ := strings.Cut(message, begin)
	cause := ""
	if i := strings.LastIndex(message, end); i >= 0 {
		if _, after, ok := strings.Cut(message[i+len(end):], ": "); ok {
			cause = strings.TrimPrefix(after, "json: ")
		}
	}
	if len(cause) > 200 {
		cause = "a value has the wrong type"
	}
	return strings.TrimSuffix(before, ": ") + ": " + cause
}

// bounded shortens a text to maxErrorText bytes, at a character.
func bounded(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	cut := maxErrorText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
