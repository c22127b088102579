package frontend

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const toolReadOutput = "read_job_output"

// maxPiece is the most that one call reads, in bytes.
const maxPiece = 20_000

var readOutputParams = []param{
	jobIDParam,
	{name: "offset", kind: anInteger, min: 0, max: 1 << 53, example: `0`,
		about: "Where to begin, in bytes. Default: the end of the output is shown."},
	{name: "limit", kind: anInteger, min: 1, max: maxPiece, example: `20000`,
		about: "At most so many bytes. Default: 16000."},
	{name: "tail_lines", kind: anInteger, min: 1, max: 10_000, example: `50`,
		about: "The last lines, instead of offset."},
}

// readOutputTool reads what a job printed.
func (f *Frontend) readOutputTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolReadOutput, Title: "Read a job's output",
			Description: "What a background job printed (stdout and stderr): the end of it, or a piece from an offset on. Works while it runs.",
			InputSchema: schemaOf(readOutputParams),
			Annotations: &mcp.ToolAnnotations{Title: "Read a job's output", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no()},
		},
		support: mcptasks.TaskForbidden,
		handle:  f.readOutput,
	}
}

func (f *Frontend) readOutput(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	a := struct {
		ID     string `json:"job_id"`
		Offset *int64 `json:"offset"`
		Limit  int    `json:"limit"`
		Lines  int    `json:"tail_lines"`
	}{Limit: maxOutput}
	if err := decode(toolReadOutput, readOutputParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	if a.Offset != nil && a.Lines > 0 {
		return mcptasks.Result(toolError("read_job_output got both offset and tail_lines; send one: offset to read on from a place, tail_lines for the end.")), nil
	}
	r := ipc.OutputRequest{ID: a.ID, Limit: a.Limit, Lines: a.Lines}
	switch {
	case a.Offset != nil:
		r.Offset = *a.Offset
	case a.Lines == 0:
		r.Lines = 10_000 // as many as the limit allows
	}
	out, err := f.daemon.Output(ctx, r)
	if err != nil {
		return mcptasks.Result(toolError(jobError(err, a.ID))), nil
	}
	f.catalog.daemonSeen()
	return mcptasks.Result(&mcp.CallToolResult{Content: []mcp.Content{text(piece(out, r, short(a.ID)))}}), nil
}

// piece shows a piece of output with the offsets to read on from.
func piece(out ipc.Output, r ipc.OutputRequest, id string) string {
	data := out.Data
	if !out.End || out.Next < out.Total {
		// A character that is cut at the end belongs to the next piece.
		for i := 1; i < utf8.UTFMax && i < len(data); i++ {
			if last := data[len(data)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					data = data[:len(data)-i]
				}
				break
			}
		}
	}
	next := out.Next - int64(len(out.Data)-len(data))
	var b strings.Builder
	if out.Total == 0 {
		if out.End {
			return "The job printed nothing."
		}
		return "The job has printed nothing yet."
	}
	fmt.Fprintf(&b, "Bytes %d to %d of %d of the output of job %s.", out.Offset, next, out.Total, id)
	if out.Gap > 0 {
		fmt.Fprintf(&b, " %s bytes before them were not kept.", number(out.Gap))
	} else if out.Dropped > 0 {
		fmt.Fprintf(&b, " %s bytes in the middle of the output were not kept.", number(out.Dropped))
	}
	switch {
	case next < out.Total:
		fmt.Fprintf(&b, " Read on: {\"job_id\":%q,\"offset\":%d}.", id, next)
	case out.End:
		b.WriteString(" This is the end.")
	default:
		fmt.Fprintf(&b, " The job still runs; what it prints next: {\"job_id\":%q,\"offset\":%d}.", id, next)
	}
	if r.Lines > 0 && out.Offset > 0 {
		fmt.Fprintf(&b, " From the beginning: {\"job_id\":%q,\"offset\":0}.", id)
	}
	if len(data) == 0 {
		return b.String()
	}
	return b.String() + "\n" + fenced(clean(string(data)))
}
