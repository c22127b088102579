package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"jobd/internal/jobs"
)

// eventRebuilt is the one event that a rebuilt job's history begins with.
const eventRebuilt jobs.Event = "rebuilt"

// RebuildJob implements [jobs.Store]. What was there lies in the file
// "path.damaged-row-ID" afterwards, as JSON; text that is not UTF-8 and blobs
// are in it as base64.
func (d *DB) RebuildJob(ctx context.Context, id string, now jobs.Instant, rebuild func(jobs.Job) (jobs.Job, error)) (j jobs.Job, rebuilt bool, err error) {
	doing := "rebuilding job " + id
	if healthy, err := d.setRowAside(ctx, id); err != nil || healthy != nil {
		if healthy != nil {
			return *healthy, false, nil
		}
		return jobs.Job{}, false, d.explain(doing, err)
	}
	err = d.write(ctx, doing, func(t *transaction) (own, err error) {
		rebuilt = false
		row, damage, err := d.inspectRow(t, id)
		if err != nil {
			return nil, err
		}
		if damage == nil {
			j, err = d.whole(t, row)
			return nil, err
		}
		// A value that changed on the disk has no entry in the indexes, which then
		// could not be brought up to date.
		for _, table := range []string{"jobs", "questions"} {
			if _, err := t.exec("REINDEX " + table); err != nil {
				return nil, err
			}
		}
		kept, err := salvage(t, id, row.job.Seq)
		if err != nil {
			return nil, err
		}
		fresh, own := rebuild(kept)
		if own != nil {
			return own, nil
		}
		fresh.ID, fresh.Seq = id, row.job.Seq
		revision, err := beyond(t, &fresh)
		if err != nil {
			return nil, err
		}
		if fresh, own = jobs.Restore(fresh, fresh.State(), revision); own != nil {
			return own, nil
		}
		if j, rebuilt = fresh, true; j.Updated.IsZero() {
			j.Updated = now
		}
		return nil, replaceJob(t, &j, jobs.Applied{Revision: revision, Event: eventRebuilt, State: j.State(), At: now,
			Note: fmt.Sprintf("its row was damaged: %v", damage)})
	})
	if err != nil {
		return jobs.Job{}, false, err
	}
	d.reported.Delete(id)
	return j, rebuilt, nil
}

// inspectRow reads the row of a job and says what is wrong with it, nil for
// nothing. The row's number is right in any case.
func (d *DB) inspectRow(q queries, id string) (row jobRow, damage, err error) {
	row, ok, err := jobByID(q, id)
	if err != nil {
		return row, nil, err
	}
	if !ok {
		return row, nil, absent(q, id, false)
	}
	_, err = d.whole(q, row)
	if e, ok := errors.AsType[*jobs.DamagedError](err); ok {
		return row, e.Err, nil
	}
	return row, nil, err
}

// setRowAside copies the row of a job that cannot be read, with its questions
// and history, into a file. It returns the job where it can be read.
func (d *DB) setRowAside(ctx context.Context, id string) (healthy *jobs.Job, err error) {
	var copied []byte
	err = d.read(ctx, func(q queries) error {
		row, damage, err := d.inspectRow(q, id)
		if err != nil {
			return err
		}
		if damage == nil {
			j, err := d.whole(q, row)
			healthy = &j
			return err
		}
		all := map[string]any{"job": id, "damage": damage.Error()}
		for table, column := range map[string]string{"jobs": "seq", "questions": "job", "events": "job"} {
			if all[table], err = rawRows(q, "SELECT * FROM "+table+" WHERE "+column+" = ?", row.job.Seq); err != nil {
				return err
			}
		}
		copied, err = json.MarshalIndent(all, "", "  ")
		return err
	})
	if err != nil || healthy != nil {
		return healthy, err
	}
	path := d.path + ".damaged-row-" + id
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("setting the damaged row aside: %w", err)
	}
	_, err = f.Write(append(copied, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("setting the damaged row aside: %w", err)
	}
	return nil, nil
}

