//go:build bench

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
	"jobd/internal/ipc"
)

// trueJob measures what a job costs that does nothing, against the same command
// run bare.
func (b *bench) trueJob(t *testing.T) {
	r, c := b.daemon(t, "max_running: 8")
	var bare, job sample
	for range n(300) {
		bare.timed(func() { forkExec(t) })
		job.timed(func() { done(t, c, submit(t, r, c, "true")) })
	}
	over := job.p50() - bare.p50()
	one := submitter(t, r, c)
	began := time.Now()
	jobs := n(400)
	inFlight(8, jobs, one)
	rig.Until(t, time.Minute, "all jobs have ended", func() bool {
		st, err := c.Status(t.Context())
		return err == nil && st.LiveJobs == 0
	})
	perSecond := float64(jobs) / time.Since(began).Seconds()

	spooler := b.spooled(t, jobs)
	b.page.table("true", []string{"`true`", "p50", "p99", "a second"},
		row("bare: fork, exec, wait", bare), row("as a job: submit, run, told of its end", job),
		[]string{"as jobs, 8 at a time, from the first submit to the last end", "–", "–", rate(perSecond)},
		[]string{"the same with task-spooler, 8 at a time", "–", "–", rate(spooler)})
	b.page.aim("a job that runs `true` over the bare command, p50", "≤ 10 ms", show(over), over <= 10*time.Millisecond)
}

// spooled returns how many jobs a second task-spooler takes and runs.
func (b *bench) spooled(t *testing.T, jobs int) float64 {
	dir := b.scratch(t)
	tsp := func(args ...string) {
		cmd := exec.Command("tsp", args...)
		cmd.Env = append(os.Environ(), "TS_SOCKET="+dir+"/socket", "TMPDIR="+dir, "TS_SLOTS=8")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tsp %v: %v: %s", args, err, out)
		}
	}
	defer tsp("-K")
	tsp("true")
	began := time.Now()
	inFlight(8, jobs-1, func() { tsp("true") })
	tsp("-N", "8", "true") // it takes all places, so it is the last
	tsp("-w")
	return float64(jobs) / time.Since(began).Seconds()
}

// running measures a daemon with two hundred jobs that run.
func (b *bench) running(t *testing.T) {
	r, c := b.daemon(t, "max_running: 500")
	daemon := r.Daemon()
	// What one job makes the daemon load is not counted.
	done(t, c, submit(t, r, c, "true"))
	before := memoryOf(t, daemon)
	jobs := n(200)
	began := time.Now()
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = submit(t, r, c, "sleep", "3600")
	}
	rig.Until(t, time.Minute, "all jobs run", func() bool {
		for _, id := range ids {
			if get(t, c, id).State != "running" {
				return false
			}
		}
		return true
	})
	started := time.Since(began)
	time.Sleep(2 * time.Second)

	var shim memory
	shimThreads := 0
	shims := r.Processes("jobd-shim")
	for _, p := range shims {
		m := memoryOf(t, p.PID)
		shim.rss += m.rss / float64(len(shims))
		shim.pss += m.pss / float64(len(shims))
		shimThreads += threads(t, p.PID)
	}
	after := memoryOf(t, daemon)
	// At rest, before they are asked.
	length := 10 * time.Second
	if testing.Short() {
		length = time.Second
	}
	cpu := cpuOf(t, daemon)
	var shimCPU time.Duration
	for _, p := range shims {
		shimCPU -= cpuOf(t, p.PID)
	}
	time.Sleep(length)
	cpu = cpuOf(t, daemon) - cpu
	for _, p := range shims {
		shimCPU += cpuOf(t, p.PID)
	}

	var one, list, command, submits sample
	for i := range n(1000) {
		one.timed(func() { get(t, c, ids[i%len(ids)]) })
	}
	for range n(100) {
		list.timed(func() {
			l, err := c.List(t.Context(), ipc.ListRequest{Pending: true})
			if err != nil || len(l.Jobs) < jobs {
				t.Fatalf("listed %d jobs: %v", len(l.Jobs), err)
			}
		})
		command.timed(func() { r.Jobd("status") })
	}
	for range n(200) {
		submits.timed(func() { submit(t, r, c, "true") })
	}
	b.page.table("running", []string{fmt.Sprintf("%d running jobs", jobs), ""},
		[]string{"all of them submitted and running after", show(started)},
		[]string{"memory of a shim, RSS (PSS)", fmt.Sprintf("%s (%s)", mib(shim.rss), mib(shim.pss))},
		[]string{"threads of a shim", fmt.Sprintf("%.1f", float64(shimThreads)/float64(len(shims)))},
		[]string{"memory of jobd, RSS (PSS)", fmt.Sprintf("%s (%s)", mib(after.rss), mib(after.pss))},
		[]string{"of it for each job", fmt.Sprintf("%.0f KiB", (after.rss-before.rss)/float64(jobs))},
		[]string{"threads of jobd", fmt.Sprint(threads(t, daemon))},
		[]string{"CPU at rest, jobd and all shims", fmt.Sprintf("%.2f %% and %.2f %%", 100*float64(cpu)/float64(length), 100*float64(shimCPU)/float64(length))},
		[]string{"one job's state over the socket, p50 (p99)", fmt.Sprintf("%s (%s)", show(one.p50()), show(one.p99()))},
		[]string{"the state of all over the socket, p50 (p99)", fmt.Sprintf("%s (%s)", show(list.p50()), show(list.p99()))},
		[]string{"`jobd status`, p50 (p99)", fmt.Sprintf("%s (%s)", show(command.p50()), show(command.p99()))},
		[]string{"submit of another that runs at once, p50 (p99)", fmt.Sprintf("%s (%s)", show(submits.p50()), show(submits.p99()))})
	b.page.aim("memory of a shim, RSS", "≤ 4 MB", megabytes(shim.rss), shim.rss*1024 <= 4e6)
}

