package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jobd/internal/ipc"
)

// resultFlags are the flags of "jobd result". Each but code stands for a way
// to set the result of the job that this runs in.
type resultFlags struct {
	text, file, mcp, raised *string
	json                    jsonFlag
	data                    string
	code                    int
}

// A jsonFlag is --json of "jobd result", which reads after an id and writes
// before a value.
type jsonFlag struct {
	set, afterID bool
	value        string // "" = the next argument
	args         func() []string
}

// String implements pflag.Value.
func (f *jsonFlag) String() string { return f.value }

// Type implements pflag.Value.
func (f *jsonFlag) Type() string { return "string" }

// Set implements pflag.Value.
func (f *jsonFlag) Set(value string) error {
	f.set, f.value, f.afterID = true, value, len(f.args()) > 0
	return nil
}

// newResultCommand returns "jobd result".
func newResultCommand(c *cli) *cobra.Command {
	var f resultFlags
	cmd := &cobra.Command{
		Use:   "result ID | result --text TEXT | --json VALUE | --file FILE | --mcp RESULT | --protocol-error MESSAGE",
		Short: "Print the result of a job; inside a job, set it",
		Long: `With an ID: prints the result that the job has set or, where it has set none, the
end of its output. A job of a shell then counts as read.

Inside a job, without an ID: sets the job's result, which whoever waits for the
job is given instead of its output. A later one replaces it. What a value of "-"
stands for is read from standard input.

  --text            text
  --json            one JSON value
  --file            the contents of a file: text, JSON (*.json), or an image
  --mcp             a whole CallToolResult of MCP, as JSON
  --protocol-error  the job is to end as a failed MCP task, with this message

Standard output of a reader: text as it is, JSON as it is, of a CallToolResult its
text. On a terminal text is made safe as 'jobd logs --help' says.`,
		Example: `  jobd result 3f2a9c1d
  jobd result 3f2a9c1d --json | jq .value
  jobd result --text "12 tests failed, see report.html"    # inside a job
  summarise | jobd result --json -                         # inside a job
  jobd result --file chart.png                             # inside a job
  jobd result --protocol-error "no such branch" --code -32602`,
		ValidArgsFunction: completeJobs(c, final),
		RunE: func(cmd *cobra.Command, args []string) error {
			return result(cmd, c, f, args)
		},
	}
	flags := cmd.Flags()
	f.json.args = flags.Args
	f.text = flags.String("text", "", "set the result to `TEXT`")
	f.file = flags.String("file", "", "set the result to what is in `FILE`")
	f.mcp = flags.String("mcp", "", "set the result to the CallToolResult `RESULT`")
	f.raised = flags.String("protocol-error", "", "fail the task with `MESSAGE`")
	flags.IntVar(&f.code, "code", -32000, "the JSON-RPC error `code` of --protocol-error")
	flags.StringVar(&f.data, "data", "", "the JSON `VALUE` that is the data of --protocol-error")
	flags.Var(&f.json, "json", "set the result to the JSON `VALUE`; after an ID: print it as a JSON object")
	// The value may be missing, as it is when a result is read.
	flags.Lookup("json").NoOptDefVal = "\x00"
	return cmd
}

func result(cmd *cobra.Command, c *cli, f resultFlags, args []string) error {
	setting := 0
	for _, name := range []string{"text", "file", "mcp", "protocol-error"} {
		if cmd.Flags().Changed(name) {
			setting++
		}
	}
	reading := f.json.set && (f.json.afterID || c.getenv("JOBD_JOB_ID") == "")
	if f.json.set && !reading {
		setting++
		if f.json.value == "\x00" {
			if len(args) == 0 {
				args = []string{"-"}
			}
			f.json.value, args = args[0], args[1:]
		}
	}
	switch {
	case setting > 1:
		return usagef(cmd, "--text, --json, --file, --mcp and --protocol-error exclude each other")
	case setting == 1 && len(args) > 0:
		return usagef(cmd, "%q is too much: the result of this job is set, so no job is named", args[0])
	case setting == 1:
		return setResult(cmd.Context(), c, cmd.Flags(), f)
	case cmd.Flags().Changed("code"):
		return usagef(cmd, "--code goes with --protocol-error")
	case cmd.Flags().Changed("data"):
		return usagef(cmd, "--data goes with --protocol-error")
	case len(args) == 0 && c.getenv("JOBD_JOB_ID") != "":
		return usagef(cmd, "say what the result of this job is, for example: jobd result --text done; or name another job")
	}
	if err := oneID(cmd, args); err != nil {
		return err
	}
	return readResult(cmd.Context(), c, args[0], f.json.set)
}

