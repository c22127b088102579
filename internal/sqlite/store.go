package sqlite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"jobd/internal/jobs"
)

// CreateJob implements [jobs.Store]. Besides decide's, its errors are of kind
// [jobs.ErrInvalid] for a spec that is not UTF-8 or has arguments that are not
// JSON, and [jobs.ErrConflict] for an id or a key that another job holds.
func (d *DB) CreateJob(ctx context.Context, j jobs.Job, decide func(jobs.Holders) (*jobs.Job, error)) (stored jobs.Job, created bool, err error) {
	// What needs no transaction comes before it, for others wait for that.
	spec, err := encodeSpec(&j)
	if err != nil {
		return jobs.Job{}, false, err
	}
	err = d.write(ctx, "storing job "+j.ID, func(t *transaction) (own, err error) {
		h, err := d.holders(t, &j)
		if err != nil {
			return nil, err
		}
		existing, own := decide(h)
		if own != nil {
			return own, nil
		}
		if existing != nil {
			stored, created = *existing, false
			return nil, nil
		}
		if j.Keys.Join != "" {
			if err := dropJoinKey(t, j.Keys.Join); refused(err) {
				return &jobs.Error{Kind: jobs.ErrUnavailable, Err: err, Message: fmt.Sprintf(
					"storing job %s: the record of the identical job before it is damaged in %s; give the call a fresh idempotency key", j.ID, d.path)}, nil
			} else if err != nil {
				return nil, err
			}
		}
		j.Seq, err = insertJob(t, &j, spec)
		if taken(err) {
			return conflict(&j, h), nil
		}
		if err == nil {
			err = insertEvents(t, j.Seq, j.Applied())
		}
		if err == nil {
			err = storeQuestions(t, j.Seq, nil, j.Questions)
		}
		stored, created = j, true
		return nil, err
	})
	if err != nil {
		return jobs.Job{}, false, err
	}
	return stored, created, nil
}

// conflict says which unique value of a new job is in use.
func conflict(j *jobs.Job, h jobs.Holders) error {
	what := "there is a job with this id"
	switch {
	case h.Request != nil:
		what = fmt.Sprintf("the call was made before and started job %s", h.Request.ID)
	case h.Idempotency != nil:
		what = fmt.Sprintf("the idempotency key %q belongs to job %s", j.Keys.Idempotency, h.Idempotency.ID)
	}
	return &jobs.Error{Kind: jobs.ErrConflict, Message: "storing job " + j.ID + ": " + what}
}

// holders finds who holds the keys of a new job.
func (d *DB) holders(t *transaction, j *jobs.Job) (h jobs.Holders, err error) {
	rows, err := jobsByKeys(t, j)
	if err != nil {
		return h, err
	}
	for _, row := range rows {
		has := row.job.Keys
		held, err := d.whole(t, row)
		byRequest := j.Keys.Request != "" && has.Request == j.Keys.Request
		byIdempotency := j.Keys.Idempotency != "" && has.Idempotency == j.Keys.Idempotency && (err != nil || held.Spec.Project == j.Spec.Project)
		switch {
		case err == nil:
		case isDamaged(err) && !byRequest && !byIdempotency:
			continue // what is damaged cannot be joined, and need not bar the way
		default:
			return h, err
		}
		if byRequest {
			h.Request = &held
		}
		if byIdempotency {
			h.Idempotency = &held
		}
		if j.Keys.Join != "" && has.Join == j.Keys.Join {
			h.Join = &held
		}
	}
	return h, nil
}

// UpdateJob implements [jobs.Store]. Besides change's, its errors are of kind
// [jobs.ErrConflict] for a key that another job holds, and [jobs.ErrInvalid]
// for a change of what never changes: id, number and spec.
func (d *DB) UpdateJob(ctx context.Context, id string, change func(*jobs.Job) error) (jobs.Job, error) {
	return d.update(ctx, id, change, func(*transaction, int64) error { return nil })
}

// SetResult implements [jobs.Store]. If change returns [jobs.ErrUnchanged] the
// body is not stored either.
func (d *DB) SetResult(ctx context.Context, id string, body []byte, change func(*jobs.Job) error) (jobs.Job, error) {
	return d.update(ctx, id, change, func(t *transaction, seq int64) error { return storeResult(t, seq, body) })
}

