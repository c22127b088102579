package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"jobd/internal/jobs"
)

// A jobRow is a row of the table jobs on its way to a [jobs.Job].
type jobRow struct {
	job       jobs.Job // without state, revision and questions
	state     jobs.State
	revision  int64
	questions int // how many there are in their table
	// damage says why the row cannot be used. job.ID and job.Seq are right all
	// the same.
	damage error
}

// jobColumns are what scanJob reads.
// What names a job comes first, so that it is known even if the rest is damaged.
const jobColumns = "seq, id, request_key, idempotency_key, join_key, state, revision, created, updated, launched, started, " +
	"ended, delivered, announced, pid, reason, run_used, run_since, result_kind, output_bytes, output_dropped, " +
	"unfollowed, questions, exit, stop, progress, spec_sum, spec"

// scanJob reads a row of jobColumns.
func scanJob(rows *sql.Rows) jobRow {
	var (
		r                    jobRow
		j                    = &r.job
		request, key, join   sql.Null[string]
		exit, stop, progress sql.RawBytes
		spec                 sql.RawBytes
		sum                  uint32
	)
	err := rows.Scan(&j.Seq, &j.ID, &request, &key, &join, &r.state, &r.revision,
		instantColumn{&j.Created}, instantColumn{&j.Updated}, instantColumn{&j.Launched}, instantColumn{&j.Started},
		instantColumn{&j.Ended}, instantColumn{&j.Delivered}, instantColumn{&j.Announced},
		&j.PID, &j.Reason, &j.RunUsed, &j.RunSince, &j.ResultKind, &j.OutputBytes, &j.OutputDropped,
		&j.Unfollowed, &r.questions, &exit, &stop, &progress, &sum, &spec)
	j.Keys = jobs.Keys{Request: request.V, Idempotency: key.V, Join: join.V}
	if err != nil {
		r.damage = err
		return r
	}
	r.damage = errors.Join(decodeSpec(spec, sum, &j.Spec), decodeExit(exit, &j.Exit), decodeStop(stop, &j.Stop), decodeProgress(progress, &j.Progress))
	return r
}

// restore makes the job of a row and its questions.
func (r *jobRow) restore(questions []jobs.Question) (jobs.Job, error) {
	if r.damage == nil && len(questions) != r.questions {
		r.damage = fmt.Errorf("it has %d questions, and %d are there", r.questions, len(questions))
	}
	if r.damage != nil {
		return jobs.Job{}, r.damage
	}
	r.job.Questions = questions
	return jobs.Restore(r.job, r.state, r.revision)
}

// selectJobs reads rows of jobColumns; tail is what follows FROM.
func selectJobs(q queries, tail string, args ...any) (found []jobRow, err error) {
	rows, err := q.query("SELECT "+jobColumns+" FROM "+tail, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		found = append(found, scanJob(rows))
	}
	return found, rows.Err()
}

// jobByID reads one row; ok is false if there is none.
func jobByID(q queries, id string) (row jobRow, ok bool, err error) {
	found, err := selectJobs(q, "jobs WHERE id = ?", id)
	if err != nil || len(found) == 0 {
		return jobRow{}, false, err
	}
	if row = found[0]; row.job.ID != id {
		// The index still has the right one.
		row.job.ID, row.damage = id, fmt.Errorf("its id was changed on the disk to %q", row.job.ID)
	}
	return row, true, nil
}

// jobsByKeys reads the rows that hold one of the keys of j.
func jobsByKeys(q queries, j *jobs.Job) ([]jobRow, error) {
	return selectJobs(q, "jobs WHERE request_key = ? OR (idempotency_key = ? AND project = ?) OR join_key = ?",
		nullable(j.Keys.Request), nullable(j.Keys.Idempotency), j.Spec.Project, nullable(j.Keys.Join))
}

// jobsByPrefix reads at most so many rows whose id starts with prefix, the one
// whose id is all of it first.
func jobsByPrefix(q queries, prefix string, most int) ([]jobRow, error) {
	from, to := prefixRange(prefix)
	return selectJobs(q, "jobs WHERE id >= ? AND id < ? ORDER BY id LIMIT ?", from, to, most)
}

// prefixRange returns the bounds of the texts that start with prefix. Ids are
// ASCII, so nothing in them is as great as 0xff.
func prefixRange(prefix string) (from, to string) { return prefix, prefix + "\xff" }

