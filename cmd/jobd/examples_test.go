package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jobd/internal/ipc"
)

// The projects in examples/ do what their descriptions say.

func exampleSite(t *testing.T, name string) *toolSite {
	t.Helper()
	s := newToolSite(t)
	s.copyProject("../../examples/" + name)
	return s
}

// text is the result that a job set.
func text(t *testing.T, res ipc.Result, state string) string {
	t.Helper()
	if res.Job.State != state {
		t.Fatalf("it ended as %s, not %s: %s\n%s", res.Job.State, state, res.Job.Reason, res.Tail.Data)
	}
	return string(res.Body)
}

func TestExampleCI(t *testing.T) {
	s := exampleSite(t, "ci")
	res := s.run("ci", struct{}{})
	if got := text(t, res, "succeeded"); got != "All 3 steps passed: lint test build." {
		t.Errorf("the result is %q", got)
	}
	if p := res.Job.Progress; p == nil || p.Done != 3 || p.Total != 3 {
		t.Errorf("the progress is %+v", p)
	}
	if _, err := os.Stat(filepath.Join(s.project, "out/greet")); err != nil {
		t.Error(err)
	}
	s.write("src/greet.sh", "echo goodbye\n")
	res = s.run("ci", map[string]any{"steps": []string{"test", "build"}})
	if got := text(t, res, "failed"); got != `The step "test" failed (0 of 2 had passed). The end of the output says why.` {
		t.Errorf("the result is %q", got)
	}
	if !strings.Contains(string(res.Tail.Data), `greet.sh printed "goodbye"`) {
		t.Errorf("the output is %q", res.Tail.Data)
	}
	_, err := s.submit(s.request("ci", map[string]any{"steps": []string{"deploy"}}))
	refused(t, err, ipc.CodeInvalid, `ci needs "steps" to be a list`)
}

// standIn is a claude that plans, researches and writes in a moment. It writes
// down how it was called.
const standIn = `#!/bin/sh
prompt=$(cat)
echo "$*" >>"$CALLS"
case $prompt in
Name*) printf 'history\n\nphysics\n' ;;
"Research this aspect"*) printf 'notes on %s (https://example.org)\n' "$(printf '%s\n' "$prompt" | sed -n 's/^Aspect: //p')" ;;
*) printf '# Report\n\n%s\n' "$prompt" | grep -v '^Write one' ;;
esac
`

func TestExampleResearch(t *testing.T) {
	s := exampleSite(t, "research")
	bin := filepath.Join(filepath.Dir(s.dir), "stand-in")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin+"/claude", []byte(standIn), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	call := s.request("deep_research", map[string]any{"question": "-p why is the $(sky) 'blue'?", "angles": 2})
	calls := filepath.Join(s.project, "calls")
	call.Environ = append(call.Environ, "PATH="+bin+":/usr/bin:/bin\x00CALLS="+calls+"\x00"...)
	reply, err := s.submit(call)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Job.AnswerWithinMS != 0 {
		t.Error("research is answered with its result instead of a task")
	}
	got := text(t, s.await(reply.Job.ID, "final"), "succeeded")
	for _, want := range []string{"# Report", "Question: -p why is the $(sky) 'blue'?", "notes on history", "notes on physics"} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
	if n := strings.Count(s.read("calls"), "-p --output-format text --allowedTools WebSearch WebFetch\n"); n != 4 {
		t.Errorf("claude was called %d times: %s", n, s.read("calls"))
	}
	tools := s.tools(ipc.ToolsRequest{}).Tools
	if tools[0].Task != "required" {
		t.Errorf("the tool is %+v", tools[0])
	}
}

// question waits for the job's question.
func (s *toolSite) question(id string) ipc.Question {
	s.t.Helper()
	res := s.await(id, "settled")
	if len(res.Job.Questions) != 1 {
		s.t.Fatalf("the job is %s and asks %v: %s", res.Job.State, res.Job.Questions, res.Tail.Data)
	}
	return res.Job.Questions[0]
}

func (s *toolSite) answer(id, action, content string) {
	s.t.Helper()
	reply, err := s.daemon.Answer(s.t.Context(), ipc.AnswerRequest{Job: id, Action: action, Content: json.RawMessage(content), By: "form"})
	if err != nil || !reply.Taken {
		s.t.Fatalf("the answer: %+v, %v", reply, err)
	}
}