func (d *DB) update(ctx context.Context, id string, change func(*jobs.Job) error, also func(t *transaction, seq int64) error) (j jobs.Job, err error) {
	err = d.write(ctx, "storing job "+id, func(t *transaction) (own, err error) {
		was, err := d.job(t, id)
		if err != nil {
			return nil, err
		}
		j = was
		// change may write to the questions, though it should not.
		was.Questions = slices.Clone(was.Questions)
		if own := change(&j); errors.Is(own, jobs.ErrUnchanged) {
			j = was
			return nil, nil
		} else if own != nil {
			return own, nil
		}
		if j.ID != was.ID || j.Seq != was.Seq || !reflect.DeepEqual(j.Spec, was.Spec) {
			return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("storing job %s: its id, number and spec can never change", id)}, nil
		}
		if err = updateJob(t, &was, &j); taken(err) {
			return &jobs.Error{Kind: jobs.ErrConflict, Err: err, Message: fmt.Sprintf("storing job %s: another job holds one of its keys", id)}, nil
		}
		if err == nil {
			err = insertEvents(t, j.Seq, j.Applied())
		}
		if err == nil {
			err = storeQuestions(t, j.Seq, was.Questions, j.Questions)
		}
		if err == nil {
			err = also(t, j.Seq)
		}
		return nil, err
	})
	if err != nil {
		return jobs.Job{}, err
	}
	return j, nil
}

// Job implements [jobs.Store].
func (d *DB) Job(ctx context.Context, id string) (j jobs.Job, err error) {
	err = d.read(ctx, func(q queries) (err error) {
		j, err = d.job(q, id)
		return err
	})
	return j, d.explain("reading job "+id, err)
}

// job reads a job as part of a transaction.
func (d *DB) job(q queries, id string) (jobs.Job, error) {
	row, ok, err := jobByID(q, id)
	if err != nil {
		return jobs.Job{}, err
	}
	if !ok {
		return jobs.Job{}, absent(q, id, false)
	}
	return d.whole(q, row)
}

// absent is the error about a job that is not there: it tells one that is
// expired from one that never was.
func absent(q queries, id string, prefix bool) error {
	whole, ok, err := isExpired(q, id, prefix)
	switch {
	case err != nil:
		return err
	case ok:
		return &jobs.Error{Kind: jobs.ErrExpired, Message: fmt.Sprintf("job %s is no longer kept: its retention is over, or it was pruned", whole)}
	case prefix:
		return &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("there is no job whose id starts with %q", id)}
	}
	return &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("there is no job %q", id)}
}

// candidates is how many jobs are named where a prefix fits more than one.
const candidates = 5

// ambiguous names the jobs that a prefix fits, each by as much of its id as
// tells it from the others.
func ambiguous(prefix string, rows []jobRow) error {
	more := ""
	if len(rows) > candidates {
		rows, more = rows[:candidates], " and more"
	}
	length := 8
	for i := 1; i < len(rows); i++ { // they are in the order of their ids
		a, b := rows[i-1].job.ID, rows[i].job.ID
		common := 0
		for common < min(len(a), len(b)) && a[common] == b[common] {
			common++
		}
		length = max(length, common+1)
	}
	var list []string
	for _, r := range rows {
		list = append(list, fmt.Sprintf("%s (%s, %s)", r.job.ID[:min(length, len(r.job.ID))], jobs.OneLine(r.job.Spec.Name, 40), r.state))
	}
	return &jobs.Error{Kind: jobs.ErrAmbiguous, Message: fmt.Sprintf("more than one job has an id that starts with %q: %s%s; give more of it",
		prefix, strings.Join(list, ", "), more)}
}

// FindJob implements [jobs.Store]. An empty prefix gives an error of kind
// [jobs.ErrInvalid].
func (d *DB) FindJob(ctx context.Context, prefix string) (j jobs.Job, err error) {
	if prefix == "" {
		return j, &jobs.Error{Kind: jobs.ErrInvalid, Message: "name a job by its id, or by the start of it"}
	}
	err = d.read(ctx, func(q queries) error {
		rows, err := jobsByPrefix(q, prefix, candidates+1)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return absent(q, prefix, true)
		case len(rows) > 1 && rows[0].job.ID != prefix:
			return ambiguous(prefix, rows)
		}
		j, err = d.whole(q, rows[0])
		return err
	})
	return j, d.explain("looking for job "+prefix, err)
}

