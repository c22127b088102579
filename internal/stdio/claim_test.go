//go:build linux || darwin

package stdio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asServer makes the test binary a server, so that the tests below have a real
// process with real descriptors.
const asServer = "STDIO_TEST_SERVER"

func init() {
	if os.Getenv(asServer) == "" {
		return
	}
	in, out, err := Claim()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Println("noise by fmt")
	println("noise by println")
	child := exec.Command("sh", "-c", "echo noise by a child; cat")
	child.Stdin, child.Stdout = os.Stdin, os.Stdout
	if err := child.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "noise", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, _ = os.Stdout.WriteString("noise by a tool\n")
		return &mcp.CallToolResult{}, nil
	})
	if err := New(in, out, Options{}).Serve(context.Background(), s, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	os.Exit(0)
}

func serverProcess(t *testing.T) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), asServer+"=1")
	return cmd
}

func TestOnlyMCPReachesStandardOutput(t *testing.T) {
	cmd := serverProcess(t)
	cmd.Stdin = strings.NewReader(call("1", "noise", "{}") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("the server ended with %v: %s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSuffix(string(stdout), "\n"), "\n")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `{"jsonrpc":"2.0","id":1,"result":`) {
		t.Errorf("standard output:\n%s", stdout)
	}
	for _, noise := range []string{"noise by fmt", "noise by println", "noise by a child", "noise by a tool"} {
		if !strings.Contains(stderr.String(), noise) {
			t.Errorf("standard error lacks %q:\n%s", noise, stderr.String())
		}
	}
}

func TestAClosedStandardOutputEndsTheProcessWithAnError(t *testing.T) {
	cmd := serverProcess(t)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	if _, err := io.WriteString(stdin, call("1", "noise", "{}")+"\n"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its input is still open
	stdin.Close()
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(stderr.String(), "writing the output") {
		t.Errorf("%v (exit code %d), want exit code 4; standard error: %s", cmd.ProcessState, code, stderr.String())
	}
}
