package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"

	"jobd/internal/jobs"
)

const questionColumns = "job, position, id, key, number, message, schema, secret, fault, consented, asked, timeout, on_timeout, " +
	"state, closed, answer, answer_by"

// questionsOf reads the questions of the jobs in rows, oldest first, by job,
// with one query. A row whose question cannot be read is marked as damaged.
func questionsOf(q queries, rows []jobRow) (by map[int64][]jobs.Question, err error) {
	index := map[int64]*jobRow{}
	var seqs []int64
	for i := range rows {
		if r := &rows[i]; r.damage == nil && r.questions > 0 {
			index[r.job.Seq], seqs = r, append(seqs, r.job.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return nil, err
	}
	found, err := q.query("SELECT "+questionColumns+" FROM questions WHERE job IN (SELECT value FROM json_each(?)) ORDER BY job, position", string(list))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	by = map[int64][]jobs.Question{}
	for found.Next() {
		job, question, err := scanQuestion(found)
		if r := index[job]; err != nil && r != nil {
			r.damage = err
		}
		by[job] = append(by[job], question)
	}
	return by, found.Err()
}

func scanQuestion(rows *sql.Rows) (job int64, q jobs.Question, err error) {
	var (
		position       int
		schema, answer []byte
	)
	err = rows.Scan(&job, &position, &q.ID, &q.Key, &q.Number, &q.Message, &schema, &q.Secret, &q.Fault, &q.Consented,
		instantColumn{&q.Asked}, &q.Timeout, &q.OnTimeout, &q.State, instantColumn{&q.Closed}, &answer, &q.By)
	q.Schema, q.Answer = schema, answer
	return job, q, err
}

// storeQuestions stores the questions that differ from what they were.
func storeQuestions(t *transaction, job int64, were, are []jobs.Question) error {
	for i := range are {
		if i < len(were) && reflect.DeepEqual(were[i], are[i]) {
			continue
		}
		q := &are[i]
		_, err := t.exec("INSERT INTO questions ("+questionColumns+`)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (job, position) DO UPDATE SET
				id = excluded.id, key = excluded.key, number = excluded.number, message = excluded.message, schema = excluded.schema,
				secret = excluded.secret, fault = excluded.fault, consented = excluded.consented, asked = excluded.asked,
				timeout = excluded.timeout, on_timeout = excluded.on_timeout, state = excluded.state, closed = excluded.closed,
				answer = excluded.answer, answer_by = excluded.answer_by`,
			job, i, q.ID, q.Key, q.Number, q.Message, text(q.Schema), q.Secret, q.Fault, q.Consented, instantText(q.Asked),
			int64(q.Timeout), string(q.OnTimeout), string(q.State), instantText(q.Closed), text(q.Answer), q.By)
		if err != nil {
			return err
		}
	}
	if len(are) < len(were) {
		if _, err := t.exec("DELETE FROM questions WHERE job = ? AND position >= ?", job, len(are)); err != nil {
			return err
		}
	}
	return nil
}

// text is JSON as it is stored: nil is NULL.
func text(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}