// Jobs implements [jobs.Store]. A job whose row is damaged is left out and told
// to [Options.OnDamage].
func (d *DB) Jobs(ctx context.Context, f jobs.Filter) (found []jobs.Job, err error) {
	err = d.read(ctx, func(q queries) error {
		page := f
		for {
			rows, err := filterJobs(q, page)
			if err != nil {
				return err
			}
			questions, err := questionsOf(q, rows)
			if err != nil {
				return err
			}
			for i := range rows {
				j, err := rows[i].restore(questions[rows[i].job.Seq])
				if err != nil {
					d.report(rows[i].job.ID, err)
					continue
				}
				found = append(found, j)
			}
			// Others take the place of those that were left out.
			if f.Limit <= 0 || len(found) == f.Limit || len(rows) < page.Limit {
				return nil
			}
			page.Limit, page.Before = f.Limit-len(found), rows[len(rows)-1].job.Seq
		}
	})
	if err != nil {
		return nil, d.explain("listing jobs", err)
	}
	return found, nil
}

// History implements [jobs.Store].
func (d *DB) History(ctx context.Context, id string) (history []jobs.Applied, err error) {
	err = d.about(ctx, id, func(q queries, seq int64) error {
		history, err = eventsOf(q, seq)
		return err
	})
	return history, d.explain("reading the history of job "+id, err)
}

// Result implements [jobs.Store].
func (d *DB) Result(ctx context.Context, id string) (body []byte, err error) {
	err = d.about(ctx, id, func(q queries, seq int64) error {
		body, err = resultOf(q, seq)
		return err
	})
	return body, d.explain("reading the result of job "+id, err)
}

// about runs f with the number of a job, whether or not its row is damaged.
func (d *DB) about(ctx context.Context, id string, f func(q queries, seq int64) error) error {
	return d.read(ctx, func(q queries) error {
		row, ok, err := jobByID(q, id)
		if err == nil && !ok {
			return absent(q, id, false)
		}
		if err != nil {
			return err
		}
		return f(q, row.job.Seq)
	})
}

// DeleteJobs implements [jobs.Store]. The ids of the newest 100,000 jobs are
// kept as expired ones; older ones are forgotten.
func (d *DB) DeleteJobs(ctx context.Context, ids []string, now jobs.Instant) (deleted []string, err error) {
	err = d.write(ctx, "deleting jobs", func(t *transaction) (own, err error) {
		deleted = nil
		for _, id := range ids {
			seq, ok, err := deleteJob(t, id)
			if err == nil && ok {
				err = insertExpired(t, seq, id, now)
				deleted = append(deleted, id)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, forgetExpired(t)
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// whole makes the job of a row, with its questions.
func (d *DB) whole(q queries, row jobRow) (jobs.Job, error) {
	rows := []jobRow{row}
	questions, err := questionsOf(q, rows)
	if err != nil {
		return jobs.Job{}, err
	}
	j, err := rows[0].restore(questions[row.job.Seq])
	if err != nil {
		d.report(row.job.ID, err)
		return jobs.Job{}, &jobs.DamagedError{ID: row.job.ID, Place: d.path, Err: err}
	}
	return j, nil
}

// report tells of a damaged row, once.
func (d *DB) report(id string, err error) {
	if _, again := d.reported.LoadOrStore(id, true); !again && d.onDamage != nil {
		d.onDamage(id, err)
	}
}

// encodeSpec returns the spec as it is stored. JSON has no form for texts that
// are not UTF-8, and would change the command without a word.
func encodeSpec(j *jobs.Job) (string, error) {
	for _, text := range append([]string{j.Spec.Tool, j.Spec.Name, j.Spec.Dir, j.Spec.Project, j.Spec.Session, j.Spec.Group}, j.Spec.Argv...) {
		if !utf8.ValidString(text) {
			return "", &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("%q is not UTF-8, so it cannot be kept as part of a job", text)}
		}
	}
	return encode("spec", &j.Spec)
}
