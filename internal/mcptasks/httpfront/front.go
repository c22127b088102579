// Package httpfront puts an MCP server behind HTTP on loopback for programs
// that speak nothing else: the official conformance suite. It is for tests
// only.
package httpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Serve serves the server, prints the URL on out, and returns at the end of
// standard input.
func Serve(server *mcp.Server, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	front := &http.Server{Handler: checkName(handler), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- front.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s/\n", listener.Addr()); err != nil {
		return fmt.Errorf("printing the URL: %w", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := front.Close(); err != nil {
		return fmt.Errorf("closing the front: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checkName refuses tasks requests whose Mcp-Name header is not the task's id,
// SEP-2663 "Routing Headers": the SDK checks it for its own methods only.
func checkName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				TaskID string `json:"taskId"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &m) // what is no message is the SDK's to refuse
		switch m.Method {
		case "tasks/get", "tasks/update", "tasks/cancel":
			if r.Header.Get("Mcp-Name") != m.Params.TaskID {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the header Mcp-Name is not the task's id"}}`,
					m.ID, mcp.CodeHeaderMismatch)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
