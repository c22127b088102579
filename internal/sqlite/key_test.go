package sqlite_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// join decides as an identical call does: whoever holds a key is joined.
func join(h jobs.Holders) (*jobs.Job, error) {
	for _, j := range []*jobs.Job{h.Request, h.Idempotency, h.Join} {
		if j != nil {
			return j, nil
		}
	}
	return nil, nil
}

func TestEqualKeysMakeOneJob(t *testing.T) {
	for name, keys := range map[string]jobs.Keys{
		"request":     {Request: "k"},
		"idempotency": {Idempotency: "k"},
		"join":        {Join: "k"},
		"all":         {Request: "k", Idempotency: "k", Join: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, place(t), sqlite.Options{})
			var wg sync.WaitGroup
			var made atomic.Int64
			got := make([]jobs.Job, 64)
			for i := range got {
				wg.Go(func() {
					n := strconv.Itoa(i)
					j, created, err := db.CreateJob(t.Context(), jobs.New(id(n), spec(n), keys, at(0)), join)
					if err != nil {
						t.Error(err)
					}
					if created {
						made.Add(1)
					}
					got[i] = j
				})
			}
			wg.Wait()
			if made.Load() != 1 {
				t.Errorf("%d jobs were created, want 1", made.Load())
			}
			for _, j := range got {
				sameJob(t, j, got[0])
			}
			if n := len(list(t, db, jobs.Filter{})); n != 1 {
				t.Errorf("%d jobs are stored, want 1", n)
			}
		})
	}
}

func TestDecideSeesWhoHoldsWhichKey(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	holders := map[string]jobs.Keys{"r": {Request: "k"}, "i": {Idempotency: "k"}, "j": {Join: "k"}}
	for _, name := range []string{"r", "i", "j"} {
		create(t, db, jobs.New(id(name), spec(name), holders[name], at(0)))
	}
	elsewhere := spec("elsewhere")
	elsewhere.Project = "/src/other"
	create(t, db, jobs.New(id("elsewhere"), elsewhere, jobs.Keys{Idempotency: "k", Join: "k2"}, at(0)))

	nameOf := func(j *jobs.Job) string {
		if j == nil {
			return ""
		}
		return j.Spec.Name
	}
	for _, c := range []struct {
		keys jobs.Keys
		want [3]string
	}{
		{jobs.Keys{Request: "k", Idempotency: "k", Join: "k"}, [3]string{"r", "i", "j"}},
		{jobs.Keys{Request: "k"}, [3]string{"r", "", ""}},
		{jobs.Keys{Idempotency: "k"}, [3]string{"", "i", ""}},
		{jobs.Keys{Join: "k"}, [3]string{"", "", "j"}},
		{jobs.Keys{Idempotency: "k", Join: "k2"}, [3]string{"", "i", "elsewhere"}}, // its own key is of another project
		{jobs.Keys{}, [3]string{}},
		{jobs.Keys{Request: "x", Idempotency: "x", Join: "x"}, [3]string{}},
	} {
		own := errors.New("seen enough")
		_, created, err := db.CreateJob(t.Context(), jobs.New(id("new"), spec("new"), c.keys, at(0)), func(h jobs.Holders) (*jobs.Job, error) {
			if got := [3]string{nameOf(h.Request), nameOf(h.Idempotency), nameOf(h.Join)}; got != c.want {
				t.Errorf("%+v: holders %q, want %q", c.keys, got, c.want)
			}
			return nil, own
		})
		if created || err != own {
			t.Errorf("%+v: created %t, error %v; want decide's own", c.keys, created, err)
		}
	}
}

func TestANewJobTakesTheJoinKeyFromItsHolder(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	first := create(t, db, jobs.New(id("1"), spec("1"), jobs.Keys{Join: "k"}, at(0)))
	second := create(t, db, jobs.New(id("2"), spec("2"), jobs.Keys{Join: "k"}, at(0)))
	for _, c := range []struct{ id, key string }{{first.ID, ""}, {second.ID, "k"}} {
		if j, err := db.Job(t.Context(), c.id); err != nil || j.Keys.Join != c.key {
			t.Errorf("job %s has join key %q, %v; want %q", c.id, j.Keys.Join, err, c.key)
		}
	}
	// The first one goes on living without it.
	end(t, db, first.ID)
}

func TestARequestOrIdempotencyKeyIsNeverTakenAway(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	create(t, db, jobs.New(id("1"), spec("1"), jobs.Keys{Request: "r", Idempotency: "i", Join: "j"}, at(0)))
	for name, keys := range map[string]jobs.Keys{"request": {Request: "r"}, "idempotency": {Idempotency: "i"}} {
		keys.Join = "j"
		if _, created, err := db.CreateJob(t.Context(), jobs.New(id(name), spec(name), keys, at(0)), anew); created || !errors.Is(err, jobs.ErrConflict) {
			t.Errorf("%s: created %t, %v; want ErrConflict", name, created, err)
		}
	}
	// The refused ones took nothing.
	if j, err := db.Job(t.Context(), id("1")); err != nil || j.Keys.Join != "j" {
		t.Errorf("join key %q, %v", j.Keys.Join, err)
	}
	other := create(t, db, jobs.New(id("2"), spec("2"), jobs.Keys{}, at(0)))
	if _, err := db.UpdateJob(t.Context(), other.ID, func(j *jobs.Job) error { j.Keys.Join = "j"; return nil }); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("a key in use, by UpdateJob: %v, want ErrConflict", err)
	}
}

func TestACancelledJobIsNotJoined(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	first := create(t, db, jobs.New(id("1"), spec("1"), jobs.Keys{Join: "k"}, at(0)))
	update(t, db, first.ID, apply(at(1), jobs.EventCancelled))
	if _, created, err := db.CreateJob(t.Context(), jobs.New(id("2"), spec("2"), jobs.Keys{Join: "k"}, at(0)), join); err != nil || !created {
		t.Errorf("created %t, %v; want a new job", created, err)
	}
}
