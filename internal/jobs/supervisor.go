package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Options are what a supervisor is made of.
type Options struct {
	Store  Store
	Runner Runner
	Clock  Clock
	Log    *slog.Logger
	Forms  Forms
	// MaxRunning is how many jobs may run at once, at least 1. A waiting job
	// holds no place.
	MaxRunning int
	// Retention is how long a final job is kept.
	Retention time.Duration
	// Notify is told of open questions and finished jobs. It must return at
	// once. It may be nil.
	Notify func(Notice)
	// Rerun returns the submission that runs a job again which a reboot
	// interrupted; its error says why that cannot be. It is asked only for jobs
	// whose spec says RerunInterrupted. nil = no job is run again.
	Rerun func(ctx context.Context, lost Job) (Submission, error)
	// Step is told the name of each step between a cause and its effect, for
	// tests that end the process there. It may be nil.
	Step func(name string)
}

// A Notice is news that a person may want to hear of.
type Notice struct {
	Job Job
	// Question is the question that was opened; nil = the job has ended.
	Question *Question
}

// Forms knows the schemas of questions.
type Forms interface {
	// Check refuses a schema that a question cannot have, with an error of kind
	// [ErrInvalid].
	Check(schema []byte, secret bool) error
	// Defaults returns the content that the schema's defaults make. Its error
	// says which required field has none.
	Defaults(schema []byte) ([]byte, error)
	// Validate returns an error that tells a person what is wrong with content.
	Validate(schema, content []byte) error
}

// The supervisor's fixed times.
const (
	// tick is how often deadlines are looked at again, for timers stop while
	// the machine sleeps.
	tick = 15 * time.Second
	// retryEvery is how often a store that cannot write is tried again.
	retryEvery = time.Second
	// askerGrace is how long a question stays open with no asker waiting.
	askerGrace = 15 * time.Second
	// pruneEvery is how often expired jobs are looked for.
	pruneEvery = time.Hour
	// progressEvery is the shortest time between two stored progress reports.
	progressEvery = time.Second
	// recoverable bounds how long recovery waits for a launch that was under way.
	recoverable = 2 * time.Second
)

// A Supervisor decides what happens to jobs and records it. It owns no
// process: a job belongs to its shim and goes on when the supervisor ends.
//
// Its methods may be called from any goroutine once Recover has returned.
type Supervisor struct {
	store     Store // mends what it finds damaged
	disk      Store // does not
	runner    Runner
	clock     Clock
	log       *slog.Logger
	forms     Forms
	notify    func(Notice)
	again     func(context.Context, Job) (Submission, error)
	step      func(string)
	max       int
	retention time.Duration

	// life ends when Run is to return; goroutines of the supervisor watch it.
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
	// recovered is closed when Recover has looked at every bundle.
	recovered chan struct{}
	due       chan string   // ids whose deadlines are to be looked at
	kick      chan struct{} // the queue is to be looked at

	digestKey []byte
	mending   sync.Mutex // held while the record of a job is rebuilt

	mu      sync.Mutex // held for memory only, never over a call to store or runner
	live    map[string]*live
	placed  map[string]*live // those of live that are queued no more
	queue   []*live          // in the order of their rows
	waiters map[string]*waiter
	secrets map[string][]byte // by job id + "/" + question id
}

// live is what memory holds of a job that is not final.
type live struct {
	job      Job // newest known
	proc     Process
	timer    *time.Timer
	askers   map[string]*asker // by question id
	progress *Progress         // reported, not stored yet
	checking bool              // a goroutine looks at its deadlines
	queued   int64             // by which it is in the queue, 0 = it is not
	taken    bool              // its launch has begun, and is not recorded yet
	stopping bool              // a goroutine is telling the shim
}

// waiter is a channel that is closed at a job's next change, and how many wait
// on it.
type waiter struct {
	changed chan struct{}
	n       int
}

// asker is the presence of the process that asked a question.
type asker struct {
	here int           // requests waiting now
	left time.Duration // run clock when the last one went
}

// NewSupervisor returns a supervisor. Call Recover, then Run.
func NewSupervisor(o Options) *Supervisor {
	life, end := context.WithCancel(context.Background())
	s := &Supervisor{
		disk: o.Store, runner: o.Runner, clock: o.Clock, log: o.Log, forms: o.Forms, notify: o.Notify, again: o.Rerun, step: o.Step,
		max: max(o.MaxRunning, 1), retention: o.Retention,
		life: life, end: end, due: make(chan string, 64), kick: make(chan struct{}, 1), recovered: make(chan struct{}),
		live: map[string]*live{}, placed: map[string]*live{}, waiters: map[string]*waiter{}, secrets: map[string][]byte{},
	}
	s.store = mender{o.Store, s.rebuild}
	if s.notify == nil {
		s.notify = func(Notice) {}
	}
	if s.step == nil {
		s.step = func(string) {}
	}
	return s
}

// Run launches queued jobs and keeps deadlines until ctx ends. It returns when
// every goroutine of the supervisor has ended; jobs go on.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.wg.Wait()
	defer s.end()
	defer s.stopTimers()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	s.spawn(s.pruneExpired)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
			s.launchNext()
		case id := <-s.due:
			s.spawn(func() { s.check(id) })
		case <-ticks.C:
			for _, id := range s.liveIDs() {
				s.spawn(func() { s.check(id) })
			}
			s.launchNext()
		case <-prune.C:
			s.spawn(s.pruneExpired)
		}
	}
}

