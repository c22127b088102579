package mcptasks

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

const (
	defaultTokens   = 1024
	defaultTokenTTL = time.Hour
)

// A Round is what is kept of a call that was answered with questions.
type Round struct {
	// Binding is a digest of all that the repeated call must have in common with
	// this one: method, tool, arguments and [Options.Principal].
	Binding string
	// Number is the round that the repeated call begins.
	Number int
	// Keys are the keys asked.
	Keys []string
	// State is the handler's.
	State string
}

// ErrBadToken says that a token was never given out, was used, or has expired.
var ErrBadToken = errors.New("requestState is unknown, expired or was used before")

// Tokens keep rounds between a call and its repetition. A token is the
// requestState that the client echoes: it says nothing, cannot be guessed and
// is good once. The extension checks the binding itself.
type Tokens interface {
	// Issue keeps a round and returns a new token for it.
	Issue(ctx context.Context, r Round) (token string, err error)
	// Redeem gives the round back and forgets the token, whatever becomes of the
	// call. It returns [ErrBadToken] for any token it does not have.
	Redeem(ctx context.Context, token string) (Round, error)
}

// NewTokens returns tokens kept in memory: at most limit of them (the oldest
// goes first), each for at most ttl.
func NewTokens(limit int, ttl time.Duration) Tokens {
	return &memoryTokens{limit: limit, ttl: ttl, byToken: map[string]*list.Element{}, oldest: list.New()}
}

type memoryTokens struct {
	limit int
	ttl   time.Duration

	mu      sync.Mutex
	byToken map[string]*list.Element
	oldest  *list.List // of memoryToken, oldest first
}

type memoryToken struct {
	token string
	round Round
	until time.Time
}

// Issue implements [Tokens].
func (m *memoryTokens) Issue(_ context.Context, r Round) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := now()
	for e := m.oldest.Front(); e != nil; e = m.oldest.Front() {
		if m.oldest.Len() < m.limit && at.Before(e.Value.(memoryToken).until) {
			break
		}
		m.drop(e)
	}
	t := memoryToken{token: rand.Text(), round: r, until: at.Add(m.ttl)}
	m.byToken[t.token] = m.oldest.PushBack(t)
	return t.token, nil
}

// Redeem implements [Tokens].
func (m *memoryTokens) Redeem(_ context.Context, token string) (Round, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byToken[token]
	if e == nil {
		return Round{}, ErrBadToken
	}
	m.drop(e)
	t := e.Value.(memoryToken)
	if !now().Before(t.until) {
		return Round{}, ErrBadToken
	}
	return t.round, nil
}

// now is the only clock here: it decides how long tokens and results are kept in
// memory, nothing that is told or stored elsewhere.
func now() time.Time {
	return time.Now() //nolint:forbidigo // a library that is handed no clock
}

func (m *memoryTokens) drop(e *list.Element) {
	m.oldest.Remove(e)
	delete(m.byToken, e.Value.(memoryToken).token)
}
