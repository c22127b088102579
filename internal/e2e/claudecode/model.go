package claudecode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A Kind is the sort of a Turn.
type Kind string

// The kinds of turn.
const (
	Prompt       Kind = "prompt"       // the person typed it
	ToolResult   Kind = "tool_result"  // it answers a tool call of the model
	Notification Kind = "notification" // it holds a task notification
)

// A Turn is what the model is sent since its last answer.
type Turn struct {
	// Number counts the requests to the API, from 1.
	Number int
	Kind   Kind
	// Tool is the tool whose result this is.
	Tool string
	// Text is what the model reads, without system reminders other than task
	// notifications.
	Text string
	// Typed is the part of Text that the person typed; a notification may come
	// in the same turn.
	Typed string
	// System is the system prompt.
	System string
	// Side is true for requests that offer no tools, such as those for titles.
	Side bool
	// Body is the whole request.
	Body json.RawMessage
}

// A Block is one part of the model's answer: a text, or a call of a tool.
type Block struct {
	Text  string
	Tool  string
	Input json.RawMessage
}

// A Model answers turns. It is called by one goroutine at a time.
type Model func(Turn) []Block

// Obedient is a model that does what prompts tell it to:
//
//	CALL tool {json}    call a tool
//	AGENT tool {json}   have a subagent call it
//	STOP id             stop a background task
//
// and says back whatever else it reads, behind SAW-PROMPT, SAW-TOOL_RESULT or
// SAW-NOTIFICATION.
func Obedient(t Turn) []Block {
	if t.Side {
		return []Block{{Text: "ok"}}
	}
	if t.Kind != ToolResult {
		if tool, input, ok := command(t.Typed, "CALL "); ok {
			return []Block{{Tool: tool, Input: input}}
		}
		if tool, input, ok := command(t.Typed, "AGENT "); ok {
			return []Block{{Tool: "Agent", Input: object(map[string]any{
				"description": "a subagent", "subagent_type": "general-purpose",
				"prompt": fmt.Sprintf("CALL %s %s", tool, input),
			})}}
		}
		if _, id, ok := strings.Cut(t.Typed, "STOP "); ok {
			return []Block{{Tool: "TaskStop", Input: object(map[string]any{"task_id": strings.Fields(id)[0]})}}
		}
	}
	text := []rune(t.Text)
	return []Block{{Text: "SAW-" + strings.ToUpper(string(t.Kind)) + ": " + string(text[:min(len(text), 400)])}}
}

// command finds "verb tool {json}" in a text.
func command(text, verb string) (tool string, input json.RawMessage, ok bool) {
	_, rest, ok := strings.Cut(text, verb)
	if !ok {
		return "", nil, false
	}
	tool, rest, ok = strings.Cut(rest, " ")
	if !ok || json.NewDecoder(strings.NewReader(rest)).Decode(&input) != nil {
		return "", nil, false
	}
	return tool, input, true
}

func object(v map[string]any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the callers pass strings only
	}
	return data
}

// The Messages API, as far as Claude Code uses it.
type (
	request struct {
		Model    string            `json:"model"`
		Stream   bool              `json:"stream"`
		System   json.RawMessage   `json:"system"`
		Messages []message         `json:"messages"`
		Tools    []json.RawMessage `json:"tools"`
	}
	message struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	content struct {
		Type      string          `json:"type"`
		Text      string          `json:"text,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
		ToolUseID string          `json:"tool_use_id,omitempty"`
		Content   json.RawMessage `json:"content,omitempty"`
	}
)

// turn gathers what came after the last message of the model.
func (r *request) turn() Turn {
	t := Turn{Kind: Prompt, System: flatten(r.System), Side: len(r.Tools) == 0}
	from, tools := 0, map[string]string{}
	for i, m := range r.Messages {
		if m.Role != "assistant" {
			continue
		}
		from = i + 1
		for _, c := range contents(m.Content) {
			tools[c.ID] = c.Name
		}
	}
	var parts, typed []string
	for _, m := range r.Messages[from:] {
		for _, c := range contents(m.Content) {
			switch {
			case c.Type == "tool_result":
				if t.Kind != Notification {
					t.Kind = ToolResult
				}
				t.Tool = tools[c.ToolUseID]
				parts = append(parts, flatten(c.Content))
			case strings.Contains(c.Text, "<task-notification>"):
				t.Kind = Notification
				parts = append(parts, c.Text)
				typed = append(typed, aroundNotification(c.Text))
			case strings.HasPrefix(strings.TrimSpace(c.Text), "<system-reminder>"):
			case c.Text != "":
				parts = append(parts, c.Text)
				typed = append(typed, c.Text)
			default:
				parts = append(parts, "["+c.Type+"]")
			}
		}
	}
	t.Text, t.Typed = strings.Join(parts, "\n"), strings.Join(typed, "\n")
	return t
}

// aroundNotification is what stands in a text before and after a notification.
func aroundNotification(text string) string {
	before, rest, _ := strings.Cut(text, "[SYSTEM NOTIFICATION")
	_, after, _ := strings.Cut(rest, "</task-notification>")
	clean := strings.NewReplacer("<system-reminder>", "", "</system-reminder>", "").Replace
	return strings.TrimSpace(clean(before) + clean(after))
}

// contents reads a content value, which is a string or a list of blocks.
func contents(raw json.RawMessage) []content {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []content{{Type: "text", Text: text}}
	}
	var list []content
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// flatten gives the text of a content value.
func flatten(raw json.RawMessage) string {
	if len(bytes.TrimSpace(raw)) == 0 {
		return ""
	}
	var parts []string
	for _, c := range contents(raw) {
		if c.Text != "" {
			parts = append(parts, c.Text)
		} else if c.Type != "" {
			parts = append(parts, "["+c.Type+"]")
		}
	}
	return strings.Join(parts, "\n")
}
