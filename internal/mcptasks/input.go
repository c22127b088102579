package mcptasks

import "encoding/json"

// An InputRequest is something a server needs from the client's side, in a task
// or in a multi round-trip: in practice an elicitation, made by [Form] or
// [URL].
type InputRequest struct {
	Method string          `json:"method"` // "elicitation/create", "roots/list" or "sampling/createMessage"
	Params json.RawMessage `json:"params,omitempty"`
}

// InputRequests are open requests by key. Keys are the server's to choose.
type InputRequests map[string]InputRequest

// An InputResponse is a client's result for the request of the same key, as it
// was sent. [InputResponse.Elicitation] reads it.
type InputResponse json.RawMessage

// InputResponses are answers by key.
type InputResponses map[string]InputResponse

// An Action is what the person did with a question.
type Action string

// The actions of elicitation.
const (
	Accept  Action = "accept"  // answered; for a URL: agreed to open it
	Decline Action = "decline" // said no
	Cancel  Action = "cancel"  // closed it without an answer
)

// An Elicitation is the answer to an elicitation.
type Elicitation struct {
	Action Action
	// Content is the JSON object of the form, as sent; nil without one.
	// It has not been checked against the schema.
	Content json.RawMessage
}