// rawRows reads rows as they are, by the names of their columns.
func rawRows(q queries, text string, args ...any) (found []map[string]any, err error) {
	rows, err := q.query(text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values := make([]any, len(names))
		dest := make([]any, len(names))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		row := map[string]any{}
		for i, name := range names {
			if s, ok := values[i].(string); ok && strings.ToValidUTF8(s, "") != s {
				values[i] = []byte(s) // JSON would change it
			}
			row[name] = values[i]
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

// salvage makes of a damaged row a job with the fields that can be read.
func salvage(q queries, id string, seq int64) (jobs.Job, error) {
	rows, err := rawRows(q, "SELECT * FROM jobs WHERE seq = ?", seq)
	if err != nil || len(rows) == 0 {
		return jobs.Job{}, err
	}
	row := rows[0]
	str := func(name string) string {
		s, _ := row[name].(string)
		return s
	}
	at := func(name string) jobs.Instant {
		t, err := parseInstant(str(name))
		if err != nil {
			return jobs.Instant{}
		}
		return t
	}
	j := jobs.Job{ID: id, Seq: seq,
		Keys:    jobs.Keys{Request: str("request_key"), Idempotency: str("idempotency_key"), Join: str("join_key")},
		Created: at("created"), Launched: at("launched"), Started: at("started"), Ended: at("ended"),
		Delivered: at("delivered"), Announced: at("announced"),
	}
	switch kind := jobs.ResultKind(str("result_kind")); kind {
	case jobs.ResultText, jobs.ResultJSON, jobs.ResultMCP, jobs.ResultError:
		j.ResultKind = kind
	}
	// A field that cannot be read stays as it is without one.
	if sum, ok := row["spec_sum"].(int64); ok && sum >= 0 && sum <= 1<<32-1 {
		if decodeSpec([]byte(str("spec")), uint32(sum), &j.Spec) != nil {
			j.Spec = jobs.Spec{}
		}
	}
	if s := str("exit"); s != "" {
		_ = decodeExit([]byte(s), &j.Exit)
	}
	if s := str("stop"); s != "" {
		_ = decodeStop([]byte(s), &j.Stop)
	}
	if j.Stop != nil && j.Stop.Cause != jobs.CauseCancel && j.Stop.Cause != jobs.CauseTimeout && j.Stop.Cause != jobs.CauseUnanswered {
		j.Stop = nil
	}
	return j, nil
}

// beyond returns a revision that is greater than every one the job has had.
func beyond(q queries, j *jobs.Job) (int64, error) {
	var in, at int64
	if _, err := first(q, []any{&in}, "SELECT coalesce(max(CAST(revision AS INTEGER)), 0) FROM events WHERE job = ?", j.Seq); err != nil {
		return 0, err
	}
	if _, err := first(q, []any{&at}, "SELECT coalesce(max(CAST(revision AS INTEGER)), 0) FROM jobs WHERE seq = ?", j.Seq); err != nil {
		return 0, err
	}
	// What a damaged row says of it may be anything: that must not use up all
	// numbers.
	const most = int64(1) << 40
	if at > most {
		at = 0
	}
	return 1 + max(in, at, j.Revision()), nil
}

// replaceJob stores all of a job in the row that it has, its questions and a
// history of one event.
func replaceJob(t *transaction, j *jobs.Job, event jobs.Applied) error {
	spec, err := encodeSpec(j)
	if err != nil {
		return err
	}
	life, err := lifeOf(j)
	if err != nil {
		return err
	}
	args := append(life, j.ID, instantText(j.Created), j.Spec.Project, j.Spec.Session, searchText(&j.Spec), checksumOf(spec), spec, j.Seq)
	if _, err := t.exec(`UPDATE jobs SET
			state = ?, revision = ?, updated = ?, launched = ?, started = ?, announced = ?, pid = ?, reason = ?, run_used = ?, run_since = ?,
			result_kind = ?, output_bytes = ?, output_dropped = ?, unfollowed = ?, questions = ?, exit = ?, stop = ?, progress = ?,
			ended = ?, delivered = ?, request_key = ?, idempotency_key = ?, join_key = ?,
			id = ?, created = ?, project = ?, session = ?, search = ?, spec_sum = ?, spec = ?
		WHERE seq = ?`, args...); err != nil {
		return err
	}
	for _, table := range []string{"questions", "events"} {
		if _, err := t.exec("DELETE FROM "+table+" WHERE job = ?", j.Seq); err != nil {
			return err
		}
	}
	if err := storeQuestions(t, j.Seq, nil, j.Questions); err != nil {
		return err
	}
	return insertEvents(t, j.Seq, []jobs.Applied{event})
}
