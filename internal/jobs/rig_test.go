package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"jobd/internal/form"
	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a supervisor on a real database with scripted processes. It lives in a
// synctest bubble, so its hours take no time.
type rig struct {
	t      *testing.T
	clock  *clock
	runner *runner
	db     *sqlite.DB
	sup    *jobs.Supervisor
	path   string
	max    int
	wrap   func(jobs.Store) jobs.Store // nil = the database itself
	held   func(*runner) jobs.Runner   // nil = the runner itself
	again  func(context.Context, jobs.Job) (jobs.Submission, error)
	news   []jobs.Notice
	newsMu sync.Mutex
	end    func()
	atEnd  func() // lets go what a test holds
}

// inBubble runs a test with a rig.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, path: filepath.Join(dir, "jobd.db"), clock: newClock(), runner: newRunner(), max: 4}
		r.runner.clock = r.clock.Now
		r.start()
		defer func() {
			if r.atEnd != nil {
				r.atEnd()
			}
			r.stop()
		}()
		test(r)
	})
}

// start opens the database and starts a supervisor, as a new daemon does.
func (r *rig) start() {
	r.t.Helper()
	var damaged func(id string)
	db, err := sqlite.Open(context.Background(), r.path, sqlite.Options{OnDamage: func(id string, _ error) { damaged(id) }})
	if err != nil {
		r.t.Fatal(err)
	}
	r.db = db
	var store jobs.Store = db
	if r.wrap != nil {
		store = r.wrap(db)
	}
	var held jobs.Runner = r.runner
	if r.held != nil {
		held = r.held(r.runner)
	}
	r.sup = jobs.NewSupervisor(jobs.Options{Store: store, Runner: held, Clock: r.clock.Now, Log: slog.New(slog.DiscardHandler), Forms: form.Forms{},
		MaxRunning: r.max, Retention: 30 * 24 * time.Hour, Rerun: r.again, Notify: func(n jobs.Notice) {
			r.newsMu.Lock()
			defer r.newsMu.Unlock()
			r.news = append(r.news, n)
		}})
	damaged = r.sup.Damaged
	if err := r.sup.Recover(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.sup.Run(ctx) }()
	r.end = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		if err := db.Close(); err != nil {
			r.t.Error(err)
		}
	}
	synctest.Wait()
}

// stop ends the supervisor; jobs go on.
func (r *rig) stop() {
	if r.end != nil {
		r.end()
		r.end = nil
	}
}

// restart is a daemon that dies and another that follows.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

var submissions int

// submit makes a job that must be accepted.
func (r *rig) submit(change ...func(*jobs.Submission)) jobs.Job {
	r.t.Helper()
	j, _, err := r.try(change...)
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return r.job(j.ID)
}

func (r *rig) try(change ...func(*jobs.Submission)) (jobs.Job, jobs.Joined, error) {
	submissions++
	sub := jobs.Submission{
		Spec: jobs.Spec{Tool: "run_job", Name: "n", Argv: []string{"true"}, Dir: "/", Project: "/p", Session: "s",
			Timeout: time.Hour, QuestionTimeout: time.Hour, Grace: 10 * time.Second},
		Environ:  func(string) []string { return nil },
		Identity: []byte("same"),
		Request:  fmt.Sprint("request ", submissions),
	}
	for _, c := range change {
		c(&sub)
	}
	return r.sup.Submit(context.Background(), sub)
}

// job reads a job.
func (r *rig) job(id string) jobs.Job {
	r.t.Helper()
	j, err := r.sup.Job(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// is checks a job's state.
func (r *rig) is(id string, want jobs.State) jobs.Job {
	r.t.Helper()
	synctest.Wait()
	j := r.job(id)
	if j.State() != want {
		r.t.Fatalf("the job is %s (%s), want %s", j.State(), j.Reason, want)
	}
	return j
}

// pass lets time go by and everything due happen.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// clock is the machine's clocks, which a test can step and let sleep.
type clock struct {
	mu    sync.Mutex
	start time.Time
	step  time.Duration // of the wall clock
	slept time.Duration
	boot  int
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) Now() jobs.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := time.Since(c.start)
	return jobs.Instant{Wall: time.Now().UTC().Add(c.step + c.slept), Run: run, Boot: run + c.slept, BootID: fmt.Sprint("boot ", c.boot)}
}

func (c *clock) stepWall(d time.Duration) { c.mu.Lock(); c.step += d; c.mu.Unlock() }

// sleep is the machine asleep: timers do not run, only two clocks go on.
func (c *clock) sleep(d time.Duration) { c.mu.Lock(); c.slept += d; c.mu.Unlock() }

// reboot is a new boot with clocks of its own.
func (c *clock) reboot() { c.mu.Lock(); c.boot++; c.start = time.Now(); c.slept = 0; c.mu.Unlock() }

// runner scripts the processes of jobs. It outlives supervisors, as shims do.
type runner struct {
	clock jobs.Clock

	mu      sync.Mutex
	bundles map[string]*bundle
	fail    map[string]error // by the name of the job: Start fails so
	hold    chan struct{}    // Start waits for it, if not nil
	lag     time.Duration    // Start returns so long after the command started
	swept   []string
}

type bundle struct {
	spec     jobs.Spec
	rem      jobs.Remains
	ended    chan struct{}
	starts   int
	obeys    bool // ends when it is stopped
	finished bool
	created  jobs.Instant
	torn     bool // its records cannot be read
}

func newRunner() *runner { return &runner{bundles: map[string]*bundle{}, fail: map[string]error{}} }

func (r *runner) bundle(id string) *bundle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bundles[id]
}