// setResult sets the result of the job that this process runs in.
func setResult(ctx context.Context, c *cli, flags *pflag.FlagSet, f resultFlags) error {
	job, err := insideJob(c, "result")
	if err != nil {
		return err
	}
	r := ipc.SetResultRequest{Job: job}
	switch {
	case flags.Changed("text"):
		r.Kind = "text"
		r.Body, err = valueOrInput(c, *f.text)
	case f.json.set:
		r.Kind = "json"
		r.Body, err = valueOrInput(c, f.json.value)
		if err == nil && !json.Valid(r.Body) {
			err = fmt.Errorf("the value of --json is not one JSON value: %s", clipped(r.Body))
		}
	case flags.Changed("mcp"):
		r.Kind = "mcp"
		r.Body, err = valueOrInput(c, *f.mcp)
	case flags.Changed("protocol-error"):
		r.Kind = "error"
		if flags.Changed("data") && !json.Valid([]byte(f.data)) {
			return fmt.Errorf("the value of --data is not one JSON value: %s", clipped([]byte(f.data)))
		}
		var message []byte
		if message, err = valueOrInput(c, *f.raised); err == nil {
			r.Body, err = json.Marshal(struct {
				Code    int             `json:"code"`
				Message string          `json:"message"`
				Data    json.RawMessage `json:"data,omitempty"`
			}{f.code, string(message), json.RawMessage(f.data)})
		}
	default:
		r.Kind, r.Body, err = resultOfFile(c, *f.file)
	}
	if err != nil {
		return err
	}
	d, err := c.connect(ctx, false)
	if err != nil {
		return err
	}
	var p patient
	for {
		err := d.SetResult(ctx, r)
		if !p.again(ctx, err) {
			return err
		}
	}
}

// maxResult bounds what is read for a result, in bytes. The daemon may take
// less.
const maxResult = 64 << 20

// valueOrInput returns a flag's value, or the standard input for "-".
func valueOrInput(c *cli, value string) ([]byte, error) {
	if value != "-" {
		return []byte(value), nil
	}
	return readAll(c.in, "standard input")
}

func readAll(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(b) > maxResult {
		return nil, fmt.Errorf("%s holds more than %s, which no result does; leave it in a file and name that", name, size(maxResult))
	}
	return b, nil
}

// resultOfFile makes a result of a file's contents: JSON by its name, an image
// by what it holds, else text.
func resultOfFile(c *cli, name string) (kind string, body []byte, err error) {
	in := c.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", nil, fmt.Errorf("reading the result: %w", err)
		}
		defer file.Close()
		in = file
	}
	b, err := readAll(in, name)
	if err != nil {
		return "", nil, err
	}
	switch mime := http.DetectContentType(b); {
	case strings.HasSuffix(name, ".json") && json.Valid(b):
		return "json", b, nil
	case mime == "image/png" || mime == "image/jpeg" || mime == "image/gif" || mime == "image/webp":
		image := struct {
			Type     string `json:"type"`
			Data     string `json:"data"`
			MimeType string `json:"mimeType"`
		}{"image", base64.StdEncoding.EncodeToString(b), mime}
		body, err := json.Marshal(map[string]any{"content": []any{image}})
		return "mcp", body, err
	case utf8.Valid(b) && !bytes.ContainsRune(b, 0):
		return "text", b, nil
	default:
		return "", nil, fmt.Errorf("%s holds %s, which no result can; set a text that names the file instead", name, mime)
	}
}

