package mcptasks

import (
	"context"
	"errors"
	"time"
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

// ErrBadToken: the token was never given out, was used, or has expired.
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

// NewTokens returns tokens kept in memory: at most max of them (the oldest goes
// first), each for at most ttl.
func NewTokens(max int, ttl time.Duration) Tokens {
	return newMemoryTokens(max, ttl, time.Now)
}
