package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// countingWriter counts and forgets.
type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

// allocated returns the bytes that f allocates, garbage included.
func allocated(f func()) uint64 {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The transport passes a result on as it was encoded: no copy at all.
func TestAResultIsNotCopied(t *testing.T) {
	const size = 10 << 20
	result := json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`)
	var out countingWriter
	trans := New(strings.NewReader(call("1", "echo", "{}")+"\n"), &out, Options{})
	c, err := trans.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := msg.(*jsonrpc.Request).ID
	used := allocated(func() {
		if err := c.Write(context.Background(), &jsonrpc.Response{ID: id, Result: result}); err != nil {
			t.Fatal(err)
		}
	})
	if used > size/10 {
		t.Errorf("a result of %d bytes took %d bytes", size, used)
	}
	if out.n < size {
		t.Errorf("%d bytes were written", out.n)
	}
	_ = c.Close()
	<-trans.conn.pumped
}

// A parameter is read into one growing buffer and never copied again by the
// transport; growth by doubling costs less than three times its size.
func TestAParameterIsCopiedOnce(t *testing.T) {
	const size = 10 << 20
	line := call("1", "echo", `{"a":"`+strings.Repeat("x", size)+`"}`) + "\n"
	var f *frame
	used := allocated(func() {
		var err error
		if f, err = readFrame(bufio.NewReaderSize(strings.NewReader(line), 64<<10), DefaultMaxFrame); err != nil {
			t.Fatal(err)
		}
	})
	if used > 7*size {
		t.Errorf("reading %d bytes took %d", size, used)
	}
	used = allocated(func() {
		m, no := split(f.line)
		if no != nil || len(m.params) < size {
			t.Fatalf("the line was refused: %+v", no)
		}
	})
	if used > size/10 {
		t.Errorf("taking %d bytes apart took %d", size, used)
	}
}

func BenchmarkResult10MB(b *testing.B) {
	const size = 10 << 20
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	result := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range response(json.RawMessage("1"), result, nil) {
			if _, err := io.Writer(null).Write(p); err != nil {
				b.Fatal(err)
			}
		}
	}
}