// Close ends the goroutines of a supervisor whose Run was never called.
func (s *Supervisor) Close() {
	s.end()
	s.stopTimers()
	s.wg.Wait()
}

// Live returns how many jobs are not final, and how many questions are open.
func (s *Supervisor) Live() (jobs, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.live {
		questions += len(l.job.Open())
	}
	return len(s.live), questions
}

// Job returns the job with this id.
func (s *Supervisor) Job(ctx context.Context, id string) (Job, error) {
	j, err := s.store.Job(ctx, id)
	return s.withProgress(j), err
}

// FindJob returns the job whose id starts with prefix.
func (s *Supervisor) FindJob(ctx context.Context, prefix string) (Job, error) {
	j, err := s.store.FindJob(ctx, prefix)
	return s.withProgress(j), err
}

// Jobs returns the jobs that fit, newest first.
func (s *Supervisor) Jobs(ctx context.Context, f Filter) ([]Job, error) {
	found, err := s.store.Jobs(ctx, f)
	for i := range found {
		found[i] = s.withProgress(found[i])
	}
	return found, err
}

// withProgress adds a progress report that is not stored yet.
func (s *Supervisor) withProgress(j Job) Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[j.ID]; l != nil && l.progress != nil && !j.state.Final() {
		j.Progress = l.progress
	}
	return j
}

// Now reads the supervisor's clock.
func (s *Supervisor) Now() Instant { return s.clock() }

// Runner returns the runner, for reading output.
func (s *Supervisor) Runner() Runner { return s.runner }

// Retention returns how long final jobs are kept.
func (s *Supervisor) Retention() time.Duration { return s.retention }

// Place returns a queued job's place in the queue, from 1; 0 = it is not in it.
func (s *Supervisor) Place(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[id]; l != nil && l.queued != 0 {
		i, _ := s.inQueue(l.queued)
		return i + 1
	}
	return 0
}

// Wait returns the job once fits says so. ctx ends the waiting with its error.
func (s *Supervisor) Wait(ctx context.Context, id string, fits func(*Job) bool) (Job, error) {
	for {
		// Subscribe before reading, or a change in between would be missed.
		changed, release := s.subscribe(id)
		j, err := s.Job(ctx, id)
		if err != nil || fits(&j) {
			release()
			return j, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.life.Done():
			err = &Error{Kind: ErrUnavailable, Message: "jobd is stopping; ask again"}
		}
		release()
		if err != nil {
			return j, err
		}
	}
}

// subscribe returns a channel that is closed at the job's next change. release
// must be called.
func (s *Supervisor) subscribe(id string) (changed <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[id]
	if w == nil {
		w = &waiter{changed: make(chan struct{})}
		s.waiters[id] = w
	}
	w.n++
	return w.changed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.n--; w.n == 0 && s.waiters[id] == w {
			delete(s.waiters, id)
		}
	}
}

// adopt takes a live job into memory.
func (s *Supervisor) adopt(j Job) {
	s.mu.Lock()
	if s.live[j.ID] == nil {
		l := &live{job: j, askers: map[string]*asker{}}
		s.live[j.ID] = l
		s.place(l)
	}
	s.mu.Unlock()
	s.arm(j.ID)
}

// publish takes over a job that was committed, and wakes who waits for it.
// Commits of one job may be published out of order; the older one is dropped,
// and one that comes after the job's end finds it gone from memory.
func (s *Supervisor) publish(j Job) {
	s.mu.Lock()
	l := s.live[j.ID]
	if l != nil && l.job.revision > j.revision {
		s.mu.Unlock()
		return
	}
	switch {
	case l == nil:
	case j.state.Final():
		l.stopTimer()
		delete(s.live, j.ID)
		delete(s.placed, j.ID)
		s.dequeue(l)
	default:
		l.job = j
		s.place(l)
	}
	s.dropSecrets(&j)
	if w := s.waiters[j.ID]; w != nil {
		close(w.changed)
		delete(s.waiters, j.ID)
	}
	s.mu.Unlock()
	s.arm(j.ID)
	s.look()
}

// look asks Run to look at the queue.
func (s *Supervisor) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// update changes a job and publishes it.
func (s *Supervisor) update(ctx context.Context, id string, change func(*Job) error) (Job, error) {
	j, err := s.store.UpdateJob(ctx, id, change)
	if err == nil {
		s.publish(j)
	}
	return j, err
}

// record is update for what has happened already and must not be forgotten: it
// is tried until the store can write. It gives up when the supervisor ends,
// for the next one finds the same facts in the bundle.
func (s *Supervisor) record(id string, change func(*Job) error) (Job, error) {
	for failed := false; ; failed = true {
		j, err := s.update(s.life, id, change)
		if err == nil || !errors.Is(err, ErrUnavailable) || s.life.Err() != nil {
			return j, err
		}
		if !failed {
			s.log.Error("recording what happened to a job; trying again every second", "job", id, "err", err)
		}
		select {
		case <-time.After(retryEvery):
		case <-s.life.Done():
		}
	}
}

// spawn runs f in a goroutine that Run waits for.
func (s *Supervisor) spawn(f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
}

func (s *Supervisor) liveIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.live))
	for id := range s.live {
		ids = append(ids, id)
	}
	return ids
}

func (s *Supervisor) stopTimers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.live {
		l.stopTimer()
	}
}

func (l *live) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
