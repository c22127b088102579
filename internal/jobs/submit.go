package jobs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Submission is a call that wants a job.
type Submission struct {
	// Spec is what to run; Submit sets its Digest.
	Spec Spec
	// Environ returns the command's environment as NAME=VALUE, for a job that
	// gets this id. It is written to the bundle only.
	Environ func(id string) []string
	// Prepared, if set, adds to the job's bundle before the job is stored.
	Prepared func(id string) error
	// Identity is what makes two calls the same, the values of the env argument
	// included. It is hashed with a key and not stored.
	Identity []byte
	// Request identifies the call across its retries. Never empty.
	Request string
	// Key is the caller's idempotency key, "" = none.
	Key string
	// Join: without Key, an identical call of the same session is one job.
	Join bool
	// Refuse, if set, is returned where the call finds no job: it creates none.
	Refuse error

	// reruns is the id of the lost job that this one runs again, "" = none. It
	// takes over that job's join key.
	reruns string
}

// Joined says by which of its keys a call found a job that was there.
type Joined string

// The ways to find a job.
const (
	JoinedNot     Joined = ""        // it is a new job
	JoinedRequest Joined = "request" // the call was made before
	JoinedKey     Joined = "key"     // by the idempotency key
	JoinedSession Joined = "session" // an identical call of the session
)

// digestSetting is the setting that holds the key of the keyed hashes.
const digestSetting = "digest_key"

// Submit makes a job of a call, or finds the one that the call means. When it
// returns, the job is on disk and will run even if the daemon is killed.
//
// Its errors are of kind [ErrConflict] for an idempotency key that was used
// for something else, [ErrUnavailable] where nothing could be stored.
func (s *Supervisor) Submit(ctx context.Context, sub Submission) (Job, Joined, error) {
	sub.Spec.Digest = s.digest(sub.Identity)
	keys := Keys{Request: sub.Request, Idempotency: sub.Key}
	if sub.Join && sub.Key == "" && !sub.Spec.Shell {
		keys.Join = s.digest([]byte(sub.Spec.Session + "\x00" + sub.Spec.Digest))
	}
	id := newID()
	if err := s.runner.Prepare(ctx, id, sub.Spec, sub.Environ(id)); err != nil {
		return Job{}, "", fmt.Errorf("preparing the job's bundle: %w", err)
	}
	if sub.Prepared != nil {
		if err := sub.Prepared(id); err != nil {
			return Job{}, "", errors.Join(err, s.runner.Discard(context.WithoutCancel(ctx), id))
		}
	}
	s.step("submit prepared")
	joined := JoinedNot
	j, created, err := s.store.CreateJob(ctx, New(id, sub.Spec, keys, s.clock()), func(h Holders) (*Job, error) {
		joined = JoinedNot
		switch {
		case h.Request != nil:
			joined = JoinedRequest
			return h.Request, nil
		case h.Idempotency != nil:
			if h.Idempotency.Spec.Digest != sub.Spec.Digest {
				return nil, conflict(h.Idempotency, &sub)
			}
			joined = JoinedKey
			return h.Idempotency, nil
		case h.Join != nil && h.Join.ID != sub.reruns && h.Join.joinable():
			joined = JoinedSession
			return h.Join, nil
		}
		return nil, sub.Refuse
	})
	s.step("submit committed")
	if !created {
		if err := s.runner.Discard(context.WithoutCancel(ctx), id); err != nil {
			s.log.Error("removing the bundle of a job that was not created", "job", id, "err", err)
		}
	}
	if err != nil {
		return Job{}, "", err
	}
	if created {
		s.adopt(j)
		s.enqueue(j.ID)
		return j, JoinedNot, nil
	}
	if j.Unfollowed {
		j, err = s.update(ctx, j.ID, func(j *Job) error {
			j.Unfollowed = false
			j.mark()
			return nil
		})
	}
	return j, joined, err
}

// joinable reports whether an identical call of the same session gets this job
// instead of a new one.
func (j *Job) joinable() bool {
	switch j.state {
	case Queued, Starting, Running, Waiting:
		return true
	case Succeeded, Failed, TimedOut, Errored, Lost:
		return j.Delivered.IsZero()
	case Stopping, Cancelled, Unanswered:
		return false
	}
	return false
}

// conflict names how a call differs from the job that holds its key. Of env it
// names names only.
func conflict(j *Job, sub *Submission) error {
	var differs []string
	add := func(what, had, has string) {
		if had != has {
			differs = append(differs, fmt.Sprintf("%s was %q and is now %q", what, clip(had, 200), clip(has, 200)))
		}
	}
	add("the tool", j.Spec.Tool, sub.Spec.Tool)
	add("the command", strings.Join(j.Spec.Argv, " "), strings.Join(sub.Spec.Argv, " "))
	add("the directory", j.Spec.Dir, sub.Spec.Dir)
	add("the names in env", strings.Join(j.Spec.EnvNames, ", "), strings.Join(sub.Spec.EnvNames, ", "))
	if len(differs) == 0 && string(j.Spec.Args) != string(sub.Spec.Args) {
		add("the arguments", string(j.Spec.Args), string(sub.Spec.Args))
	}
	if len(differs) == 0 && slices.Equal(j.Spec.EnvNames, sub.Spec.EnvNames) {
		differs = append(differs, "the values of env are other ones")
	}
	return &Error{Kind: ErrConflict, Message: fmt.Sprintf(
		"the idempotency key %q belongs to job %s of this project, which is not the same call: %s; use another key, or repeat the call as it was",
		sub.Key, j.ID, strings.Join(differs, "; "))}
}

// clip cuts s to at most n bytes, on a character's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// digest is a keyed hash: equal inputs of one database give equal digests, and
// nobody without the database can try values.
func (s *Supervisor) digest(b []byte) string {
	m := hmac.New(sha256.New, s.digestKey)
	m.Write(b)
	return hex.EncodeToString(m.Sum(nil))
}

// loadDigestKey reads the key of digest, and makes it in a new database.
func (s *Supervisor) loadDigestKey(ctx context.Context) error {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	v, err := s.store.SetSetting(ctx, digestSetting, hex.EncodeToString(fresh), true)
	if err != nil {
		return fmt.Errorf("reading the digest key: %w", err)
	}
	if s.digestKey, err = hex.DecodeString(v); err != nil || len(s.digestKey) == 0 {
		return errors.New("the database's digest key is damaged")
	}
	return nil
}

// newID returns 128 random bits in hexadecimal.
func newID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