func TestExampleMigration(t *testing.T) {
	s := exampleSite(t, "migration")
	job := s.call("migrate_database", map[string]any{"upto": "0002"})
	q := s.question(job.ID)
	if q.Message != "Apply 2 migrations: 0001_customers.sql 0002_email.sql?" || q.LeftMS < (8*time.Hour-time.Minute).Milliseconds() || q.OnTimeout != "fail" {
		t.Errorf("the question is %+v", q)
	}
	// The model is not the person.
	_, err := s.daemon.Answer(t.Context(), ipc.AnswerRequest{Job: job.ID, Action: "accept", Content: json.RawMessage(`{"apply":true,"backup":true}`), By: "tool", Model: true})
	refused(t, err, ipc.CodeRefused, "")
	if _, err := os.Stat(filepath.Join(s.project, "app.db")); err == nil {
		t.Error("the database was changed before the answer")
	}
	s.answer(job.ID, "decline", "")
	if got := text(t, s.await(job.ID, "final"), "succeeded"); got != "The person declined; nothing was changed." {
		t.Errorf("the result is %q", got)
	}
	deliver := func(id string) {
		t.Helper()
		if err := s.daemon.Delivered(t.Context(), ipc.DeliveredRequest{ID: id, Session: s.session}); err != nil {
			t.Fatal(err)
		}
	}
	deliver(job.ID)
	for _, c := range []struct{ upto, content, result, db string }{
		{"0002", `{"apply":false,"backup":true}`, "The person said no; nothing was changed.", ""},
		{"0002", `{"apply":true,"backup":true}`, "Applied 2 migrations: 0001_customers.sql 0002_email.sql.", "CREATE TABLE customers"},
		{"9999", `{"apply":true,"backup":true}`, "Applied 1 migrations: 0003_email_unique.sql.", "CREATE UNIQUE INDEX"},
	} {
		job := s.call("migrate_database", map[string]any{"upto": c.upto})
		s.question(job.ID)
		s.answer(job.ID, "accept", c.content)
		if got := text(t, s.await(job.ID, "final"), "succeeded"); got != c.result {
			t.Errorf("the result is %q", got)
		}
		deliver(job.ID)
		if c.db != "" && !strings.Contains(s.read("app.db"), c.db) {
			t.Errorf("the database lacks %s:\n%s", c.db, s.read("app.db"))
		}
	}
	if found, err := filepath.Glob(s.project + "/app.db.*.backup"); err != nil || len(found) != 1 {
		t.Errorf("the backups are %v, %v", found, err)
	}
	if got := text(t, s.run("migrate_database", map[string]any{}), "succeeded"); got != "The database is up to date; nothing was changed." {
		t.Errorf("the result is %q", got)
	}
}