// filterJobs reads the rows that fit f, newest first.
func filterJobs(q queries, f jobs.Filter) ([]jobRow, error) {
	var (
		where []string
		args  []any
	)
	and := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	from := "jobs"
	if f.Live || f.Pending {
		// Without statistics SQLite would rather read the whole table in order.
		from = "jobs INDEXED BY jobs_pending"
		and("delivered IS NULL") // only a final job is ever delivered
	}
	if f.Live {
		and("ended IS NULL")
	}
	if f.Project != "" {
		and("project = ?", f.Project)
	}
	if f.Session != "" {
		and("session = ?", f.Session)
	}
	if len(f.States) > 0 {
		list, err := json.Marshal(f.States)
		if err != nil {
			return nil, err
		}
		and("state IN (SELECT value FROM json_each(?))", string(list))
	}
	if f.Key != "" {
		and("idempotency_key = ?", f.Key)
	}
	if f.Text != "" {
		and("instr(search, ?) > 0", strings.ToLower(f.Text))
	}
	if f.Unmarked {
		and("announced IS NULL")
	}
	if f.Before > 0 {
		and("seq < ?", f.Before)
	}
	tail := from
	if len(where) > 0 {
		tail += " WHERE " + strings.Join(where, " AND ")
	}
	tail += " ORDER BY seq DESC"
	if f.Limit > 0 {
		tail += " LIMIT ?"
		args = append(args, f.Limit)
	}
	return selectJobs(q, tail, args...)
}

