// Package memory keeps tasks in memory: a [mcptasks.Store] for tests and for the
// server that the conformance suite drives. It bounds nothing.
package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/mcptasks"
)

// A Store has tasks that are functions of this process. It implements
// [mcptasks.Lister].
type Store struct {
	// Owner names who a request comes from; only the owner sees a task. nil =
	// everybody sees every task. It is set before the first use.
	Owner func(*mcptasks.Client) string
	// PollInterval is told to clients; 0 = 100 ms.
	PollInterval time.Duration

	running sync.WaitGroup

	mu      sync.Mutex
	tasks   map[string]*task
	order   []string // ids, oldest first
	expired map[string]bool
}

type task struct {
	id               string
	owner            string
	created, updated time.Time
	status           mcptasks.Status
	message          string
	open             mcptasks.InputRequests
	answers          mcptasks.InputResponses
	result           *mcp.CallToolResult
	err              *jsonrpc.Error
	cancel           context.CancelFunc
	changed          chan struct{} // closed and replaced at each change
}

// New returns an empty store. Close ends it.
func New() *Store {
	return &Store{tasks: map[string]*task{}, expired: map[string]bool{}}
}

// Close cancels the tasks and waits for their functions.
func (s *Store) Close() {
	s.mu.Lock()
	for _, t := range s.tasks {
		t.cancel()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// A Run is a task as its own function sees it.
type Run struct {
	store *Store
	task  *task
}

// Start begins a task for a client. Its function's result completes it; a
// [*jsonrpc.Error] fails it; the end of its context, which a client's cancel
// brings, cancels it, whatever the function returns then.
func (s *Store) Start(c *mcptasks.Client, run func(context.Context, *Run) (*mcp.CallToolResult, error)) mcptasks.Task {
	ctx, cancel := context.WithCancel(context.Background())
	at := now()
	t := &task{id: rand.Text(), created: at, updated: at, status: mcptasks.StatusWorking, message: "accepted",
		cancel: cancel, changed: make(chan struct{})}
	if s.Owner != nil {
		t.owner = s.Owner(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[t.id] = t
	s.order = append(s.order, t.id)
	s.running.Go(func() {
		defer cancel()
		result, err := run(ctx, &Run{s, t})
		s.mu.Lock()
		defer s.mu.Unlock()
		wire := (*jsonrpc.Error)(nil)
		switch {
		case ctx.Err() != nil:
			t.status, t.message = mcptasks.StatusCancelled, "cancelled by the client"
		case errors.As(err, &wire):
			t.status, t.err, t.message = mcptasks.StatusFailed, wire, wire.Message
		case err != nil:
			t.status, t.err = mcptasks.StatusFailed, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
			t.message = err.Error()
		default:
			t.status, t.result, t.message = mcptasks.StatusCompleted, result, "done"
		}
		t.open = nil
		t.touch()
	})
	return s.snapshot(t)
}

// Say sets the status message.
func (r *Run) Say(message string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.task.message = message
	r.task.touch()
}

// Ask opens questions and returns when all of them are answered.
func (r *Run) Ask(ctx context.Context, questions mcptasks.InputRequests) (mcptasks.InputResponses, error) {
	t := r.task
	r.store.mu.Lock()
	t.status, t.message = mcptasks.StatusInputRequired, "waiting for an answer"
	t.open, t.answers = maps.Clone(questions), mcptasks.InputResponses{}
	t.touch()
	for len(t.open) > 0 {
		changed := t.changed
		r.store.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.store.mu.Lock()
	}
	defer r.store.mu.Unlock()
	t.status, t.message = mcptasks.StatusWorking, "answered"
	t.touch()
	return t.answers, nil
}

func now() time.Time {
	return time.Now() //nolint:forbidigo // for tests, which are handed no clock
}

// touch makes a change known; the store is locked.
func (t *task) touch() {
	t.updated = now()
	close(t.changed)
	t.changed = make(chan struct{})
}

// snapshot returns a task as clients see it; the store is locked.
func (s *Store) snapshot(t *task) mcptasks.Task {
	poll := s.PollInterval
	if poll == 0 {
		poll = 100 * time.Millisecond
	}
	ttl := time.Hour
	return mcptasks.Task{ID: t.id, Status: t.status, StatusMessage: t.message, CreatedAt: t.created, LastUpdatedAt: t.updated,
		TTL: &ttl, PollInterval: poll, InputRequests: maps.Clone(t.open), Result: t.result, Error: t.err}
}

// find returns a task that the client may see; the store is locked.
func (s *Store) find(c *mcptasks.Client, id string) (*task, error) {
	t := s.tasks[id]
	switch {
	case t == nil && s.expired[id]:
		return nil, mcptasks.ErrExpiredTask
	case t == nil, s.Owner != nil && s.Owner(c) != t.owner:
		return nil, mcptasks.ErrUnknownTask
	}
	return t, nil
}

// Expire removes a task as if its ttl were over.
func (s *Store) Expire(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[id]; t != nil {
		t.cancel()
	}
	delete(s.tasks, id)
	s.expired[id] = true
}

// Get implements [mcptasks.Store].
func (s *Store) Get(_ context.Context, c *mcptasks.Client, id string) (mcptasks.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(c, id)
	if err != nil {
		return mcptasks.Task{}, err
	}
	return s.snapshot(t), nil
}

// Update implements [mcptasks.Store]. It takes any answer.
func (s *Store) Update(_ context.Context, c *mcptasks.Client, id string, answers mcptasks.InputResponses) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(c, id)
	if err != nil {
		return err
	}
	for key, a := range answers {
		if _, open := t.open[key]; open {
			t.answers[key] = a
			delete(t.open, key)
		}
	}
	t.touch()
	return nil
}

// Cancel implements [mcptasks.Store].
func (s *Store) Cancel(_ context.Context, c *mcptasks.Client, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(c, id)
	if err != nil {
		return err
	}
	if !t.status.Final() {
		t.cancel()
	}
	return nil
}

// Watch implements [mcptasks.Store].
func (s *Store) Watch(ctx context.Context, c *mcptasks.Client, id string, changed func(mcptasks.Task) error) error {
	for {
		s.mu.Lock()
		t, err := s.find(c, id)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		snapshot, next := s.snapshot(t), t.changed
		s.mu.Unlock()
		if err := changed(snapshot); err != nil || snapshot.Status.Final() {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List implements [mcptasks.Lister]: two tasks a page.
func (s *Store) List(_ context.Context, c *mcptasks.Client, cursor string) ([]mcptasks.Task, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	newest := slices.Clone(s.order)
	slices.Reverse(newest)
	if cursor != "" {
		if from = slices.Index(newest, cursor); from < 0 {
			return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is none of this server's"}
		}
	}
	var page []mcptasks.Task
	for _, id := range newest[from:] {
		t, err := s.find(c, id)
		if err != nil {
			continue
		}
		if len(page) == 2 {
			return page, id, nil
		}
		page = append(page, s.snapshot(t))
	}
	return page, "", nil
}
