//go:build bench

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"

// start measures how long a client waits for its server: from the start of the
// process to the answer to server/discover.
func (b *bench) start(t *testing.T) {
	node := os.Getenv("BENCH_NODE")
	if node == "" {
		t.Fatal("BENCH_NODE names no server to compare with; run: make bench")
	}
	r := rig.New(t)
	var ours, theirs sample
	var ourMemory, theirMemory memory
	for range n(40) {
		for range 5 {
			ours = append(ours, discovered(t, r.Command(t.Context(), "mcp-stdio"), &ourMemory))
		}
		cmd := exec.CommandContext(t.Context(), "node", node)
		cmd.Env = r.Env()
		theirs = append(theirs, discovered(t, cmd, &theirMemory))
	}
	b.page.table("start", []string{"server", "p50", "p99", "RSS", "PSS"},
		[]string{"mcp-stdio", show(ours.p50()), show(ours.p99()), mib(ourMemory.rss), mib(ourMemory.pss)},
		[]string{"Node " + version("node", "--version") + ", `" + os.Getenv("BENCH_NODE_SERVER") + "`", show(theirs.p50()), show(theirs.p99()), mib(theirMemory.rss), mib(theirMemory.pss)})
	b.page.aim("start of mcp-stdio → `server/discover` answered, p50", "≤ 10 ms", show(ours.p50()), ours.p50() <= 10*time.Millisecond)
	b.page.aim("the same against a Node server", "≥ 20× faster", fmt.Sprintf("%.0f×", ratio(theirs.p50(), ours.p50())), ratio(theirs.p50(), ours.p50()) >= 20)
}

// discovered runs a server until it has answered, and looks at its memory.
func discovered(t testing.TB, cmd *exec.Cmd, m *memory) time.Duration {
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	began := time.Now()
	must(t, cmd.Start())
	_, err = io.WriteString(stdin, discover)
	must(t, err)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	took := time.Since(began)
	if err != nil || len(line) < 100 {
		t.Fatalf("%s answered %q: %v", cmd.Path, line, err)
	}
	*m = memoryOf(t, cmd.Process.Pid)
	_ = stdin.Close()
	// A server need not end with its input.
	kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
	return took
}

// call measures run_job over mcp-stdio: from the call to a handle that survives
// a power failure.
func (b *bench) call(t *testing.T) {
	r, c := b.daemon(t, "answer_within: 0s", "max_running: 1")
	block(t, r, c)
	f := r.Front("bench")
	sync, done := fsyncer(t, r.Dir)
	defer done()
	var pings, fsyncs, handles, gets sample
	for i := range n(1000) {
		pings.timed(func() { f.Call("ping", nil) })
		fsyncs.timed(sync)
		var id string
		handles.timed(func() { id = f.Run(map[string]any{"argv": []string{"true", fmt.Sprint(i)}}) })
		for range 3 {
			gets.timed(func() { f.Task(id) })
		}
	}
	floor := pings.p50() + fsyncs.p50()
	b.page.table("call", []string{"request over stdio", "p50", "p99", "a second"},
		row("`ping`, which 2026-07-28 knows no more and is refused: the way to and from mcp-stdio", pings), row("append 4 KiB, fsync, in turns with the others", fsyncs),
		row("`tools/call` of `run_job` → durable handle (`answer_within: 0s`)", handles), row("`tasks/get`", gets))
	b.page.aim("`tools/call` → durable handle, p50", "≤ 3 × (fsync + ping)", fmt.Sprintf("%.1f × (%s)", ratio(handles.p50(), floor), show(handles.p50())), handles.p50() <= 3*floor)

	// Many calls at once over the one connection.
	var rows [][]string
	for _, flight := range []int{1, 8, 64} {
		all, perSecond := inFlightFront(t, f, flight, n(2000))
		rows = append(rows, []string{fmt.Sprint(flight), show(all.p50()), show(all.p99()), rate(perSecond)})
	}
	b.page.table("flight", []string{"`tools/call` in flight over one stdio connection", "p50", "p99", "handles a second"}, rows...)
}

func inFlightFront(t testing.TB, f *rig.Front, flight, times int) (sample, float64) {
	var mu sync.Mutex
	i := 0
	return inFlight(flight, times, func() {
		mu.Lock()
		i++
		arguments := map[string]any{"argv": []string{"true", fmt.Sprint(flight, i)}}
		mu.Unlock()
		m := <-f.Start("tools/call", map[string]any{"name": "run_job", "arguments": arguments})
		if m.Error != nil || len(m.Result) == 0 {
			t.Errorf("run_job was answered with %s", m.Line)
		}
	})
}

// polling measures tasks/get while fifty clients poll.
func (b *bench) polling(t *testing.T) {
	const clients = 50
	r, _ := b.daemon(t, "answer_within: 0s", "max_running: 100")
	fronts := make([]*rig.Front, clients)
	tasks := make([]string, clients)
	for i := range fronts {
		fronts[i] = r.Front(fmt.Sprint("bench-", i))
		tasks[i] = fronts[i].Run(map[string]any{"argv": []string{"sleep", fmt.Sprint(3600 + i)}})
	}
	daemon := r.Daemon()
	measure := func(pause time.Duration, length time.Duration) (sample, float64, time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var mu sync.Mutex
		var all sample
		var wg sync.WaitGroup
		cpu := cpuOf(t, daemon)
		for i, f := range fronts {
			wg.Go(func() {
				var own sample
				// They do not poll in step.
				for next := time.After(pause * time.Duration(i) / clients); ; next = time.After(pause) {
					select {
					case <-ctx.Done():
						mu.Lock()
						all = append(all, own...)
						mu.Unlock()
						return
					case <-next:
						own.timed(func() { f.Task(tasks[i]) })
					}
				}
			})
		}
		wg.Wait()
		return all, float64(len(all)) / length.Seconds(), cpuOf(t, daemon) - cpu
	}
	length := 10 * time.Second
	if testing.Short() {
		length = 2 * time.Second
	}
	polled, polledRate, polledCPU := measure(500*time.Millisecond, length)
	flat, flatRate, flatCPU := measure(0, length/2)
	share := func(cpu, length time.Duration) string {
		return fmt.Sprintf("%.1f %%", 100*float64(cpu)/float64(length))
	}
	b.page.table("polling", []string{"50 clients, each with a mcp-stdio and a task", "p50", "p99", "a second", "CPU of jobd"},
		[]string{"`tasks/get` every 500 ms, as they are told to", show(polled.p50()), show(polled.p99()), rate(polledRate), share(polledCPU, length)},
		[]string{"`tasks/get` without a pause", show(flat.p50()), show(flat.p99()), rate(flatRate), share(flatCPU, length/2)})
}
