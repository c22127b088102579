package mcptasks

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
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

// The members of a request's _meta, 2026-07-28 "_meta".
const (
	metaProtocol     = "io.modelcontextprotocol/protocolVersion"
	metaInfo         = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

const (
	protocolModern = "2026-07-28"
	protocolTasks  = "2025-11-25" // the revision with the experimental tasks
)

// client describes the sender of a request.
func (e *Extension) client(req mcp.Request, r *request) *Client {
	c := &Client{request: r}
	c.Session, _ = req.GetSession().(*mcp.ServerSession)
	if extra := req.GetExtra(); extra != nil {
		c.Header = extra.Header
	}
	// A method without parameters has a nil pointer there.
	if p := req.GetParams(); p != nil && !reflect.ValueOf(p).IsNil() {
		c.Meta = p.GetMeta()
	}
	switch token := c.Meta["progressToken"].(type) {
	case string, float64, int, int64:
		c.ProgressToken = token
	}
	if c.Protocol, _ = c.Meta[metaProtocol].(string); c.Protocol >= protocolModern {
		c.fromMeta()
	} else {
		c.fromInitialize()
	}
	if c.mixed() {
		c.Tasks = false
	}
	return c
}

// fromMeta takes a request of 2026-07-28 at its word.
func (c *Client) fromMeta() {
	if info, ok := c.Meta[metaInfo].(map[string]any); ok {
		c.Name, _ = info["name"].(string)
		c.Version, _ = info["version"].(string)
	}
	caps, _ := c.Meta[metaCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, c.Tasks = extensions[ExtensionID].(map[string]any)
	_, c.Sampling = caps["sampling"].(map[string]any)
	_, c.Roots = caps["roots"].(map[string]any)
	if modes, ok := caps["elicitation"].(map[string]any); ok {
		_, c.Form = modes["form"].(map[string]any)
		_, c.URL = modes["url"].(map[string]any)
		c.Form = c.Form || !c.URL // none named means forms
	}
}

// fromInitialize takes what an older client said when it connected.
func (c *Client) fromInitialize() {
	c.Legacy, c.Protocol = true, ""
	if c.Session == nil {
		return
	}
	p := c.Session.InitializeParams()
	if p == nil {
		return
	}
	// The SDK answers with what was asked for if it is one of these, else with the
	// newest of them.
	switch c.Protocol = p.ProtocolVersion; c.Protocol {
	case "2024-11-05", "2025-03-26", "2025-06-18":
	default:
		c.Protocol = protocolTasks
	}
	if p.ClientInfo != nil {
		c.Name, c.Version = p.ClientInfo.Name, p.ClientInfo.Version
	}
	if caps := p.Capabilities; caps != nil {
		c.Sampling, c.Roots = caps.Sampling != nil, caps.RootsV2 != nil //nolint:staticcheck // deprecated, not gone: old clients have them
		if modes := caps.Elicitation; modes != nil {
			c.URL = modes.URL != nil
			c.Form = modes.Form != nil || !c.URL
		}
	}
}

// mixed reports whether this is a request of 2026-07-28 on a connection that was
// opened by initialize: such a connection has the older tasks, or none.
func (c *Client) mixed() bool {
	return !c.Legacy && c.request != nil && c.request.conn.initialized() != nil
}

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
