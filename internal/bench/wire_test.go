//go:build bench

package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"jobd/internal/e2e/rig"
	"jobd/internal/ipc"
)

// A wire is one connection to a daemon, on which ready-made submissions are
// sent, so that the daemon is measured and not a client.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte
	out  []byte
}

var keys atomic.Int64

func dial(t testing.TB, r *rig.Rig) *wire {
	t.Helper()
	conn, err := net.Dial("unix", r.StateDir()+"/jobd.sock")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	body, err := json.Marshal(request(r, "true"))
	must(t, err)
	return &wire{conn: conn, r: bufio.NewReader(conn), body: body}
}

// submit makes a job and returns when it was told that it is on disk.
func (w *wire) submit(t testing.TB) {
	w.out = fmt.Appendf(w.out[:0], "POST /v1/jobs HTTP/1.1\r\nHost: jobd\r\n%s: %d\r\n%s: wire-%d\r\nContent-Length: %d\r\n\r\n%s",
		ipc.HeaderProtocol, ipc.Protocol, ipc.HeaderKey, keys.Add(1), len(w.body), w.body)
	if _, err := w.conn.Write(w.out); err != nil {
		t.Error(err)
		return
	}
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	reply, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a submission was answered with %s %s: %v", resp.Status, reply, err)
	}
}

// wires returns a function that submits over one of so many connections.
func wires(t testing.TB, r *rig.Rig, n int) func() {
	idle := make(chan *wire, n)
	for range n {
		idle <- dial(t, r)
	}
	return func() {
		w := <-idle
		w.submit(t)
		idle <- w
	}
}
