//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// A fate is what is known of a job before it runs.
type fate struct {
	name   string
	pause  time.Duration
	lines  int
	code   int
	signal string // ends it by this signal, "" = by its code
}

func (f fate) command() string {
	end := fmt.Sprintf("exit %d", f.code)
	if f.signal != "" {
		end = "kill -" + strings.TrimPrefix(f.signal, "SIG") + " $$"
	}
	return fmt.Sprintf("echo %s >> runs; seq %d; sleep %.3f; echo end of %s; %s", f.name, f.lines, f.pause.Seconds(), f.name, end)
}

func (f fate) output() string {
	var b strings.Builder
	for i := range f.lines {
		fmt.Fprintln(&b, i+1)
	}
	fmt.Fprintf(&b, "end of %s\n", f.name)
	return b.String()
}

// draw makes fates that a seed decides.
func draw(random *rand.Rand, worker, n int) []fate {
	fates := make([]fate, n)
	for i := range fates {
		f := fate{name: fmt.Sprintf("w%d-%d", worker, i), pause: time.Duration(random.IntN(1500)) * time.Millisecond, lines: random.IntN(200)}
		switch random.IntN(4) {
		case 0:
			f.code = 1 + random.IntN(120)
		case 1:
			f.signal = []string{"SIGTERM", "SIGKILL", "SIGINT", "SIGHUP"}[random.IntN(4)]
		}
		fates[i] = f
	}
	return fates
}

// Whatever is killed, each job that was asked for is there once, ran once, and
// ended as it had to, with all it printed; and the time of day is set at random
// meanwhile. SEED, RUNS and JOBS (a worker's) make it longer.
func TestSoak_NothingIsLostDoubledOrLeftOver(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, jobs int) { soak(t, seed, jobs, "jobd", "mcp-stdio") })
}

// The same where shims are killed too. A job whose shim was killed is lost, or
// ended as it had to if that was recorded before; it never runs again.
func TestSoak_WithShimsKilledJobsAreLostAndNeverRunTwice(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, jobs int) { soak(t, seed, jobs, "jobd", "mcp-stdio", "jobd-shim") })
}

func eachSeed(t *testing.T, run func(t *testing.T, seed uint64, jobs int)) {
	seed, runs, jobs := number(t, "SEED", 1), number(t, "RUNS", 1), number(t, "JOBS", 15)
	for n := range runs {
		t.Run(fmt.Sprintf("seed %d", seed+n), func(t *testing.T) { run(t, uint64(seed+n), jobs) })
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a number from 1", name, text)
	}
	return n
}

// A killer ends processes of a rig at random until it is stopped, and sets the
// clock.
type killer struct {
	kills map[string]int  // by program
	steps int             // of the clock
	hit   map[string]bool // the jobs whose shim it killed, by id
	stop  func()
}

func letLoose(t *testing.T, r *rig.Rig, seed uint64, names []string) *killer {
	k := &killer{kills: map[string]int{}, hit: map[string]bool{}}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a seed is to decide
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(10+random.IntN(300)) * time.Millisecond):
			}
			if random.IntN(5) == 0 {
				r.SetClock(fmt.Sprintf("wall %ds", random.IntN(200_000)-100_000))
				k.steps++
			}
			k.kill(r, names[random.IntN(len(names))], random)
			k.rest(ctx, r)
		}
	}()
	k.stop = func() { cancel(); <-done }
	t.Cleanup(k.stop)
	return k
}

// rest waits while no daemon answers, and then as long again: on a machine where
// a start takes long, a daemon that is killed at once would never serve anybody.
func (k *killer) rest(ctx context.Context, r *rig.Rig) {
	begun := time.Now()
	pause := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		if _, err := r.Ask(); err == nil || time.Since(begun) > 10*time.Second {
			break
		}
		if !pause(5 * time.Millisecond) {
			return
		}
	}
	pause(time.Since(begun))
}

func (k *killer) kill(r *rig.Rig, name string, random *rand.Rand) {
	found := r.Processes(name)
	if len(found) == 0 {
		return
	}
	victim := found[random.IntN(len(found))]
	switch name {
	case "jobd": // the command line's processes are not killed: whoever does so knows
		status, err := r.Ask()
		if err != nil {
			return
		}
		victim.PID = status.PID
	case "jobd-shim":
		if len(victim.Args) < 2 {
			return // it has just ended
		}
		k.hit[filepath.Base(victim.Args[1])] = true
	}
	if syscall.Kill(victim.PID, syscall.SIGKILL) == nil {
		k.kills[name]++
	}
}