// output measures how fast the output of a job is taken, against the same
// command with a file as its output.
func (b *bench) output(t *testing.T) {
	const size = 400 << 20
	r, c := b.daemon(t, fmt.Sprintf("output_limit: %d", 2*size))
	bounded, boundedClient := b.daemon(t)
	source, copied := filepath.Join(r.Dir, "source"), filepath.Join(r.Dir, "copy")
	must(t, exec.Command("sh", "-c", fmt.Sprintf("yes | head -c %d >%s", size, source)).Run())
	settle := func() {
		// What was written is on disk before the next one is timed.
		syscall.Sync()
	}
	var bare, job, limited sample
	for range n(7) {
		settle()
		bare.timed(func() { must(t, exec.Command("sh", "-c", "exec cat "+source+" >"+copied).Run()) })
		must(t, os.Remove(copied))
		settle()
		var id string
		job.timed(func() {
			id = submit(t, r, c, "cat", source)
			if j := done(t, c, id); j.OutputBytes != size || j.OutputDropped != 0 {
				t.Fatalf("kept %d bytes and dropped %d", j.OutputBytes, j.OutputDropped)
			}
		})
		// Its segments go, so that the disk does not fill.
		must(t, os.RemoveAll(filepath.Join(r.StateDir(), "bundles", id, "output")))
		settle()
		limited.timed(func() { done(t, boundedClient, submit(t, bounded, boundedClient, "cat", source)) })
	}
	line := func(what string, s sample) []string {
		return []string{what, show(s.p50()), fmt.Sprintf("%.0f MB/s", size/1e6/s.p50().Seconds()), fmt.Sprintf("%.2f×", ratio(bare.p50(), s.p50()))}
	}
	b.page.table("output", []string{"400 MiB", "median", "throughput", "against `cat > file`"},
		line("`cat file > copy`", bare), line("`cat file` as a job that keeps all of it", job), line("`cat file` as a job with the default limit", limited))
	r1 := ratio(bare.p50(), job.p50())
	b.page.aim("output of a job against `cat > file`", "≥ 0.5×", fmt.Sprintf("%.2f×", r1), r1 >= 0.5)
}

// idle measures the three programs while nothing happens: a job sleeps, and its
// client does not ask.
func (b *bench) idle(t *testing.T) {
	r, c := b.daemon(t)
	f := r.Front("bench")
	f.Call("server/discover", nil)
	f.Tool("list_jobs", nil)
	length := time.Minute
	if testing.Short() {
		length = 3 * time.Second
	}
	daemon := r.Daemon()
	id := submit(t, r, c, "sleep", "3600")
	rig.Until(t, 10*time.Second, "the job runs", func() bool { return get(t, c, id).State == "running" })
	time.Sleep(2 * time.Second)
	shim := r.Processes("jobd-shim")[0].PID
	pids := []int{daemon, f.PID(), shim}
	names := []string{"jobd", "mcp-stdio", "jobd-shim"}
	cpu := make([]time.Duration, len(pids))
	for i, pid := range pids {
		cpu[i] = cpuOf(t, pid)
	}
	time.Sleep(length)
	var rows [][]string
	met := true
	for i, pid := range pids {
		used := cpuOf(t, pid) - cpu[i]
		m := memoryOf(t, pid)
		percent := 100 * float64(used) / float64(length)
		met = met && percent < 0.05
		rows = append(rows, []string{names[i], megabytes(m.rss), megabytes(m.pss), fmt.Sprint(threads(t, pid)), fmt.Sprintf("%.3f %%", percent)})
		switch names[i] {
		case "jobd":
			b.page.aim("memory of jobd at rest, RSS", "≤ 15 MB", megabytes(m.rss), m.rss*1024 <= 15e6)
		case "mcp-stdio":
			b.page.aim("memory of mcp-stdio, RSS", "≤ 12 MB", megabytes(m.rss), m.rss*1024 <= 12e6)
		}
	}
	b.page.table("idle", []string{"program", "RSS", "PSS", "threads", "CPU over a minute"}, rows...)
	b.page.aim("idle CPU of all three over a minute", "0.0 %", rows[0][4]+", "+rows[1][4]+", "+rows[2][4], met)
}

// megabytes writes KiB as MB.
func megabytes(kib float64) string { return fmt.Sprintf("%.1f MB", kib*1024/1e6) }

// endAll ends the processes with this variable in their environment.
func endAll(t testing.TB, variable string) {
	rig.Until(t, 30*time.Second, "the processes have ended", func() bool {
		left := rig.Find(variable)
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}
