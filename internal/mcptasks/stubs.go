package mcptasks

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const defaultTokenTTL = time.Hour

type request struct{}

func (r *request) afterWrite(func(error)) {}

type transport struct {
	ext   *Extension
	inner mcp.Transport
}

func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) { return t.inner.Connect(ctx) }
func (e *Extension) attach(*mcp.Server)                                  {}
func (e *Extension) addTool(*mcp.Server, *mcp.Tool, TaskSupport, Handler) {
}
func newMemoryTokens(max int, ttl time.Duration, now func() time.Time) Tokens { return nil }

// Form is a question by a form: message says what is asked, schema is a JSON
// Schema in the subset that elicitation allows (an object of plain fields).
func Form(message string, schema json.RawMessage) InputRequest { return InputRequest{} }

// URL is a question by a page that the person opens: the answer takes its way
// there, not through the client. id names it, unique in the server.
func URL(message, url, id string) InputRequest { return InputRequest{} }

// Elicitation reads the answer to a form or a URL.
func (r InputResponse) Elicitation() (Elicitation, error) { return Elicitation{}, nil }
