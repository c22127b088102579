package sqlite

import "jobd/internal/jobs"

// expiredKept bounds how many ids are kept: those of jobs that are further back
// than so many are forgotten, and are answered with "not found".
const expiredKept = 100_000

// insertExpired keeps the id and the number of a job that is deleted.
func insertExpired(t *transaction, seq int64, id string, now jobs.Instant) error {
	_, err := t.exec("INSERT INTO expired (seq, id, expired) VALUES (?, ?, ?)", seq, id, instantText(now))
	return err
}

// forgetExpired keeps the table small. The greatest number stays.
func forgetExpired(t *transaction) error {
	_, err := t.exec("DELETE FROM expired WHERE seq <= (SELECT max(seq) FROM expired) - ?", expiredKept)
	return err
}

// isExpired reports whether a job whose id is or, with prefix, starts with id
// was deleted; it returns the whole id.
func isExpired(q queries, id string, prefix bool) (whole string, ok bool, err error) {
	from, to := id, id
	if prefix {
		from, to = prefixRange(id)
	}
	ok, err = first(q, []any{&whole}, "SELECT id FROM expired WHERE id BETWEEN ? AND ? LIMIT 1", from, to)
	return whole, ok, err
}
