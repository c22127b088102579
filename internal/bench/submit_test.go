//go:build bench

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"jobd/internal/e2e/rig"
	"jobd/internal/ipc"
)

// submitter returns a function that submits a job, for many callers at once.
func submitter(t testing.TB, r *rig.Rig, c *ipc.Client) func() {
	var mu sync.Mutex
	return func() {
		mu.Lock()
		req := request(r, "true")
		key := fmt.Sprintf("bench-%d", calls)
		mu.Unlock()
		if _, err := c.Submit(t.Context(), key, req); err != nil {
			t.Error(err)
		}
	}
}

// submit measures how fast jobs are taken. The queue does not move meanwhile:
// its only place is taken, in jobd as in the others.
func (b *bench) submit(t *testing.T) {
	const rounds = 5
	flights := []int{1, 8, 64}
	samples := make([]sample, len(flights))
	rates := map[string][]float64{}
	add := func(name string, perSecond float64) { rates[name] = append(rates[name], perSecond) }
	var client, cli, tsp, nq sample
	for range rounds {
		r, c := b.daemon(t, "max_running: 1")
		block(t, r, c)
		for i, flight := range flights {
			all, perSecond := inFlight(flight, n(max(400, 30*flight)), wires(t, r, flight))
			samples[i] = append(samples[i], all...)
			add(fmt.Sprint(flight), perSecond)
		}
		all, perSecond := inFlight(1, n(400), submitter(t, r, c))
		client = append(client, all...)
		add("client", perSecond)
		all, perSecond = inFlight(1, n(100), func() { r.Jobd("run", "--", "true") })
		cli = append(cli, all...)
		add("cli", perSecond)
		endAll(t, "HOME="+r.Home)

		all, perSecond = b.spooler(t, n(200))
		tsp = append(tsp, all...)
		add("tsp", perSecond)
		all, perSecond = b.nq(t, n(200))
		nq = append(nq, all...)
		add("nq", perSecond)

		dir := b.scratch(t)
		sync, done := fsyncer(t, dir)
		_, perSecond = inFlight(1, n(500), sync)
		done()
		add("fsync", perSecond)
		_, perSecond = inFlight(1, n(200), func() { forkExec(t) })
		add("fork", perSecond)
	}
	spooler := median(rates["tsp"])
	line := func(what, key string, s sample) []string {
		r := median(rates[key])
		cells := []string{what, "–", "–", rate(r), fmt.Sprintf("%.1f×", r/spooler)}
		if s != nil {
			cells[1], cells[2] = show(s.p50()), show(s.p99())
		}
		return cells
	}
	b.page.table("submit", []string{"queueing a job", "p50", "p99", "jobs a second", "against task-spooler"},
		line("jobd, 1 connection", "1", samples[0]),
		line("jobd, 8 connections", "8", samples[1]),
		line("jobd, 64 connections", "64", samples[2]),
		line("jobd, 1 connection, with the client of mcp-stdio", "client", client),
		line("jobd by its own command, `jobd run`", "cli", cli),
		line("task-spooler by its own client, `tsp`", "tsp", tsp),
		line("nq, `nq`", "nq", nq),
		line("limit: append 4 KiB, fsync", "fsync", nil),
		line("limit: fork, exec and wait for `true`", "fork", nil))
	single, many := median(rates["1"])/spooler, median(rates["64"])/spooler
	b.page.aim("durable submits over one connection against task-spooler's queueing by its own client", "≥ 2×", fmt.Sprintf("%.1f×", single), single >= 2)
	b.page.aim("the same with 64 in flight", "≥ 5×", fmt.Sprintf("%.1f×", many), many >= 5)
	b.page.rates = []bar{
		{"jobd, 64 in flight", median(rates["64"]), true}, {"jobd, 8 in flight", median(rates["8"]), true}, {"jobd, 1 in flight", median(rates["1"]), true},
		{"jobd run", median(rates["cli"]), true}, {"task-spooler", spooler, false}, {"nq", median(rates["nq"]), false},
		{"fsync", median(rates["fsync"]), false}, {"fork + exec", median(rates["fork"]), false},
	}
}

