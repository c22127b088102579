package stdio

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzTransport feeds a session any bytes and then one good request: the session
// must live, answer it, and write nothing but JSON-RPC.
func FuzzTransport(f *testing.F) {
	traffic, err := os.ReadFile(filepath.Join("testdata", "traffic.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(traffic)
	for line := range bytes.Lines(traffic) {
		f.Add(line)
		f.Add(line[:len(line)/2])
	}
	for _, tt := range hostile {
		f.Add([]byte(tt.line + "\n"))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		const last = `"the last request"`
		in := io.MultiReader(bytes.NewReader(input), strings.NewReader("\n"+call(last, "echo", "{}")+"\n"))
		var out bytes.Buffer
		s := &session{entered: make(chan struct{}, 1<<16), release: make(chan struct{})}
		close(s.release)
		s.trans = New(in, &out, Options{Grace: 5 * time.Second})
		if err := s.trans.Serve(context.Background(), server(s), nil); err != nil {
			t.Fatalf("Serve returned %v", err)
		}
		answered := false
		for line := range bytes.Lines(out.Bytes()) {
			var m struct {
				JSONRPC string           `json:"jsonrpc"`
				ID      *json.RawMessage `json:"id"`
				Method  string           `json:"method"`
				Result  json.RawMessage  `json:"result"`
				Error   *struct {
					Code    int64  `json:"code"`
					Message string `json:"message"`
				} `json:"error"`
			}
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatalf("output %.200q: %v", line, err)
			}
			switch {
			case m.JSONRPC != "2.0":
				t.Fatalf("output %.200q has no version", line)
			case m.Error != nil && (m.Error.Code == 0 || m.Error.Message == ""):
				t.Fatalf("output %.200q has an empty error", line)
			case m.Method == "" && (m.Result == nil) == (m.Error == nil):
				t.Fatalf("output %.200q is no reply", line)
			}
			if m.ID != nil && string(*m.ID) == last {
				answered = true
			}
		}
		if !answered {
			t.Fatalf("the last request was not answered; output:\n%.2000s", out.Bytes())
		}
	})
}
