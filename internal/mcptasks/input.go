package mcptasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// An InputRequest is something a server needs from the client's side, in a task
// or in a multi round-trip: in practice an elicitation, made by [Form] or
// [URL].
type InputRequest struct {
	Method string          `json:"method"` // "elicitation/create", "roots/list" or "sampling/createMessage"
	Params json.RawMessage `json:"params,omitempty"`
}

// Form is a question by a form: message says what is asked, schema is a JSON
// Schema in the subset that elicitation allows (an object of plain fields).
func Form(message string, schema json.RawMessage) InputRequest {
	return elicitation(struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
	}{"form", message, schema})
}

// URL is a question by a page that the person opens: the answer takes its way
// there, not through the client. id names it, unique in the server.
func URL(message, url, id string) InputRequest {
	return elicitation(struct {
		Mode    string `json:"mode"`
		Message string `json:"message"`
		URL     string `json:"url"`
		ID      string `json:"elicitationId"`
	}{"url", message, url, id})
}

func elicitation(params any) InputRequest {
	raw, err := encode(params)
	if err != nil {
		raw = nil // a schema that is no JSON: no client allows it, so it is found as a bug
	}
	return InputRequest{Method: "elicitation/create", Params: raw}
}

// InputRequests are open requests by key. Keys are the server's to choose.
type InputRequests map[string]InputRequest

// An InputResponse is a client's result for the request of the same key, as it
// was sent. [InputResponse.Elicitation] reads it.
type InputResponse json.RawMessage

// MarshalJSON returns the response as it was sent.
func (r InputResponse) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// UnmarshalJSON keeps the response as it is.
func (r *InputResponse) UnmarshalJSON(data []byte) error {
	*r = InputResponse(bytes.Clone(data))
	return nil
}

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

// Elicitation reads the answer to a form or a URL. It fails where the action is
// none of the three or the content is no object.
func (r InputResponse) Elicitation() (Elicitation, error) {
	var wire struct {
		Action  Action          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(r, &wire); err != nil {
		return Elicitation{}, fmt.Errorf("reading the answer: %w", err)
	}
	switch wire.Action {
	case Accept, Decline, Cancel:
	default:
		return Elicitation{}, fmt.Errorf("the answer's action is %q, want accept, decline or cancel", wire.Action)
	}
	e := Elicitation{Action: wire.Action}
	if c := bytes.TrimSpace(wire.Content); len(c) > 0 && !bytes.Equal(c, []byte("null")) {
		if c[0] != '{' {
			return Elicitation{}, errors.New("the answer's content is not an object")
		}
		e.Content = wire.Content
	}
	return e, nil
}
