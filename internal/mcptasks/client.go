package mcptasks

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Client describes the sender of one request, by that request alone where the
// client speaks the 2026-07-28 revision, whose requests carry its capabilities
// in _meta; by its initialize request where it speaks an older one. It is valid
// while the request is served and must not be written to.
type Client struct {
	// Tasks: this request may be answered with a task.
	Tasks bool
	// TaskRequested: this tools/call must be answered with a task (the "task"
	// parameter of 2025-11-25). A plain result is turned into a task that is
	// complete from the start.
	TaskRequested bool
	// RequestedTTL is how long an older client asks to have the task kept; nil =
	// it did not say. The store may keep it for another time.
	RequestedTTL *time.Duration

	// Form and URL are the modes of elicitation that the client can show.
	Form, URL bool
	// Sampling and Roots are the other inputs it can give.
	Sampling, Roots bool

	// Legacy: the connection was opened by initialize, so the client speaks a
	// revision before 2026-07-28.
	Legacy bool
	// Protocol is the revision the request is served in, such as "2026-07-28".
	Protocol string
	// Name and Version are the client's own words; "" where it does not say.
	Name, Version string

	// ProgressToken is the token for notifications/progress, a string or a
	// number; nil = the client wants no progress.
	ProgressToken any
	// Meta is the request's _meta; may be nil.
	Meta map[string]any
	// Header is what the transport says about the request; may be nil. A
	// transport other than HTTP may use it to name the request.
	Header http.Header
	// Session is the SDK's session.
	Session *mcp.ServerSession

	request *request
}

// ClientFrom returns the sender of the request that ctx belongs to, or nil
// outside of a request that an attached extension serves. It is there for
// every method, so also in handlers of plain tools and of resources.
func ClientFrom(ctx context.Context) *Client {
	c, _ := ctx.Value(clientKey{}).(*Client)
	return c
}

type clientKey struct{}

// Allows reports whether the client can be asked this.
func (c *Client) Allows(r InputRequest) bool {
	switch r.Method {
	case "elicitation/create":
		var mode struct {
			Mode string `json:"mode"`
		}
		if json.Unmarshal(r.Params, &mode) != nil {
			return false
		}
		switch mode.Mode {
		case "", "form":
			return c.Form
		case "url":
			return c.URL
		}
	case "sampling/createMessage":
		return c.Sampling
	case "roots/list":
		return c.Roots
	}
	return false
}

// AfterWrite calls f once, after the reply to this request was handed to the
// operating system or could not be (err says why), or with
// [mcp.ErrConnectionClosed] when the connection ends without a reply. f must
// not block. It does nothing on a connection that [Extension.Wrap] did not
// wrap, and for a request that is already answered.
//
// For a snapshot sent by notifications/tasks there is no reply: there the
// callback that [Store.Watch] was given returns after the write.
func (c *Client) AfterWrite(f func(err error)) {
	c.request.afterWrite(f)
}

// Progress sends notifications/progress for the request, if the client asked
// for it: done must grow with each call; total 0 = unknown.
func (c *Client) Progress(ctx context.Context, done, total float64, message string) error {
	if c.ProgressToken == nil {
		return nil
	}
	return c.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: c.ProgressToken, Progress: done, Total: total, Message: message})
}