// insertJob adds a row and returns its number, the one after the greatest that
// was ever used.
func insertJob(t *transaction, j *jobs.Job, spec string) (int64, error) {
	life, err := lifeOf(j)
	if err != nil {
		return 0, err
	}
	args := append(life, j.ID, instantText(j.Created), j.Spec.Project, j.Spec.Session, searchText(&j.Spec), checksumOf(spec), spec)
	res, err := t.exec(`INSERT INTO jobs (
			state, revision, updated, launched, started, announced, pid, reason, run_used, run_since, result_kind,
			output_bytes, output_dropped, unfollowed, questions, exit, stop, progress,
			ended, delivered, request_key, idempotency_key, join_key,
			id, created, project, session, search, spec_sum, spec, seq)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
			1 + max(coalesce((SELECT max(seq) FROM jobs), 0), coalesce((SELECT max(seq) FROM expired), 0)))`, args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// updateJob stores what became of the job was.
func updateJob(t *transaction, was, j *jobs.Job) error {
	args, err := lifeOf(j)
	if err != nil {
		return err
	}
	// The columns that are indexed are left out where they are as they were:
	// SQLite would write their indexes anew.
	text := `UPDATE jobs SET state = ?, revision = ?, updated = ?, launched = ?, started = ?, announced = ?, pid = ?, reason = ?,
		run_used = ?, run_since = ?, result_kind = ?, output_bytes = ?, output_dropped = ?, unfollowed = ?, questions = ?,
		exit = ?, stop = ?, progress = ?`
	if was.Keys != j.Keys || was.Ended != j.Ended || was.Delivered != j.Delivered {
		text += ", ended = ?, delivered = ?, request_key = ?, idempotency_key = ?, join_key = ?"
	} else {
		args = args[:lifeColumns]
	}
	res, err := t.exec(text+" WHERE seq = ? AND revision = ?", append(args, was.Seq, was.Revision())...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("revision %d is gone", was.Revision()), err)
	}
	return nil
}

// lifeColumns is how many of lifeOf's values belong to columns without index.
const lifeColumns = 18

// lifeOf returns the values of a job that change: lifeColumns that are not
// indexed, then those that are.
func lifeOf(j *jobs.Job) ([]any, error) {
	exit, err := encodeExit(j.Exit)
	if err != nil {
		return nil, err
	}
	stop, err := encodeStop(j.Stop)
	if err != nil {
		return nil, err
	}
	progress, err := encodeProgress(j.Progress)
	if err != nil {
		return nil, err
	}
	return append(make([]any, 0, 32),
		string(j.State()), j.Revision(), instantText(j.Updated), instantText(j.Launched), instantText(j.Started), instantText(j.Announced),
		j.PID, j.Reason, int64(j.RunUsed), int64(j.RunSince), string(j.ResultKind),
		j.OutputBytes, j.OutputDropped, j.Unfollowed, len(j.Questions), exit, stop, progress,
		instantText(j.Ended), instantText(j.Delivered), nullable(j.Keys.Request), nullable(j.Keys.Idempotency), nullable(j.Keys.Join)), nil
}

// nullable is NULL for "".
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// dropJoinKey takes a join key from its holder.
func dropJoinKey(t *transaction, key string) error {
	_, err := t.exec("UPDATE jobs SET join_key = NULL WHERE join_key = ?", key)
	return err
}

// deleteJob removes a final job with all that belongs to it, and returns its
// number; ok is false if there is none.
func deleteJob(t *transaction, id string) (seq int64, ok bool, err error) {
	ok, err = first(t, []any{&seq}, "DELETE FROM jobs WHERE id = ? AND ended IS NOT NULL RETURNING seq", id)
	return seq, ok, err
}

// searchText is what [jobs.Filter.Text] is looked for in.
func searchText(s *jobs.Spec) string {
	return strings.ToLower(strings.Join([]string{s.Name, s.Tool, strings.Join(s.Argv, " "), s.Dir}, "\n"))
}

// castagnoli is the polynomial of spec_sum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksumOf(spec string) int64 { return int64(crc32.Checksum([]byte(spec), castagnoli)) }

func decodeSpec(text []byte, sum uint32, to *jobs.Spec) error {
	if crc32.Checksum(text, castagnoli) != sum {
		return errors.New("its spec was changed on the disk")
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("its spec cannot be read: %w", err)
	}
	return nil
}

// The JSON in the columns exit, stop and progress. Instants are as in columns.
type (
	exitJSON struct {
		NotStarted string `json:"not_started,omitempty"`
		Code       int    `json:"code"`
		Signal     int    `json:"signal,omitempty"`
		SignalName string `json:"signal_name,omitempty"`
		StopFirst  bool   `json:"stop_first,omitempty"`
		At         string `json:"at,omitempty"`
	}
	stopJSON struct {
		Cause   jobs.Cause `json:"cause"`
		Reason  string     `json:"reason,omitempty"`
		At      string     `json:"at,omitempty"`
		ByOwner bool       `json:"by_owner,omitempty"`
	}
	progressJSON struct {
		Done  float64 `json:"done"`
		Total float64 `json:"total,omitempty"`
		Text  string  `json:"text,omitempty"`
		At    string  `json:"at,omitempty"`
	}
)

func encodeExit(e *jobs.Exit) (any, error) {
	if e == nil {
		return nil, nil
	}
	return encode("exit", exitJSON{e.NotStarted, e.Code, e.Signal, e.SignalName, e.StopFirst, jsonInstant(e.At)})
}

func decodeExit(text []byte, to **jobs.Exit) error {
	e, at, err := decode("exit", text, func(e *exitJSON) string { return e.At })
	if e != nil {
		*to = &jobs.Exit{NotStarted: e.NotStarted, Code: e.Code, Signal: e.Signal, SignalName: e.SignalName, StopFirst: e.StopFirst, At: at}
	}
	return err
}

func encodeStop(s *jobs.Stop) (any, error) {
	if s == nil {
		return nil, nil
	}
	return encode("stop", stopJSON{s.Cause, s.Reason, jsonInstant(s.At), s.ByOwner})
}

func decodeStop(text []byte, to **jobs.Stop) error {
	s, at, err := decode("stop", text, func(s *stopJSON) string { return s.At })
	if s != nil {
		*to = &jobs.Stop{Cause: s.Cause, Reason: s.Reason, At: at, ByOwner: s.ByOwner}
	}
	return err
}

func encodeProgress(p *jobs.Progress) (any, error) {
	if p == nil {
		return nil, nil
	}
	return encode("progress", progressJSON{p.Done, p.Total, p.Text, jsonInstant(p.At)})
}

func decodeProgress(text []byte, to **jobs.Progress) error {
	p, at, err := decode("progress", text, func(p *progressJSON) string { return p.At })
	if p != nil {
		*to = &jobs.Progress{Done: p.Done, Total: p.Total, Text: p.Text, At: at}
	}
	return err
}

// encode returns JSON text for a column. Its only failures are values that
// JSON has no form for.
func encode(what string, v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", &jobs.Error{Kind: jobs.ErrInvalid, Err: err, Message: fmt.Sprintf("the %s of the job cannot be stored as JSON: %v", what, err)}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// decode reads a column of JSON and the instant in it; NULL gives nil.
func decode[T any](what string, text []byte, at func(*T) string) (*T, jobs.Instant, error) {
	if text == nil {
		return nil, jobs.Instant{}, nil
	}
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, jobs.Instant{}, fmt.Errorf("its %s cannot be read: %w", what, err)
	}
	if at(v) == "" {
		return v, jobs.Instant{}, nil
	}
	t, err := parseInstant(at(v))
	if err != nil {
		return nil, t, fmt.Errorf("its %s cannot be read: %w", what, err)
	}
	return v, t, nil
}

func jsonInstant(t jobs.Instant) string {
	s, _ := instantText(t).(string)
	return s
}
