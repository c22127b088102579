//go:build bench

// Package bench measures the built programs, the physical limits of the machine
// and the programs that people use for the same today, all in one run, and
// writes docs/benchmarks.md. "make bench" runs it; "make bench BENCHFLAGS=-short"
// is a quick look, which writes to the log only.
//
// It measures as users do: by the command line, by lines to mcp-stdio, by the
// socket. What is compared is measured in turns, so that whatever else the
// machine does falls on all alike. It asserts nothing about time.
package bench

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
	"jobd/internal/ipc"
)

var into = flag.String("page", "", "the page to write, with its plots in a folder beside it; \"\" = write to the log only")

// bench is one run.
type bench struct {
	t    *testing.T // of the whole run
	page *page
}

// parts are measured in this order.
var parts = []struct {
	name string
	run  func(*bench, *testing.T)
}{
	{"Limits", (*bench).limits},
	{"Start", (*bench).start},
	{"Call", (*bench).call},
	{"Polling", (*bench).polling},
	{"Submit", (*bench).submit},
	{"Stored", (*bench).stored},
	{"True", (*bench).trueJob},
	{"Running", (*bench).running},
	{"Output", (*bench).output},
	{"Idle", (*bench).idle},
}

func TestMain(m *testing.M) {
	code := m.Run()
	rig.RemoveBin()
	os.Exit(code)
}

func TestBench(t *testing.T) {
	b := &bench{t: t, page: newPage(t)}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) { part.run(b, t) })
	}
	b.page.finish(t)
	t.Logf("\n%s", b.page.render(t))
	if *into != "" && !testing.Short() && !t.Failed() {
		b.page.write(t, *into)
	}
}

// n is how often something is done: fewer times for a quick look.
func n(times int) int {
	if testing.Short() {
		return max(times/20, 2)
	}
	return times
}

// daemon starts a daemon in an installation of its own, with this configuration.
// Its processes end with the part, its files stay until the end of the run; see
// bench.sh.
func (b *bench) daemon(t *testing.T, config ...string) (*rig.Rig, *ipc.Client) {
	t.Helper()
	r := rig.New(b.t).For(t)
	t.Cleanup(func() { endAll(t, "HOME="+r.Home) })
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Jobd("start")
	c := ipc.New(ipc.Options{Socket: r.StateDir() + "/jobd.sock", Log: r.StateDir() + "/jobd.log"})
	t.Cleanup(func() { c.Close() })
	return r, c
}

var calls int // numbers requests

// request is a submission of a shell, as "jobd run" makes it.
func request(r *rig.Rig, argv ...string) ipc.SubmitRequest {
	calls++
	return ipc.SubmitRequest{
		Tool: "shell", Argv: argv, Dir: r.Project, Project: r.Project, Session: "bench", Shell: true, Umask: 0o022,
		Environ: []byte(strings.Join(r.Env(), "\x00") + "\x00"),
	}
}

// submit makes a job and returns its id.
func submit(t testing.TB, r *rig.Rig, c *ipc.Client, argv ...string) string {
	t.Helper()
	req := request(r, argv...)
	reply, err := c.Submit(t.Context(), fmt.Sprintf("bench-%d", calls), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply.Job.ID
}

// get reads a job.
func get(t testing.TB, c *ipc.Client, id string) ipc.Job {
	t.Helper()
	j, err := c.Get(t.Context(), ipc.GetRequest{ID: id, Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// done waits for the end of a job.
func done(t testing.TB, c *ipc.Client, id string) ipc.Job {
	t.Helper()
	j, err := c.Get(t.Context(), ipc.GetRequest{ID: id, Exact: true, Until: "final", WaitMS: 60_000})
	if err != nil || !j.Final {
		t.Fatalf("job %s has not ended: %s, %v", id, j.State, err)
	}
	return j
}

// block starts a job that takes the only place, so that those that follow stay
// in the queue.
func block(t testing.TB, r *rig.Rig, c *ipc.Client) {
	t.Helper()
	id := submit(t, r, c, "sleep", "3600")
	rig.Until(t, 10*time.Second, "the first job runs", func() bool { return get(t, c, id).State == "running" })
}

// scratch returns a folder on the disk that the state directories are on, for
// the whole run.
func (b *bench) scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(rig.Base(), "bench-")
	must(t, err)
	b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