func TestExampleImport(t *testing.T) {
	s := exampleSite(t, "import")
	counts := func(res ipc.Result, state string) string {
		t.Helper()
		return text(t, res, state)
	}
	if got := counts(s.run("import_customers", map[string]any{"file": "customers.csv", "dry_run": true}), "succeeded"); got != `{"lines": 3, "imported": 3, "known": 0, "faulty": 0, "dry_run": true}` {
		t.Errorf("checked: %s", got)
	}
	// Cancelled on the way, it says how far it came; the next run goes on there.
	slow := strings.Replace(s.read(".jobd/jobs.yaml"), `PAUSE: "0"`, `PAUSE: "0.05"`, 1)
	s.jobs(slow)
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("Person %d,p%d@example.org", i, i))
	}
	s.write("many.csv", strings.Join(lines, "\n")) // the last line has no line feed
	job := s.call("import_customers", map[string]any{"file": "many.csv"})
	for deadline := time.Now().Add(30 * time.Second); ; {
		got, err := s.daemon.Get(t.Context(), ipc.GetRequest{ID: job.ID})
		if err != nil || time.Now().After(deadline) {
			t.Fatal("no progress", err)
		}
		if p := got.Progress; p != nil && p.Done >= 3 && p.Total == 200 && strings.HasPrefix(p.Text, "Person ") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := s.daemon.Cancel(t.Context(), ipc.CancelRequest{ID: job.ID}); err != nil {
		t.Fatal(err)
	}
	res := s.await(job.ID, "final")
	var first struct{ Imported, Known, Faulty int }
	if err := json.Unmarshal([]byte(counts(res, "cancelled")), &first); err != nil || first.Imported < 2 || first.Imported >= 200 {
		t.Errorf("cancelled after %+v, %v", first, err)
	}
	s.jobs(strings.Replace(slow, "0.05", "0", 1))
	if got, want := counts(s.run("import_customers", map[string]any{"file": "many.csv"}), "succeeded"),
		fmt.Sprintf(`{"lines": 200, "imported": %d, "known": %d, "faulty": 0, "dry_run": false}`, 200-first.Imported, first.Imported); got != want {
		t.Errorf("went on: %s, want %s", got, want)
	}
	imported := strings.Split(strings.TrimSpace(s.read("imported.csv")), "\n")
	slices.Sort(lines)
	slices.Sort(imported)
	if !slices.Equal(lines, imported) {
		t.Errorf("%d lines were imported, each once: %t", len(imported), len(slices.Compact(imported)) == len(imported))
	}
	s.write("bad.csv", "Ada Lovelace,ada@example.org\nnobody\n-n,-n@example.org\n")
	res = s.run("import_customers", map[string]any{"file": "bad.csv"})
	if got := counts(res, "failed"); got != `{"lines": 3, "imported": 2, "known": 0, "faulty": 1, "dry_run": false}` || !strings.Contains(string(res.Tail.Data), "line 2 is faulty: nobody") {
		t.Errorf("faulty: %s\n%s", got, res.Tail.Data)
	}
	_, err := s.submit(s.request("import_customers", map[string]any{"file": "-../../etc/passwd"}))
	refused(t, err, ipc.CodeInvalid, "import_customers needs \"file\"")
}

// The fixtures for the conformance suite do what the suite expects of them.
func TestConformanceJobs(t *testing.T) {
	s := newToolSite(t)
	s.copyProject("../../internal/e2e/testdata/conformance-jobs")
	if got, want := text(t, s.run("greet", map[string]any{"name": `Wörld "\`}), "succeeded"), `{"content":[{"type":"text","text":"Hello, Wörld \"\\!"}]}`; got != want {
		t.Errorf("greet: %s", got)
	}
	if res := s.run("slow_compute", map[string]any{"seconds": 0, "label": "x"}); text(t, res, "succeeded") != "" || string(res.Tail.Data) != "x: computed for 0 seconds\n" {
		t.Errorf("slow_compute printed %q", res.Tail.Data)
	}
	text(t, s.run("failing_job", struct{}{}), "failed")
	text(t, s.run("protocol_error_job", struct{}{}), "errored")

	job := s.call("confirm_delete", map[string]any{"filename": "a.txt"})
	s.question(job.ID)
	s.answer(job.ID, "accept", `{"confirm":true}`)
	if res := s.await(job.ID, "final"); text(t, res, "succeeded") != "" || string(res.Tail.Data) != "deleted a.txt\n" {
		t.Errorf("confirm_delete printed %q", res.Tail.Data)
	}

	job = s.call("multi_input", struct{}{})
	var open []ipc.Question
	for deadline := time.Now().Add(20 * time.Second); len(open) < 2; time.Sleep(20 * time.Millisecond) {
		got, err := s.daemon.Get(t.Context(), ipc.GetRequest{ID: job.ID})
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d questions are open, %v", len(open), err)
		}
		open = got.Questions
	}
	for _, q := range open {
		reply, err := s.daemon.Answer(t.Context(), ipc.AnswerRequest{Job: job.ID, Question: q.Key, Action: "accept", Content: json.RawMessage(`{"name":"n","confirm":true}`), By: "form"})
		if err != nil || !reply.Taken {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	text(t, s.await(job.ID, "final"), "succeeded")

	call := s.request("test_tool_with_task", struct{}{})
	_, err := s.submit(call)
	refused(t, err, ipc.CodeAnswers, "name")
	call.Answers = json.RawMessage(`{"name":"Alice"}`)
	reply, err := s.submit(call)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, s.await(reply.Job.ID, "final"), "succeeded"), `{"content":[{"type":"text","text":"Hello, Alice, from the background"}]}`; got != want {
		t.Errorf("test_tool_with_task: %s", got)
	}
}