func soak(t *testing.T, seed uint64, jobs int, victims ...string) {
	const workers = 4 // half of them by mcp-stdio, half by the command line
	r := rig.NewFaulty(t)
	r.Jobd("start")
	killer := letLoose(t, r, seed, victims)

	fates := make([][]fate, workers)
	t.Run("submit", func(t *testing.T) {
		for w := range workers {
			fates[w] = draw(rand.New(rand.NewPCG(seed, uint64(w+1))), w, jobs) //nolint:gosec // a seed is to decide
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				if w%2 == 0 {
					submitByTool(t, r.For(t), fates[w])
				} else {
					submitByShell(t, r.For(t), fates[w])
				}
			})
		}
	})
	rig.Until(t, 2*time.Minute, "all jobs have ended", func() bool {
		for _, job := range r.Jobs() {
			if !job.Final() {
				return false
			}
		}
		return true
	})
	killer.stop()
	lost := 0

	ran := map[string]int{}
	for _, name := range r.Lines("runs") {
		ran[name]++
	}
	found := map[string]rig.Job{}
	for _, job := range r.Jobs() {
		if _, ok := found[job.Name]; ok {
			t.Errorf("job %s is there twice", job.Name)
		}
		found[job.Name] = job
	}
	for _, list := range fates {
		for _, f := range list {
			job := found[f.name]
			if killer.hit[job.ID] && bereft(job, ran[f.name]) {
				lost++
				continue
			}
			check(t, r, f, job, ran[f.name])
		}
	}
	t.Logf("seed %d: %d jobs, %d kills (%v), %d steps of the clock; %d of %d jobs whose shim was killed are lost or never started",
		seed, workers*jobs, killer.kills["jobd"]+killer.kills["mcp-stdio"]+killer.kills["jobd-shim"], killer.kills, killer.steps, lost, len(killer.hit))
	if len(found) != workers*jobs {
		t.Errorf("there are %d jobs, not %d", len(found), workers*jobs)
	}
	rig.Until(t, 30*time.Second, "no shim and no job is left", func() bool {
		return len(r.Processes("jobd-shim"))+len(r.Processes("sleep"))+len(r.Processes("bash")) == 0
	})
	if jobd := r.Processes("jobd"); len(jobd) > 1 {
		t.Errorf("several processes of jobd are left: %v", jobd)
	}
}

// bereft reports whether a job is as one must be whose shim was killed before it
// recorded the end: lost, or failed without having run.
func bereft(job rig.Job, ran int) bool {
	return job.State == "lost" && ran <= 1 || job.State == "failed" && ran == 0 && strings.Contains(job.StatusMessage, "before the launch")
}

func check(t *testing.T, r *rig.Rig, f fate, job rig.Job, ran int) {
	t.Helper()
	state, code, signal := "succeeded", f.code, ""
	switch {
	case f.signal != "":
		state, code, signal = "failed", -1, f.signal
	case f.code != 0:
		state = "failed"
	}
	got := ""
	if job.Signal != nil {
		got = *job.Signal
	}
	if job.State != state || job.Code() != code || got != signal {
		t.Errorf("job %s (%s) is %s, exit code %d, signal %q, not %s, %d, %q: %s", f.name, job.ID, job.State, job.Code(), got, state, code, signal, job.StatusMessage)
	}
	if ran != 1 {
		t.Errorf("job %s ran %d times", f.name, ran)
	}
	if job.ID == "" {
		return
	}
	if out := r.Jobd("logs", "--raw", job.ID); out != f.output() {
		t.Errorf("job %s printed %d bytes, not %d", f.name, len(out), len(f.output()))
	}
}

// submitByTool calls run_job, and again with the same key when mcp-stdio was
// killed, or when the daemon was killed as often as it was started.
func submitByTool(t *testing.T, r *rig.Rig, fates []fate) {
	front := r.Front("session-" + t.Name())
	for _, f := range fates {
		var result rig.ToolResult
		rig.Until(t, time.Minute, "run_job of "+f.name+" gives a job", func() bool {
			answer, ok := <-front.Start("tools/call", map[string]any{"name": "run_job",
				"arguments": map[string]any{"command": f.command(), "name": f.name, "idempotency_key": f.name}})
			if !ok {
				front = r.Front("session-" + t.Name())
				return false
			}
			result = front.Result(answer)
			// A command that ends within a second is answered with its result.
			return result.TaskID != "" || result.Meta.Job.ID != ""
		})
	}
}

func submitByShell(t *testing.T, r *rig.Rig, fates []fate) {
	for _, f := range fates {
		submit(t, r, f.name, f.command())
	}
}

// Whoever kills a shim takes the outcome with it: the job is lost, says so, is
// not run again, and nothing of it is left.
func TestShimIsKilled_TheJobIsLostAndItsProcessesEnd(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	id := front.Run(map[string]any{"command": "echo run >> runs; sleep 300 & setsid sleep 300 & wait"})
	rig.Until(t, 10*time.Second, "the job runs", func() bool { return len(r.Lines("runs")) == 1 && len(r.Processes("sleep")) == 2 })
	shims := r.Processes("jobd-shim")
	if len(shims) != 1 {
		t.Fatalf("there are %d shims", len(shims))
	}
	rig.Kill(t, shims[0].PID)
	r.UntilState(30*time.Second, id, "lost")
	rig.Until(t, 10*time.Second, "no process of the job is left", func() bool { return len(r.Processes("sleep")) == 0 })
	task := front.Task(id)
	if task.Status != "completed" || task.Result == nil || !task.Result.IsError {
		t.Errorf("the task is %+v", task)
	}
	if runs := r.Lines("runs"); len(runs) != 1 {
		t.Errorf("the job ran %d times", len(runs))
	}
}