func (r *runner) Prepare(_ context.Context, id string, spec jobs.Spec, _ []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles[id] = &bundle{spec: spec, created: r.clock(), rem: jobs.Remains{EnvIntact: true}, ended: make(chan struct{}), obeys: true}
	return nil
}

func (r *runner) Discard(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.bundles, id)
	return nil
}

func (r *runner) Start(_ context.Context, id string) (jobs.Process, error) {
	r.mu.Lock()
	hold := r.hold
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bundles[id]
	if err := r.fail[b.spec.Name]; err != nil {
		return nil, err
	}
	b.starts++
	b.rem = jobs.Remains{Held: true, Launched: true, PID: 42, Started: r.clock()}
	r.mu.Unlock()
	time.Sleep(r.lag)
	r.mu.Lock()
	return &process{r: r, b: b}, nil
}

func (r *runner) Attach(_ context.Context, id string) (jobs.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bundles[id]
	if b == nil || !b.rem.Held {
		return nil, fmt.Errorf("attaching: %w", jobs.ErrNotFound)
	}
	return &process{r: r, b: b}, nil
}

func (r *runner) Inspect(_ context.Context, id string) (jobs.Remains, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.bundles[id]; b != nil && b.torn {
		return b.rem, errors.New("a record cannot be read")
	} else if b != nil {
		return b.rem, nil
	}
	return jobs.Remains{}, fmt.Errorf("no bundle: %w", jobs.ErrNotFound)
}

func (r *runner) Sweep(_ context.Context, id string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = append(r.swept, id)
	return 1, nil
}

func (r *runner) Bundles(context.Context) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id := range r.bundles {
		ids = append(ids, id)
	}
	return ids, nil
}

func (r *runner) Spec(_ context.Context, id string) (jobs.Spec, error) {
	if b := r.bundle(id); b != nil && !b.torn {
		return b.spec, nil
	}
	return jobs.Spec{}, errors.New("the spec cannot be read")
}

func (r *runner) Created(_ context.Context, id string) (jobs.Instant, error) {
	if b := r.bundle(id); b != nil && !b.torn {
		return b.created, nil
	}
	return jobs.Instant{}, errors.New("the spec cannot be read")
}

func (r *runner) Output(context.Context, string) (jobs.OutputSize, error) {
	return jobs.OutputSize{Total: 7, Dropped: 1}, nil
}

func (r *runner) ReadOutput(context.Context, string, int64, int) (jobs.Chunk, error) {
	return jobs.Chunk{}, nil
}

func (r *runner) TailOutput(context.Context, string, int, int) (jobs.Chunk, error) {
	return jobs.Chunk{}, nil
}

// disobey makes a job's command go on when it is stopped.
func (r *runner) disobey(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles[id].obeys = false
}

// exit ends a job's command.
func (r *runner) exit(id string, e jobs.Exit) {
	e.At = r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles[id].finish(&e)
}

// kill ends a job's shim without a word.
func (r *runner) kill(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles[id].finish(nil)
}

func (b *bundle) finish(e *jobs.Exit) {
	if b.finished {
		return
	}
	b.finished = true
	b.rem.Held, b.rem.Exit = false, e
	close(b.ended)
}

// process is a scripted shim.
type process struct {
	r *runner
	b *bundle
}

func (p *process) PID() int { return 42 }

func (p *process) Stop(_ context.Context, cause jobs.Cause) error {
	now := p.r.clock()
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.b.rem.StopAsked = cause
	if p.b.obeys {
		p.b.finish(&jobs.Exit{Code: -1, Signal: 15, SignalName: "SIGTERM", StopFirst: true, At: now})
	}
	return nil
}

func (p *process) Wait(ctx context.Context) (jobs.Exit, error) {
	select {
	case <-p.b.ended:
	case <-ctx.Done():
		return jobs.Exit{}, ctx.Err()
	}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.b.rem.Exit == nil {
		return jobs.Exit{}, fmt.Errorf("waiting: %w", jobs.ErrNotFound)
	}
	return *p.b.rem.Exit, nil
}
