package sqlite_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
	"jobd/internal/sqlite"
)

// sameJob compares jobs with what they keep to themselves.
func sameJob(t *testing.T, got, want jobs.Job) {
	t.Helper()
	if got.State() != want.State() || got.Revision() != want.Revision() {
		t.Errorf("state %s, revision %d; want %s, %d", got.State(), got.Revision(), want.State(), want.Revision())
	}
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		switch p.Last().String() {
		case ".state", ".revision", ".applied":
			return true
		}
		return false
	}, cmp.Ignore())); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

// fullSpec has no field that is zero.
func fullSpec() jobs.Spec {
	return jobs.Spec{
		Tool: "deploy", Name: "Déploiement \x00\x1b[31m", Argv: []string{"bash", "-c", "a && b <in >out \"'\\ \n\t\u2028 ☃", ""}, Dir: "/src/ä b",
		Project: "/src/ä", Session: "session", Shell: true, Interactive: true, Args: json.RawMessage(`{"a":"<&>","n":1e400}`),
		EnvNames: []string{"A", "B"}, Digest: "digest", Umask: 0o77, NoFile: 1, NoFileMax: math.MaxUint64, OutputLimit: 2,
		Timeout: 3, QuestionTimeout: 4, OnTimeout: jobs.OnTimeoutDefault, Grace: 5, AnswerWithin: 6, Unattended: jobs.UnattendedWait,
		AnswerBy: jobs.AnswerByAnyone, Group: "group", RerunInterrupted: true,
	}
}

func TestEveryFieldComesBackAsItWasStored(t *testing.T) {
	path := place(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys := jobs.Keys{Request: "r", Idempotency: "i", Join: "j"}
	// Boots, clocks and dates at their limits, too.
	odd := jobs.Instant{Wall: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), Run: -1, Boot: math.MaxInt64, BootID: "boot id with blanks"}
	j := jobs.New(id("full"), fullSpec(), keys, at(0))
	want := create(t, db, j)
	if want.Seq != 1 {
		t.Errorf("seq %d, want 1", want.Seq)
	}
	pending := jobs.Question{ID: "ask", Key: "q7", Number: 7, Message: "Sure?\x00", Schema: json.RawMessage(`{ "type": "object" }`), Secret: true,
		Fault: "no number", Consented: true, Asked: at(3), Timeout: time.Minute, OnTimeout: jobs.OnTimeoutContinue, State: jobs.QuestionOpen}
	answered := jobs.Question{ID: "earlier", Key: "q1", Number: 1, Message: "m", Asked: odd, Timeout: 1, OnTimeout: jobs.OnTimeoutFail,
		State: jobs.QuestionAnswered, Closed: at(2), Answer: json.RawMessage(` {"a": 1}`), By: "form"}
	want = update(t, db, j.ID, func(j *jobs.Job) error {
		j.PID = 4711
		j.RunUsed = time.Second
		j.Progress = &jobs.Progress{Done: 1.5, Total: 3, Text: "half <b>", At: at(4)}
		j.ResultKind = jobs.ResultJSON
		j.OutputBytes, j.OutputDropped = 1<<40, 1<<39
		j.Announced = odd
		j.Unfollowed = true
		j.Questions = []jobs.Question{answered, pending}
		if err := apply(odd, jobs.EventLaunch)(j); err != nil {
			return err
		}
		// Events withdraw open questions, so they come back by hand.
		if err := apply(at(5), jobs.EventStarted, jobs.EventAsked)(j); err != nil {
			return err
		}
		j.Questions = []jobs.Question{answered, pending}
		return nil
	})
	reread := func() {
		t.Helper()
		got, err := db.Job(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		sameJob(t, got, want)
		found := list(t, db, jobs.Filter{})
		if len(found) != 1 {
			t.Fatalf("%d jobs are listed, want 1", len(found))
		}
		sameJob(t, found[0], want)
	}
	reread()
	assertNoZero(t, reflect.ValueOf(want.Spec), "Spec")
	assertNoZero(t, reflect.ValueOf(want.Questions[0]), "Question", "Secret", "Schema", "Fault", "Consented")
	assertNoZero(t, reflect.ValueOf(want.Questions[1]), "Question", "Closed", "Answer", "By")

	want = update(t, db, j.ID, func(j *jobs.Job) error {
		j.Stop = &jobs.Stop{Cause: jobs.CauseTimeout, Reason: "too long", At: at(6)}
		if err := j.Apply(jobs.EventStop, at(6), ""); err != nil {
			return err
		}
		j.Exit = &jobs.Exit{NotStarted: "n", Code: -1, Signal: 15, SignalName: "SIGTERM", StopFirst: true, At: at(7)}
		j.Reason = "ran for 1 h"
		if err := j.Apply(jobs.EventTimedOut, at(7), ""); err != nil {
			return err
		}
		j.Delivered, j.Keys.Join = at(8), ""
		return nil
	})
	reread()
	assertNoZero(t, reflect.ValueOf(want), "Job", "state", "revision", "applied")

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path, sqlite.Options{})
	reread()
}

