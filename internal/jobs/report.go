package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// errEnded is the cause of errors about reports that came too late.
var errEnded = errors.New("the job has ended")

// Progress takes a job's report of its progress. At most one a second is
// stored and told to clients; the newest wins.
func (s *Supervisor) Progress(ctx context.Context, id string, p Progress) error {
	now := s.clock()
	p.At = now
	if !utf8.ValidString(p.Text) {
		return &Error{Kind: ErrInvalid, Message: "the progress text is not UTF-8"}
	}
	s.mu.Lock()
	l := s.live[id]
	if l != nil && (l.progress != nil || (l.job.Progress != nil && now.Since(l.job.Progress.At) < progressEvery)) {
		l.progress = &p
		s.mu.Unlock()
		s.arm(id)
		return nil
	}
	s.mu.Unlock()
	_, err := s.update(ctx, id, func(j *Job) error {
		if j.state.Final() || j.state == Queued {
			return &Error{Kind: ErrState, Message: fmt.Sprintf("job %s is %s and reports no progress", id, j.state), Err: errEnded}
		}
		return j.setProgress(p)
	})
	return err
}

// lastProgress gives a job that ends the report that is not stored yet.
func (s *Supervisor) lastProgress(j *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[j.ID]; l != nil && l.progress != nil {
		j.Progress = l.progress
	}
}

func (j *Job) setProgress(p Progress) error {
	if j.state.Final() {
		return ErrUnchanged
	}
	j.Progress = &p
	j.touch(p.At)
	return nil
}

// SetResult sets the result of a job that has not ended; a later one replaces
// it. The body's form is checked.
func (s *Supervisor) SetResult(ctx context.Context, id string, kind ResultKind, body []byte) error {
	if err := checkResult(kind, body); err != nil {
		return err
	}
	j, err := s.store.SetResult(ctx, id, body, func(j *Job) error {
		if j.state != Running && j.state != Waiting && j.state != Stopping && j.state != Starting {
			return &Error{Kind: ErrState, Message: fmt.Sprintf("job %s is %s, so its result cannot be set", id, j.state), Err: errEnded}
		}
		j.ResultKind = kind
		j.mark()
		return nil
	})
	if err == nil {
		s.publish(j)
	}
	return err
}

// checkResult refuses a body that is not of its kind.
func checkResult(kind ResultKind, body []byte) error {
	invalid := func(format string, args ...any) error {
		return &Error{Kind: ErrInvalid, Message: fmt.Sprintf(format, args...)}
	}
	switch kind {
	case ResultText:
		if !utf8.Valid(body) {
			return invalid("the result's text is not UTF-8; convert it, or name a file with jobd result --file")
		}
	case ResultJSON:
		if !json.Valid(body) {
			return invalid("the result is not one JSON value")
		}
	case ResultMCP:
		var r struct {
			Content []json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(body, &r); err != nil || r.Content == nil {
			return invalid(`the result is not a CallToolResult: it needs at least {"content": [...]}`)
		}
	case ResultError:
		var r RaisedError
		if err := json.Unmarshal(body, &r); err != nil || r.Code == 0 || r.Message == "" {
			return invalid(`a protocol error needs a code other than 0 and a message`)
		}
	default:
		return invalid("there is no result of kind %q; use text, json, mcp or error", kind)
	}
	return nil
}

// Result returns a job with the body that it set.
func (s *Supervisor) Result(ctx context.Context, id string) ([]byte, error) {
	return s.store.Result(ctx, id)
}

// Deliver records that the final result reached its owner: the session that
// owns the job or, for a job of the shell, a shell. Any other reader, and a job
// that is live or delivered already, changes nothing.
func (s *Supervisor) Deliver(ctx context.Context, id string, r Reader) error {
	_, err := s.update(ctx, id, func(j *Job) error {
		if !j.state.Final() || !j.Delivered.IsZero() || !r.owns(j) {
			return ErrUnchanged
		}
		j.Delivered = s.clock()
		j.Keys.Join = ""
		j.mark()
		return nil
	})
	return err
}

// Announce returns the jobs of a project that a session is to be told of,
// newest first, and marks the final ones as told, so that of sessions which
// start at once only one is told. If ctx ends meanwhile nobody hears of them,
// and the marks are taken back.
func (s *Supervisor) Announce(ctx context.Context, project string) ([]Job, error) {
	found, err := s.store.Jobs(ctx, Filter{Project: project, Pending: true, Unmarked: true})
	if err != nil {
		return nil, err
	}
	told, marked := found[:0], []string(nil)
	for _, j := range found {
		if j.state.Final() {
			mine := false
			_, err := s.update(ctx, j.ID, func(j *Job) error {
				if mine = j.Announced.IsZero() && j.Delivered.IsZero(); !mine {
					return ErrUnchanged
				}
				j.Announced = s.clock()
				j.mark()
				return nil
			})
			if err = errors.Join(err, ctx.Err()); err != nil {
				if mine {
					marked = append(marked, j.ID)
				}
				s.unannounce(context.WithoutCancel(ctx), marked)
				return nil, err
			}
			if !mine {
				continue
			}
			marked = append(marked, j.ID)
		}
		told = append(told, j)
	}
	return told, nil
}

// unannounce takes the marks of jobs back that nobody was told of.
func (s *Supervisor) unannounce(ctx context.Context, ids []string) {
	for _, id := range ids {
		if _, err := s.update(ctx, id, func(j *Job) error {
			if j.Announced.IsZero() {
				return ErrUnchanged
			}
			j.Announced = Instant{}
			j.mark()
			return nil
		}); err != nil {
			s.log.Error("taking back that a job was announced", "job", id, "err", err)
		}
	}
}

// TTL returns how long after its creation a job is kept; ok is false while it
// is live, for a live job never expires.
func (s *Supervisor) TTL(j *Job) (ms int64, ok bool) {
	if !j.state.Final() {
		return 0, false
	}
	return (j.Ended.Since(j.Created) + s.retention).Milliseconds(), true
}
