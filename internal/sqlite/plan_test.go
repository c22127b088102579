package sqlite

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"jobd/internal/jobs"
)

// What a submission asks of the database is found by indexes, so that it does
// not get slower with the number of jobs that are kept.
func TestASubmissionReadsNoWholeTable(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "jobd.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	j := jobs.New("1", jobs.Spec{Argv: []string{"true"}, Project: "/p"}, jobs.Keys{Request: "r", Idempotency: "i", Join: "j"}, jobs.Instant{BootID: "b"})
	var plan string
	err = db.read(context.Background(), func(q queries) error {
		e := explaining{q, &plan}
		_, err := jobsByKeys(e, &j)
		if err == nil {
			_, err = first(e, []any{new(int64)}, "SELECT 1 + max(coalesce((SELECT max(seq) FROM jobs), 0), coalesce((SELECT max(seq) FROM expired), 0))")
		}
		if err == nil {
			_, _, err = jobByID(e, "1")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []string{"jobs_request", "jobs_idempotency", "jobs_join", "jobs_id"} {
		if !strings.Contains(plan, "USING INDEX "+index) {
			t.Errorf("%s is not used:\n%s", index, plan)
		}
	}
	for line := range strings.Lines(plan) {
		// The greatest number of a table is at its end.
		if strings.HasPrefix(line, "SCAN jobs") || strings.HasPrefix(line, "SCAN expired") {
			t.Errorf("a whole table is read: %s\n%s", line, plan)
		}
	}
}