// assertNoZero makes sure that the round trip is about every field, those of
// tomorrow included.
func assertNoZero(t *testing.T, v reflect.Value, what string, except ...string) {
	t.Helper()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && !strings.Contains(" "+strings.Join(except, " ")+" ", " "+name+" ") && !(what == "Job" && name == "Keys") {
			t.Errorf("%s.%s is zero, so the test does not show that it is stored", what, name)
		}
	}
}

func TestAJobOfZeroFieldsComesBack(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := jobs.New("0", jobs.Spec{}, jobs.Keys{}, at(0))
	want := create(t, db, j)
	got, err := db.Job(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	sameJob(t, got, want)
}

func TestHistoryKeepsEveryEvent(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	update(t, db, j.ID, apply(at(1), jobs.EventLaunch, jobs.EventStarted))
	update(t, db, j.ID, func(j *jobs.Job) error { j.PID = 1; return nil }) // no event
	update(t, db, j.ID, apply(at(2), jobs.EventFailed))
	got, err := db.History(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []jobs.Applied{
		{Revision: 1, Event: "submit", State: jobs.Queued, At: at(0)},
		{Revision: 2, Event: jobs.EventLaunch, State: jobs.Starting, At: at(1), Note: "note of launch"},
		{Revision: 3, Event: jobs.EventStarted, State: jobs.Running, At: at(1), Note: "note of started"},
		{Revision: 4, Event: jobs.EventFailed, State: jobs.Failed, At: at(2), Note: "note of failed"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestUpdateJobStoresWhatChangeDecided(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	own := errors.New("no")
	if _, err := db.UpdateJob(t.Context(), j.ID, func(j *jobs.Job) error {
		j.Reason = "changed"
		return own
	}); err != own {
		t.Errorf("error %v, want change's own as it is", err)
	}
	got, err := db.UpdateJob(t.Context(), j.ID, func(j *jobs.Job) error {
		j.Reason = "changed"
		return jobs.ErrUnchanged
	})
	if err != nil || got.Reason != "" {
		t.Errorf("unchanged: reason %q, error %v; want the job as it is stored", got.Reason, err)
	}
	if _, err := db.UpdateJob(t.Context(), j.ID, func(j *jobs.Job) error {
		j.Spec.Argv = []string{"rm"}
		return nil
	}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("changed spec: %v, want ErrInvalid", err)
	}
	if got, err := db.Job(t.Context(), j.ID); err != nil || got.Reason != "" || got.Revision() != 1 {
		t.Errorf("stored: reason %q, revision %d, %v", got.Reason, got.Revision(), err)
	}
}

func TestQuestionsAreStoredAsTheyChange(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	ask := func(n int) jobs.Question {
		return jobs.Question{ID: "ask" + strconv.Itoa(n), Key: "q" + strconv.Itoa(n), Number: n, Message: "?", Asked: at(0), Timeout: time.Hour,
			OnTimeout: jobs.OnTimeoutFail, State: jobs.QuestionOpen}
	}
	update(t, db, j.ID, apply(at(1), jobs.EventLaunch, jobs.EventStarted))
	update(t, db, j.ID, func(j *jobs.Job) error {
		j.Questions = append(j.Questions, ask(1), ask(2))
		return j.Apply(jobs.EventAsked, at(2), "")
	})
	// In place, though jobs forbids it: what is stored must be right all the same.
	want := update(t, db, j.ID, func(j *jobs.Job) error {
		j.Questions[0].Key, j.Questions[0].Number, j.Questions[0].Fault = "q3", 3, "not a number"
		return nil
	})
	got, err := db.Job(t.Context(), j.ID)
	if err != nil {
		t.Fatal(err)
	}
	sameJob(t, got, want)
	if got.Questions[0].Key != "q3" || got.Questions[1].Key != "q2" {
		t.Errorf("keys %q and %q, want q3 and q2 in the order of asking", got.Questions[0].Key, got.Questions[1].Key)
	}
	want = update(t, db, j.ID, apply(at(3), jobs.EventSucceeded)) // withdraws them
	if got, err = db.Job(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	sameJob(t, got, want)
}

// The schema refuses what would break an invariant, whoever is wrong.
func TestWhatBreaksAnInvariantIsNotStored(t *testing.T) {
	running := []jobs.Event{jobs.EventLaunch, jobs.EventStarted}
	for name, c := range map[string]struct {
		events []jobs.Event
		change func(*jobs.Job)
	}{
		"final without an end":       {append(running, jobs.EventSucceeded), func(j *jobs.Job) { j.Ended = jobs.Instant{} }},
		"live with an end":           {running, func(j *jobs.Job) { j.Ended = at(0) }},
		"running but never launched": {running, func(j *jobs.Job) { j.Launched = jobs.Instant{} }},
		"stopping without a cause":   {append(running, jobs.EventStop), func(j *jobs.Job) { j.Stop = nil }},
		"waiting without a question": {append(running, jobs.EventAsked), func(*jobs.Job) {}},
		"delivered but live":         {running, func(j *jobs.Job) { j.Delivered = at(0) }},
		"delivered but to be joined": {append(running, jobs.EventFailed), func(j *jobs.Job) { j.Delivered, j.Keys.Join = at(0), "j" }},
		"cancelled but to be joined": {[]jobs.Event{jobs.EventCancelled}, func(j *jobs.Job) { j.Keys.Join = "j" }},
		"a secret's answer": {running, func(j *jobs.Job) {
			j.Questions = []jobs.Question{{ID: "a", State: jobs.QuestionAnswered, Asked: at(0), Closed: at(0), Secret: true, Answer: json.RawMessage(`"hunter2"`)}}
		}},
		"an open question with an end": {running, func(j *jobs.Job) {
			j.Questions = []jobs.Question{{ID: "a", State: jobs.QuestionOpen, Asked: at(0), Closed: at(0)}}
		}},
		"a key that was shown before": {running, func(j *jobs.Job) {
			q := jobs.Question{ID: "a", Key: "q1", State: jobs.QuestionDeclined, Asked: at(0), Closed: at(0)}
			j.Questions = []jobs.Question{q, q}
			j.Questions[1].ID = "b"
		}},
		"a result of unknown kind": {running, func(j *jobs.Job) { j.ResultKind = "xml" }},
		"less than no output":      {running, func(j *jobs.Job) { j.OutputBytes = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, place(t), sqlite.Options{})
			j := create(t, db, queued("a"))
			_, err := db.UpdateJob(t.Context(), j.ID, func(j *jobs.Job) error {
				if err := apply(at(1), c.events...)(j); err != nil {
					return err
				}
				c.change(j)
				return nil
			})
			if err == nil || errors.Is(err, jobs.ErrUnavailable) {
				t.Errorf("error %v, want one that says that it breaks a rule", err)
			}
			if got, err := db.Job(t.Context(), j.ID); err != nil || got.Revision() != 1 {
				t.Errorf("the job has revision %d, error %v; want it untouched", got.Revision(), err)
			}
		})
	}
}

func TestASpecThatJSONWouldChangeIsRefused(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for name, change := range map[string]func(*jobs.Spec){
		"argument not UTF-8": func(s *jobs.Spec) { s.Argv = append(s.Argv, "\xff") },
		"arguments not JSON": func(s *jobs.Spec) { s.Args = json.RawMessage("{") },
	} {
		j := queued(name)
		change(&j.Spec)
		if _, _, err := db.CreateJob(t.Context(), j, anew); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestAnAbsentJobIsToldFromAnExpiredOne(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("old"))
	end(t, db, j.ID)
	if gone, err := db.DeleteJobs(t.Context(), []string{j.ID}, at(time.Hour)); err != nil || len(gone) != 1 {
		t.Fatalf("deleted %v, %v", gone, err)
	}
	for name, call := range map[string]func(id string) error{
		"Job":       func(id string) error { _, err := db.Job(t.Context(), id); return err },
		"FindJob":   func(id string) error { _, err := db.FindJob(t.Context(), id); return err },
		"by prefix": func(id string) error { _, err := db.FindJob(t.Context(), id[:9]); return err },
		"History":   func(id string) error { _, err := db.History(t.Context(), id); return err },
		"Result":    func(id string) error { _, err := db.Result(t.Context(), id); return err },
		"UpdateJob": func(id string) error {
			_, err := db.UpdateJob(t.Context(), id, func(*jobs.Job) error { return nil })
			return err
		},
		"SetResult": func(id string) error {
			_, err := db.SetResult(t.Context(), id, nil, func(*jobs.Job) error { return nil })
			return err
		},
	} {
		if err := call(j.ID); !errors.Is(err, jobs.ErrExpired) {
			t.Errorf("%s of an expired job: %v", name, err)
		}
		if err := call(id("never there")); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%s of an unknown job: %v", name, err)
		}
	}
}

func TestFindJobByPrefix(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for _, id := range []string{"abc1", "abc2", "abd", "ab%", "abcde", "abcdef"} {
		create(t, db, jobs.New(id, spec(id), jobs.Keys{}, at(0)))
	}
	end(t, db, "abd")
	if _, err := db.DeleteJobs(t.Context(), []string{"abd"}, at(0)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, id string
		kind       error
	}{
		{"", "", jobs.ErrInvalid},
		{"a", "", jobs.ErrAmbiguous},
		{"abc", "", jobs.ErrAmbiguous},
		{"abc1", "abc1", nil},
		{"abc1x", "", jobs.ErrNotFound},
		{"abcde", "abcde", nil}, // a whole id, though it starts another one
		{"abcdef", "abcdef", nil},
		{"abd", "", jobs.ErrExpired},
		{"ab%", "ab%", nil},
		{"_", "", jobs.ErrNotFound},
		{"%", "", jobs.ErrNotFound},
		{"b", "", jobs.ErrNotFound},
		{"\xff", "", jobs.ErrNotFound},
	} {
		j, err := db.FindJob(t.Context(), c.prefix)
		if j.ID != c.id || (c.kind == nil) != (err == nil) || !errors.Is(err, c.kind) {
			t.Errorf("%q: job %q, error %v; want %q, %v", c.prefix, j.ID, err, c.id, c.kind)
		}
	}
}

func TestJobsFilters(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	add := func(name string, change func(*jobs.Job)) jobs.Job {
		j := queued(name)
		change(&j)
		return create(t, db, j)
	}
	add("plain", func(*jobs.Job) {})
	add("project", func(j *jobs.Job) { j.Spec.Project = "/src/other" })
	add("session", func(j *jobs.Job) { j.Spec.Session = "s2" })
	add("key", func(j *jobs.Job) { j.Keys.Idempotency = "k" })
	add("Überprüfung 100%_\\", func(j *jobs.Job) { j.Spec.Tool, j.Spec.Dir = "CHECK", "/Home/D" })
	ended := add("ended", func(*jobs.Job) {})
	end(t, db, ended.ID)
	read := add("read", func(*jobs.Job) {})
	end(t, db, read.ID)
	deliver(t, db, read.ID)
	told := add("told", func(*jobs.Job) {})
	update(t, db, told.ID, func(j *jobs.Job) error { j.Announced = at(1); return nil })

	const uber = "Überprüfung 100%_\\"
	for name, c := range map[string]struct {
		f    jobs.Filter
		want []string
	}{
		"all, newest first": {jobs.Filter{}, []string{"told", "read", "ended", uber, "key", "session", "project", "plain"}},
		"project":           {jobs.Filter{Project: "/src/other"}, []string{"project"}},
		"session":           {jobs.Filter{Session: "s2"}, []string{"session"}},
		"key":               {jobs.Filter{Key: "k"}, []string{"key"}},
		"states":            {jobs.Filter{States: []jobs.State{jobs.Succeeded, jobs.Lost}}, []string{"read", "ended"}},
		"live":              {jobs.Filter{Live: true}, []string{"told", uber, "key", "session", "project", "plain"}},
		"pending":           {jobs.Filter{Pending: true}, []string{"told", "ended", uber, "key", "session", "project", "plain"}},
		"unmarked":          {jobs.Filter{Unmarked: true, States: []jobs.State{jobs.Queued}, Session: "s1", Project: "/src/app"}, []string{uber, "key", "plain"}},
		"before":            {jobs.Filter{Before: 3}, []string{"project", "plain"}},
		"limit":             {jobs.Filter{Limit: 2}, []string{"told", "read"}},
		"limit and pending": {jobs.Filter{Pending: true, Limit: 2, Before: 8}, []string{"ended", uber}},
		"nothing":           {jobs.Filter{Project: "/src/app", Session: "s2", Key: "k"}, nil},
		"name":              {jobs.Filter{Text: "ÜBER"}, []string{uber}},
		"tool":              {jobs.Filter{Text: "check"}, []string{uber}},
		"command":           {jobs.Filter{Text: "-C MAKE ended"}, []string{"ended"}},
		"directory":         {jobs.Filter{Text: "home/d"}, []string{uber}},
		"percent":           {jobs.Filter{Text: "0%_\\"}, []string{uber}},
		"wildcards":         {jobs.Filter{Text: "%"}, []string{uber}},
		"underscore":        {jobs.Filter{Text: "t_ld"}, nil},
		"quote":             {jobs.Filter{Text: "'\" OR 1=1 --"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, names(list(t, db, c.f))); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPendingAndLiveJobsAreFoundByAnIndex(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for _, f := range []jobs.Filter{{Pending: true}, {Live: true}, {Project: "p", Pending: true, Unmarked: true}} {
		plan, err := db.PlanOfJobs(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, "USING INDEX jobs_pending") {
			t.Errorf("%+v: %s", f, plan)
		}
	}
	fill(t, db, 10_000)
	create(t, db, queued("live"))
	took := func(f jobs.Filter) time.Duration {
		best := time.Hour
		for range 5 {
			begun := time.Now()
			list(t, db, f)
			best = min(best, time.Since(begun))
		}
		return best
	}
	all := took(jobs.Filter{States: []jobs.State{jobs.Queued}})
	for _, f := range []jobs.Filter{{Pending: true}, {Live: true}} {
		if got := names(list(t, db, f)); len(got) != 1 {
			t.Errorf("%+v: %d jobs, want 1", f, len(got))
		}
		if d := took(f); d > all/2 {
			t.Errorf("%+v took %v, and reading the whole table %v", f, d, all)
		}
	}
}

func TestResults(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	j := create(t, db, queued("a"))
	if body, err := db.Result(t.Context(), j.ID); body != nil || err != nil {
		t.Errorf("before it is set: %q, %v", body, err)
	}
	set := func(body []byte, change error) error {
		_, err := db.SetResult(t.Context(), j.ID, body, func(j *jobs.Job) error {
			j.ResultKind = jobs.ResultText
			return change
		})
		return err
	}
	big := []byte(strings.Repeat("\x00\xff result", 100_000))
	for _, body := range [][]byte{big, {}, []byte("last")} {
		if err := set(body, nil); err != nil {
			t.Fatal(err)
		}
		got, err := db.Result(t.Context(), j.ID)
		if err != nil || got == nil || string(got) != string(body) {
			t.Errorf("a result of %d bytes came back with %d, %v", len(body), len(got), err)
		}
	}
	own := errors.New("ended")
	if err := set([]byte("late"), own); err != own {
		t.Errorf("error %v, want change's own", err)
	}
	if err := set([]byte("late"), jobs.ErrUnchanged); err != nil {
		t.Error(err)
	}
	if got, err := db.Result(t.Context(), j.ID); string(got) != "last" || err != nil {
		t.Errorf("after refused changes: %q, %v", got, err)
	}
	if got, err := db.Job(t.Context(), j.ID); err != nil || got.ResultKind != jobs.ResultText {
		t.Errorf("kind %q, %v", got.ResultKind, err)
	}
}

func TestDeleteJobsRemovesFinalJobsWithAllThatIsTheirs(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	live := create(t, db, queued("live"))
	var final []string
	for n := range 3 {
		j := queued("final " + strconv.Itoa(n))
		j.Keys.Idempotency = "k" + strconv.Itoa(n)
		create(t, db, j)
		end(t, db, j.ID)
		if _, err := db.SetResult(t.Context(), j.ID, []byte("r"), func(j *jobs.Job) error {
			j.Questions = []jobs.Question{{ID: "a", State: jobs.QuestionDeclined, Asked: at(0), Closed: at(0)}}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		final = append(final, j.ID)
	}
	gone, err := db.DeleteJobs(t.Context(), []string{live.ID, final[0], id("unknown"), final[2], final[0]}, at(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{final[0], final[2]}, gone); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"final 1", "live"}, names(list(t, db, jobs.Filter{}))); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	for _, table := range []string{"questions", "results"} {
		if n, err := db.OnWriter(t.Context(), "SELECT count(*) FROM "+table); n != "1" || err != nil {
			t.Errorf("%s has %s rows, %v; want 1", table, n, err)
		}
	}
	// A key is free again, a number never.
	again := queued("again")
	again.Keys.Idempotency = "k2"
	if got := create(t, db, again); got.Seq != 5 {
		t.Errorf("the next job has number %d, want 5", got.Seq)
	}
	if _, _, err := db.CreateJob(t.Context(), queued("live"), anew); !errors.Is(err, jobs.ErrConflict) {
		t.Errorf("an id that is in use: %v, want ErrConflict", err)
	}
}

func TestOldExpiredIDsAreForgotten(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	if _, err := db.OnWriter(t.Context(), "INSERT INTO expired (seq, id, expired) VALUES (1, 'first', ''), (2, 'second', ''), (100001, 'last', '')"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.DeleteJobs(t.Context(), nil, at(0)); err != nil {
		t.Fatal(err)
	}
	for id, kind := range map[string]error{"first": jobs.ErrNotFound, "second": jobs.ErrExpired, "last": jobs.ErrExpired} {
		if _, err := db.Job(t.Context(), id); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", id, err, kind)
		}
	}
	if j := create(t, db, queued("next")); j.Seq != 100002 {
		t.Errorf("the next job has number %d, want 100002", j.Seq)
	}
}

func TestSettings(t *testing.T) {
	path := place(t)
	db := open(t, path, sqlite.Options{})
	check := func(want string) {
		t.Helper()
		if got, err := db.Setting(t.Context(), "digest_key"); got != want || err != nil {
			t.Errorf("setting %q, %v; want %q", got, err, want)
		}
	}
	set := func(value string, onlyNew bool, want string) {
		t.Helper()
		if got, err := db.SetSetting(t.Context(), "digest_key", value, onlyNew); got != want || err != nil {
			t.Errorf("in force is %q, %v; want %q", got, err, want)
		}
		check(want)
	}
	check("")
	set("a", true, "a")
	set("b", true, "a")
	set("c", false, "c")
}

func TestOneOfManyNewSettingsIsInForce(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	got := make([]string, 32)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = db.SetSetting(t.Context(), "key", strconv.Itoa(i), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, v := range got {
		if v != got[0] {
			t.Fatalf("callers were told %q", got)
		}
	}
}

func TestAnAmbiguousIDNamesItsCandidates(t *testing.T) {
	db := open(t, place(t), sqlite.Options{})
	for i, id := range []string{"aa110000", "aa110001", "aa2", "ab1", "ab2", "ab3", "ab4", "ab5"} {
		s := spec("job\x1b[2J " + strconv.Itoa(i))
		create(t, db, jobs.New(id, s, jobs.Keys{}, at(0)))
	}
	for prefix, want := range map[string]string{
		"aa": `more than one job has an id that starts with "aa": aa110000 (job 0, queued), aa110001 (job 1, queued), aa2 (job 2, queued); give more of it`,
		"ab": `more than one job has an id that starts with "ab": ab1 (job 3, queued), ab2 (job 4, queued), ab3 (job 5, queued), ab4 (job 6, queued), ab5 (job 7, queued); give more of it`,
	} {
		if _, err := db.FindJob(t.Context(), prefix); !errors.Is(err, jobs.ErrAmbiguous) || err.Error() != want {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if _, err := db.FindJob(t.Context(), "a"); err == nil || !strings.HasSuffix(err.Error(), "ab2 (job 4, queued) and more; give more of it") {
		t.Errorf("a: %v", err)
	}
}
