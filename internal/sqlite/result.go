package sqlite

// storeResult sets the result of a job; a later one replaces it.
func storeResult(t *transaction, job int64, body []byte) error {
	if body == nil {
		body = []byte{} // a result that is empty is one all the same
	}
	_, err := t.exec("INSERT INTO results (job, body) VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET body = excluded.body", job, body)
	return err
}

// resultOf reads the result of a job, nil if it has none.
func resultOf(q queries, job int64) ([]byte, error) {
	var body []byte
	ok, err := first(q, []any{&body}, "SELECT body FROM results WHERE job = ?", job)
	if ok && body == nil {
		body = []byte{}
	}
	return body, err
}
