package sqlite_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// asRunning rebuilds a job as one that runs, with the keys that are left.
func asRunning(name string) func(jobs.Job) (jobs.Job, error) {
	return func(salvaged jobs.Job) (jobs.Job, error) {
		j := jobs.New(salvaged.ID, spec(name), salvaged.Keys, at(0))
		return j, apply(at(1), jobs.EventLaunch, jobs.EventStarted)(&j)
	}
}

func TestARowIsRebuiltInItsPlace(t *testing.T) {
	for name, harm := range map[string]string{
		"spec is no JSON":        "spec = '{' ",
		"one letter of the spec": "spec = replace(spec, 'make bad', 'make bed')",
		"spec is no text":        "spec = x'ff'",
		"unknown state":          "state = 'odd'",
		"a question is missing":  "questions = 1",
		"revision is a text":     "revision = 'many'",
		"revision is the last":   "revision = 9223372036854775807, state = 'odd'",
		"instant is none":        "created = 'yesterday'",
		"a stop for no cause":    `stop = '{"cause":"whim"}', state = 'odd'`,
	} {
		t.Run(name, func(t *testing.T) {
			path := place(t)
			db := open(t, path, sqlite.Options{})
			for _, name := range []string{"first", "bad", "last"} {
				j := queued(name)
				j.Keys.Idempotency, j.Keys.Join = "i "+name, "j "+name
				create(t, db, j)
			}
			bad := id("bad")
			if _, err := db.SetResult(t.Context(), bad, []byte("body"), func(j *jobs.Job) error { j.ResultKind = jobs.ResultText; return nil }); err != nil {
				t.Fatal(err)
			}
			before := list(t, db, jobs.Filter{})
			harmRow(t, path, "UPDATE jobs SET "+harm+" WHERE id = '"+bad+"'")
			if _, err := db.Job(t.Context(), bad); err == nil {
				t.Fatal("the row is not damaged")
			}
			var kept jobs.Job
			j, rebuilt, err := db.RebuildJob(t.Context(), bad, at(2), func(salvaged jobs.Job) (jobs.Job, error) {
				kept = salvaged
				return asRunning("bad")(salvaged)
			})
			if err != nil || !rebuilt || j.State() != jobs.Running || j.Revision() <= 3 {
				t.Fatalf("rebuilt %t, %s at revision %d, %v", rebuilt, j.State(), j.Revision(), err)
			}
			if kept.ID != bad || kept.Seq != 2 || kept.Keys != before[1].Keys || kept.ResultKind != jobs.ResultText || kept.Stop != nil {
				t.Errorf("what was left of it is %+v", kept)
			}
			stored, err := db.Job(t.Context(), bad)
			if diff := cmp.Diff(j, stored, cmpopts.IgnoreUnexported(jobs.Job{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("what was stored, %v (-want +got):\n%s", err, diff)
			}
			after := list(t, db, jobs.Filter{})
			if diff := cmp.Diff([]string{"last", "bad", "first"}, names(after)); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			for _, i := range []int{0, 2} {
				if diff := cmp.Diff(before[i], after[i], cmpopts.IgnoreUnexported(jobs.Job{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("another job (-want +got):\n%s", diff)
				}
			}
			if body, err := db.Result(t.Context(), bad); err != nil || string(body) != "body" {
				t.Errorf("its result is %q, %v", body, err)
			}
			if h, err := db.History(t.Context(), bad); err != nil || len(h) != 1 || h[0].Event != "rebuilt" || h[0].Revision != j.Revision() {
				t.Errorf("its history is %+v, %v", h, err)
			}
			// The keys still hold: the same call finds the job.
			again := queued("again")
			again.Keys = jobs.Keys{Request: "request bad"}
			if found, created, err := db.CreateJob(t.Context(), again, join); err != nil || created || found.ID != bad {
				t.Errorf("the same request: created %t, %s, %v", created, found.ID, err)
			}
			update(t, db, bad, apply(at(3), jobs.EventSucceeded))
			if sound, err := db.OnWriter(t.Context(), "PRAGMA integrity_check"); err != nil || sound != "ok" {
				t.Errorf("the database is %q, %v", sound, err)
			}
			raw, err := os.ReadFile(path + ".damaged-row-" + bad)
			var aside map[string]any
			if err == nil {
				err = json.Unmarshal(raw, &aside)
			}
			if err != nil || aside["job"] != bad || aside["damage"] == "" || len(aside["jobs"].([]any)) != 1 || len(aside["events"].([]any)) == 0 {
				t.Errorf("what was set aside: %s, %v", raw, err)
			}
			if fi, err := os.Stat(path + ".damaged-row-" + bad); err != nil || fi.Mode() != 0o600 {
				t.Errorf("its mode is %v, %v", fi.Mode(), err)
			}
		})
	}
}

func TestADamagedQuestionIsRebuiltWithItsJob(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	update(t, db, j.ID, apply(at(1), jobs.EventLaunch, jobs.EventStarted))
	asked := update(t, db, j.ID, func(j *jobs.Job) error {
		j.Questions = []jobs.Question{{ID: "a", Key: "q1", State: jobs.QuestionOpen, Asked: at(0)}, {ID: "b", Key: "q2", State: jobs.QuestionOpen, Asked: at(0)}}
		return j.Apply(jobs.EventAsked, at(1), "")
	})
	if _, err := db.OnWriter(t.Context(), "PRAGMA ignore_check_constraints = 1", "UPDATE questions SET asked = 'x' WHERE position = 1",
		"PRAGMA ignore_check_constraints = 0"); err != nil {
		t.Fatal(err)
	}
	got, rebuilt, err := db.RebuildJob(t.Context(), j.ID, at(2), func(jobs.Job) (jobs.Job, error) { return asked, nil })
	if err != nil || !rebuilt || got.State() != jobs.Waiting || len(got.Open()) != 2 || got.Revision() <= asked.Revision() {
		t.Fatalf("rebuilt %t, %+v, %v", rebuilt, got, err)
	}
	if stored, err := db.Job(t.Context(), j.ID); err != nil || len(stored.Open()) != 2 {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

func TestARowThatCanBeReadIsNotRebuilt(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	j := create(t, db, queued("a"))
	never := func(jobs.Job) (jobs.Job, error) {
		t.Error("it was asked for another job")
		return jobs.Job{}, nil
	}
	if got, rebuilt, err := db.RebuildJob(t.Context(), j.ID, at(2), never); err != nil || rebuilt || got.Revision() != j.Revision() {
		t.Errorf("rebuilt %t, %+v, %v", rebuilt, got, err)
	}
	if _, _, err := db.RebuildJob(t.Context(), id("unknown"), at(2), never); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
	if found, err := filepath.Glob(path + ".damaged-*"); err != nil || len(found) != 0 {
		t.Errorf("set aside: %v, %v", found, err)
	}
}

func TestARebuildThatIsRefusedChangesNothing(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	j := create(t, db, queued("a"))
	harmRow(t, path, "UPDATE jobs SET state = 'odd'")
	no := errors.New("no")
	if _, rebuilt, err := db.RebuildJob(t.Context(), j.ID, at(2), func(jobs.Job) (jobs.Job, error) { return jobs.Job{}, no }); !errors.Is(err, no) || rebuilt {
		t.Errorf("rebuilt %t, %v", rebuilt, err)
	}
	if damaged, ok := errors.AsType[*jobs.DamagedError](func() error { _, err := db.Job(t.Context(), j.ID); return err }()); !ok || damaged.ID != j.ID {
		t.Error("it is no longer damaged")
	}
}

// A disk that changes single bytes where one job is stored: either that job
// alone is damaged, and can be made anew, or the file is, and says so. What is
// told of the others is right.
func TestBytesThatChangeInARow(t *testing.T) {
	source := place(t)
	db := open(t, source, sqlite.Options{})
	for _, name := range []string{"first", "bad", "last"} {
		create(t, db, queued(name))
		end(t, db, id(name))
	}
	want := list(t, db, jobs.Filter{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	// The cell holds the columns in their order: from the id to the spec.
	from, to := bytes.LastIndex(sound, []byte(id("bad")+"succeeded")), bytes.LastIndex(sound, []byte(`"make bad"`))
	if from < 0 || to < from || to-from > 2000 {
		t.Fatalf("the row is at %d to %d", from, to)
	}
	outcomes := map[string]int{}
	for i := from - 30; i < to; i += 5 {
		path := place(t)
		changed := bytes.Clone(sound)
		changed[i] ^= 0x95
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		outcome := oneByte(t, path, want)
		outcomes[outcome]++
	}
	t.Log(outcomes)
	if outcomes["rebuilt"] < 10 {
		t.Errorf("rows were damaged in %d places only", outcomes["rebuilt"])
	}
}

func oneByte(t *testing.T, path string, want []jobs.Job) string {
	t.Helper()
	var suspected error
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{OnSuspect: func(err error) { suspected = err }})
	if errors.Is(err, sqlite.ErrDamaged) {
		return "file damaged"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	outcome := "unnoticed"
	for _, name := range []string{"last", "bad", "first"} {
		_, err := db.Job(t.Context(), id(name))
		if _, ok := errors.AsType[*jobs.DamagedError](err); ok && name == "bad" {
			if _, rebuilt, err := db.RebuildJob(t.Context(), id(name), at(2), asRunning("bad")); err == nil && rebuilt {
				outcome = "rebuilt"
				continue
			} else if !errors.Is(err, sqlite.ErrDamaged) {
				t.Errorf("rebuilt %t, %v", rebuilt, err)
			}
		}
		if errors.Is(err, sqlite.ErrDamaged) {
			if _, serr := os.Stat(path + "-suspect"); serr != nil || suspected == nil {
				t.Errorf("the next start does not know of %v: %v", err, serr)
			}
			return "file damaged"
		}
		if err != nil && name != "bad" {
			t.Errorf("job %s: %v", name, err)
		}
	}
	found, err := db.Jobs(t.Context(), jobs.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range found {
		for _, w := range want {
			if j.Seq == w.Seq && w.Spec.Name != "bad" {
				if diff := cmp.Diff(w, j, cmpopts.IgnoreUnexported(jobs.Job{}), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("another job (-want +got):\n%s", diff)
				}
			}
			if j.Seq == w.Seq && w.Spec.Name == "bad" && !cmp.Equal(w.Spec, j.Spec) {
				t.Errorf("another command is told for the right one: %+v", j.Spec)
			}
		}
	}
	return outcome
}

// Damage to an index shows in a write. The next start makes the indexes anew
// and goes on with every row.
func TestADamagedIndexIsMadeAnew(t *testing.T) {
	path := place(t)
	var suspected int
	o := sqlite.Options{OnSuspect: func(error) { suspected++ }}
	db := open(t, path, o)
	for _, name := range []string{"a", "b"} {
		create(t, db, queued(name))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The key in the table is followed by the other columns; the one in the index
	// stands alone, and comes first.
	at := bytes.Index(raw, []byte("request a"))
	if last := bytes.LastIndex(raw, []byte("request a")); at < 0 || at == last {
		t.Fatalf("the key is at %d and %d", at, last)
	}
	for _, i := range []int{at, bytes.LastIndex(raw, []byte("request a"))} {
		if next := raw[i+len("request a"):]; !bytes.HasPrefix(next, []byte("/src")) && !bytes.HasPrefix(next, []byte("queued")) {
			raw[i] = 'x'
			break
		}
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err = sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.UpdateJob(t.Context(), id("a"), func(j *jobs.Job) error { j.Keys.Request = "another"; return nil })
	if !errors.Is(err, sqlite.ErrDamaged) || suspected != 1 {
		t.Fatalf("error %v, suspected %d times", err, suspected)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path, o)
	update(t, db, id("a"), func(j *jobs.Job) error { j.Keys.Request = "another"; return nil })
	if n := len(list(t, db, jobs.Filter{})); n != 2 || suspected != 1 {
		t.Errorf("%d jobs, suspected %d times", n, suspected)
	}
	if _, err := os.Stat(path + "-suspect"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
}