// clipped quotes the start of a text.
func clipped(b []byte) string {
	const most = 60
	if len(b) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(string(b[:most]), ""))
	}
	return fmt.Sprintf("%q", b)
}

// A readResultJSON is what "jobd result ID --json" prints.
type readResultJSON struct {
	Job ipc.Job `json:"job"`
	// Kind is text, json, mcp, error, or output for a job that set no result.
	Kind string `json:"kind"`
	// Text holds a text, and the end of the output.
	Text *string `json:"text,omitempty"`
	// Value holds JSON: a value, a CallToolResult, or code and message of an
	// error.
	Value json.RawMessage `json:"value,omitempty"`
}

// readResult prints the result of a job.
func readResult(ctx context.Context, c *cli, id string, asJSON bool) error {
	d, err := c.reach(ctx)
	if err != nil {
		return err
	}
	r, err := d.Result(ctx, ipc.GetRequest{ID: id})
	if err != nil {
		return err
	}
	if !r.Job.Final {
		id := shortID(r.Job.ID)
		return withCode(exitLive, fmt.Errorf("job %s is still %s and has no result yet; wait for it with: jobd wait %s", id, r.Job.State, id))
	}
	if asJSON {
		err = printJSON(c.out, resultJSON(r))
	} else {
		err = printResult(c, r)
	}
	if err == nil {
		delivered(ctx, d, r.Job)
	}
	return err
}

func resultJSON(r ipc.Result) readResultJSON {
	j := readResultJSON{Job: filled(r.Job), Kind: r.Job.ResultKind}
	text := string(r.Body)
	switch {
	case len(r.Body) == 0 && j.Kind != "text":
		j.Kind, text = "output", string(r.Tail.Data)
	case j.Kind != "text" && json.Valid(r.Body):
		j.Value = r.Body
		return j
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	j.Text = &text
	return j
}

// printResult prints a result for people and pipes.
func printResult(c *cli, r ipc.Result) (err error) {
	out := newSafeWriter(c.out, c.screen, false)
	defer func() { err = errors.Join(err, out.Close()) }()
	var text string
	switch kind := r.Job.ResultKind; {
	case kind == "error":
		var raised struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(r.Body, &raised); err != nil {
			return fmt.Errorf("reading the job's error: %w", err)
		}
		text = fmt.Sprintf("error %d: %s", raised.Code, raised.Message)
	case kind == "mcp":
		if text, err = contentText(r.Body); err != nil {
			return err
		}
	case kind != "":
		text = string(r.Body)
	default:
		if r.Tail.Offset > 0 {
			fmt.Fprintf(c.err, "jobd: the last %s of output; all of it: jobd logs %s\n", size(int64(len(r.Tail.Data))), shortID(r.Job.ID))
		}
		text = string(r.Tail.Data)
	}
	if r.Job.State != "succeeded" {
		fmt.Fprintf(c.err, "jobd: job %s %s: %s\n", shortID(r.Job.ID), strings.ReplaceAll(r.Job.State, "_", " "), safeLine(r.Job.Reason))
	}
	if text != "" && !strings.HasSuffix(text, "\n") && r.Job.ResultKind != "" {
		text += "\n"
	}
	_, err = io.WriteString(out, text)
	return err
}

// contentText returns the text of a CallToolResult, and names what is no text.
func contentText(body []byte) (string, error) {
	var r struct {
		Content []struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			MimeType string `json:"mimeType"`
			URI      string `json:"uri"`
			Data     string `json:"data"`
		} `json:"content"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return "", fmt.Errorf("reading the job's result: %w", err)
	}
	var parts []string
	for _, block := range r.Content {
		switch {
		case block.Type == "text":
			parts = append(parts, block.Text)
		case block.URI != "":
			parts = append(parts, "["+block.Type+": "+block.URI+"]")
		default:
			parts = append(parts, fmt.Sprintf("[%s %s, %s; jobd result ID --json gives it]", block.Type, block.MimeType,
				size(int64(base64.StdEncoding.DecodedLen(len(block.Data))))))
		}
	}
	return strings.Join(parts, "\n"), nil
}