// spooler queues jobs with task-spooler, one after the other.
func (b *bench) spooler(t *testing.T, times int) (sample, float64) {
	dir := b.scratch(t)
	tsp := func(args ...string) {
		cmd := exec.Command("tsp", args...)
		cmd.Env = append(os.Environ(), "TS_SOCKET="+dir+"/socket", "TMPDIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tsp %v: %v: %s", args, err, out)
		}
	}
	tsp("sleep", "3600")
	defer endAll(t, "TS_SOCKET="+dir+"/socket")
	return inFlight(1, times, func() { tsp("true") })
}

// nq queues jobs with nq, one after the other.
func (b *bench) nq(t *testing.T, times int) (sample, float64) {
	dir := b.scratch(t)
	nq := func(args ...string) {
		cmd := exec.Command("nq", args...)
		cmd.Env = append(os.Environ(), "NQDIR="+dir, "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nq %v: %v: %s", args, err, out)
		}
	}
	nq("sleep", "3600")
	defer endAll(t, "HOME="+dir)
	return inFlight(1, times, func() { nq("true") })
}

// stored measures what ten thousand jobs in the database cost a submission, in
// turns with an empty one.
func (b *bench) stored(t *testing.T) {
	jobs := n(10000)
	empty, emptyClient := b.daemon(t, "max_running: 1")
	full, fullClient := b.daemon(t, "max_running: 1")
	block(t, empty, emptyClient)
	block(t, full, fullClient)
	var ids struct {
		sync.Mutex
		all []string
	}
	fill := func() {
		ids.Lock()
		req := request(full, "true")
		key := fmt.Sprintf("bench-%d", calls)
		ids.Unlock()
		reply, err := fullClient.Submit(t.Context(), key, req)
		if err != nil {
			t.Error(err)
			return
		}
		ids.Lock()
		defer ids.Unlock()
		ids.all = append(ids.all, reply.Job.ID)
	}
	// Cancelled in portions, so that the queue is short.
	for left := jobs; left > 0; left -= 1000 {
		inFlight(64, min(left, 1000), fill)
		inFlight(64, len(ids.all), func() {
			ids.Lock()
			id := ids.all[len(ids.all)-1]
			ids.all = ids.all[:len(ids.all)-1]
			ids.Unlock()
			if _, err := fullClient.Cancel(t.Context(), ipc.CancelRequest{ID: id}); err != nil {
				t.Error(err)
			}
		})
	}
	toEmpty, toFull := wires(t, empty, 1), wires(t, full, 1)
	var with, without sample
	for range n(3000) {
		without.timed(toEmpty)
		with.timed(toFull)
	}
	b.page.table("stored", []string{"submit, 1 connection", "p50", "p90", "p99"},
		[]string{"empty", show(without.p50()), show(without.at(0.9)), show(without.p99())},
		[]string{fmt.Sprintf("%d stored jobs", jobs), show(with.p50()), show(with.at(0.9)), show(with.p99())},
		[]string{"ratio", fmt.Sprintf("%.2f×", ratio(with.p50(), without.p50())), fmt.Sprintf("%.2f×", ratio(with.at(0.9), without.at(0.9))), fmt.Sprintf("%.2f×", ratio(with.p99(), without.p99()))})
	r := ratio(with.p99(), without.p99())
	b.page.aim("submit with 10,000 stored jobs against none, p99", "≤ 1.2×", fmt.Sprintf("%.2f×", r), r <= 1.2)
	b.page.curves = []curve{{"empty", slices.Sorted(slices.Values(without))}, {fmt.Sprintf("%d stored jobs", jobs), slices.Sorted(slices.Values(with))}}
}
