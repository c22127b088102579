package sqlite

import (
	"errors"

	"jobd/internal/jobs"
)

// insertEvents adds to the history of a job.
func insertEvents(t *transaction, job int64, applied []jobs.Applied) error {
	for _, a := range applied {
		if _, err := t.exec("INSERT INTO events (job, revision, event, state, at, note) VALUES (?, ?, ?, ?, ?, ?)",
			job, a.Revision, string(a.Event), string(a.State), instantText(a.At), a.Note); err != nil {
			return err
		}
	}
	return nil
}

// eventsOf reads the history of a job, oldest first.
func eventsOf(q queries, job int64) (history []jobs.Applied, err error) {
	rows, err := q.query("SELECT revision, event, state, at, note FROM events WHERE job = ? ORDER BY revision", job)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var a jobs.Applied
		if err := rows.Scan(&a.Revision, &a.Event, &a.State, instantColumn{&a.At}, &a.Note); err != nil {
			return nil, err
		}
		history = append(history, a)
	}
	return history, rows.Err()
}
