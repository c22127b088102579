package claudecode

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// An API stands in for the Anthropic Messages API on loopback. A [Model]
// answers every request, and every turn is kept, so that a test can see what
// the model was told.
type API struct {
	server *httptest.Server
	model  Model

	mu    sync.Mutex
	turns []Turn
	news  chan struct{} // closed and replaced when a turn arrives
}

// NewAPI starts an API that ends with the test.
func NewAPI(t testing.TB, model Model) *API {
	t.Helper()
	a := &API{model: model, news: make(chan struct{})}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// URL is the API's address.
func (a *API) URL() string { return a.server.URL }

// Turns are the turns of the conversations so far, side requests left out.
func (a *API) Turns() []Turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	var turns []Turn
	for _, t := range a.turns {
		if !t.Side {
			turns = append(turns, t)
		}
	}
	return turns
}

// Told waits until the model is sent a turn of this kind that holds all of the
// texts, and returns it. The test fails if that does not happen in time.
func (a *API) Told(t testing.TB, within time.Duration, kind Kind, texts ...string) Turn {
	t.Helper()
	timeout := time.After(within)
	for {
		a.mu.Lock()
		news := a.news
		a.mu.Unlock()
		if turn, ok := a.find(kind, texts); ok {
			return turn
		}
		select {
		case <-news:
		case <-timeout:
			t.Fatalf("within %v the model was not sent a %s with %q; it was sent:\n%s", within, kind, texts, a)
		}
	}
}

// Count is how many turns of this kind hold all of the texts.
func (a *API) Count(kind Kind, texts ...string) int {
	n := 0
	for _, t := range a.Turns() {
		if t.fits(kind, texts) {
			n++
		}
	}
	return n
}

// String lists the turns, shortened.
func (a *API) String() string {
	var b strings.Builder
	for _, t := range a.Turns() {
		fmt.Fprintf(&b, "%3d %-12s %.2000q\n", t.Number, t.Kind, t.Text)
	}
	return b.String()
}

func (a *API) find(kind Kind, texts []string) (Turn, bool) {
	for _, t := range a.Turns() {
		if t.fits(kind, texts) {
			return t, true
		}
	}
	return Turn{}, false
}

func (t Turn) fits(kind Kind, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(t.Text, text) {
			return false
		}
	}
	return t.Kind == kind
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		var req request
		if err := json.Unmarshal(body, &req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n, blocks := a.answer(&req, body)
		write(w, &req, n, blocks)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages/count_tokens":
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(body) / 4})
	case r.Method == http.MethodHead:
	default:
		writeJSON(w, http.StatusNotFound, map[string]any{"type": "error", "error": map[string]any{
			"type": "not_found_error", "message": "there is no " + r.URL.Path}})
	}
}

func (a *API) answer(req *request, body []byte) (int, []content) {
	a.mu.Lock()
	defer a.mu.Unlock()
	turn := req.turn()
	turn.Number, turn.Body = len(a.turns)+1, body
	a.turns = append(a.turns, turn)
	close(a.news)
	a.news = make(chan struct{})

	var blocks []content
	for i, b := range a.model(turn) {
		if b.Tool == "" {
			blocks = append(blocks, content{Type: "text", Text: b.Text})
			continue
		}
		blocks = append(blocks, content{Type: "tool_use", ID: fmt.Sprintf("toolu_fake_%04d_%d", turn.Number, i), Name: b.Tool, Input: b.Input})
	}
	return turn.Number, blocks
}

// write sends an answer, as server-sent events where the client asked for a
// stream.
func write(w http.ResponseWriter, req *request, n int, blocks []content) {
	stop := "end_turn"
	for _, b := range blocks {
		if b.Type == "tool_use" {
			stop = "tool_use"
		}
	}
	msg := map[string]any{"id": fmt.Sprintf("msg_fake_%04d", n), "type": "message", "role": "assistant", "model": req.Model,
		"content": blocks, "stop_reason": stop, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}
	if !req.Stream {
		writeJSON(w, http.StatusOK, msg)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	send := func(event string, v map[string]any) {
		v["type"] = event
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // every value above is of a kind that JSON has
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		_ = flush.Flush()
	}
	msg["content"], msg["stop_reason"] = []content{}, nil
	send("message_start", map[string]any{"message": msg})
	for i, b := range blocks {
		start, delta := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": b.Text}
		if b.Type == "tool_use" {
			start = map[string]any{"type": "tool_use", "id": b.ID, "name": b.Name, "input": map[string]any{}}
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(b.Input)}
		}
		send("content_block_start", map[string]any{"index": i, "content_block": start})
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil},
		"usage": map[string]any{"output_tokens": 10}})
	send("message_stop", map[string]any{})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
