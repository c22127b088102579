package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"jobd/internal/jobs"
)

func TestUnannounced(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "jobd.db")
	if found, err := Unannounced(ctx, path, "/p"); found || err != nil {
		t.Fatalf("without a database: %t, %v", found, err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Fatal("it made a database")
	}
	db, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := jobs.Instant{Wall: time.Unix(1e9, 0).UTC(), BootID: "b"}
	j, _, err := db.CreateJob(ctx, jobs.New("0123", jobs.Spec{Project: "/p", Tool: "t", Name: "n"}, jobs.Keys{Request: "r"}, now), func(jobs.Holders) (*jobs.Job, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		project string
		want    bool
	}{{"/p", true}, {"/q", false}} {
		// A daemon may have the database open.
		if found, err := Unannounced(ctx, path, c.project); found != c.want || err != nil {
			t.Errorf("%s: %t, %v", c.project, found, err)
		}
	}
	if _, err := db.UpdateJob(ctx, j.ID, func(j *jobs.Job) error {
		j.Announced = now
		return j.Apply(jobs.EventCancelled, now, "")
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := Unannounced(ctx, path, "/p"); found || err != nil {
		t.Errorf("after it was announced: %t, %v", found, err)
	}
}
