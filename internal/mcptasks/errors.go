package mcptasks

import (
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// wireError returns an error as the SDK sends it unchanged: the SDK gives code 0
// to a plain error, and drops the data of a wrapped one.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	if wire, ok := err.(*jsonrpc.Error); ok { //nolint:errorlint // the wrapped ones come below
		return wire
	}
	wire := (*jsonrpc.Error)(nil)
	switch {
	case errors.As(err, &wire):
		return &jsonrpc.Error{Code: wire.Code, Message: err.Error(), Data: wire.Data}
	case errors.Is(err, ErrUnknownTask), errors.Is(err, ErrExpiredTask), errors.Is(err, ErrBadToken):
		return invalid("%s", err.Error())
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf(format, args...)}
}

func bug(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "a bug in the server: " + fmt.Sprintf(format, args...)}
}

// errUndeclared is the answer to a request that needs the extension and does
// not declare it, SEP-2663 "Capability Negotiation".
func errUndeclared() error {
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request does not declare the capability " + ExtensionID,
		Data:    []byte(`{"requiredCapabilities":{"extensions":{"` + ExtensionID + `":{}}}}`)}
}
