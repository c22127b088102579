//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// New programs come over the old ones while jobs run, and another daemon takes
// over. The jobs notice nothing, and those who wait for them neither.
func TestUpgrade_JobsRunOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	older, newer := r.BuildVersion("1.0.0", 1), r.BuildVersion("2.0.0", 2)
	r.Install(older)
	front := r.Front("session")
	type job struct {
		id        string
		pid, code int
	}
	var jobs []job
	for i := range 3 {
		code := 11 + i
		id := front.Run(map[string]any{"name": fmt.Sprint("job", i), "command": fmt.Sprintf(
			"echo start; while [ ! -e tell ]; do sleep 0.05; done; jobd progress 1/2 half 2> said%d; echo told $? >> said%d; while [ ! -e go ]; do sleep 0.05; done; exit %d", i, i, code)})
		jobs = append(jobs, job{id, r.UntilState(10*time.Second, id, "running").PID, code})
	}
	waiter := make(chan rig.Outcome, 1)
	go func() { waiter <- r.With(t, older).Try("wait", jobs[0].id) }()
	before, err := r.Ask()
	if err != nil {
		t.Fatal(err)
	}

	r.Install(newer)
	// Until the daemon is exchanged, a job that runs the new program is told why
	// it is not served, for it must not exchange the daemon that it hangs under.
	r.Write("tell", "", 0o600)
	for i := range jobs {
		said := fmt.Sprint("said", i)
		rig.Until(t, 20*time.Second, "the job has reported", func() bool { return strings.Contains(strings.Join(r.Lines(said), "\n"), "told") })
		text := strings.Join(r.Lines(said), "\n")
		for _, part := range []string{"jobd 1.0.0 (protocol 1)", "this program, 2.0.0 (protocol 2)", "jobd restart", "told 1"} {
			if !strings.Contains(text, part) {
				t.Errorf("the job was told %q, without %q", text, part)
			}
		}
	}
	out := r.Jobd("restart")
	after, err := r.Ask()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("jobd 1.0.0, process %d, made place for 2.0.0, process %d\n", before.PID, after.PID); out != want {
		t.Errorf("restart said %q, not %q", out, want)
	}
	if before.Version != "1.0.0" || before.Protocol != 1 || after.Version != "2.0.0" || after.Protocol != 2 {
		t.Errorf("the daemons are %+v and %+v", before, after)
	}
	for _, j := range jobs {
		if now := r.Job(j.id); now.State != "running" || now.PID != j.pid {
			t.Errorf("the job of process %d is %s, process %d", j.pid, now.State, now.PID)
		}
	}
	// The old front end is served as it is.
	if task := front.Task(jobs[0].id); task.Status != "working" {
		t.Errorf("the old front end sees %+v", task)
	}
	r.Write("go", "", 0o600)
	for _, j := range jobs {
		if ended := r.UntilState(20*time.Second, j.id, "failed"); ended.Code() != j.code {
			t.Errorf("exit code %d, not %d", ended.Code(), j.code)
		}
		task := front.UntilDone(20*time.Second, j.id)
		if task.Result == nil || task.Result.Meta.Job.ExitCode == nil || *task.Result.Meta.Job.ExitCode != j.code {
			t.Errorf("the old front end got %+v", task)
		}
	}
	select {
	case out := <-waiter:
		if out.Code != jobs[0].code {
			t.Errorf("the wait ended with %d: %s", out.Code, out.Stderr)
		}
	case <-time.After(20 * time.Second):
		t.Error("the wait has not ended")
	}
	if left := r.Processes("jobd-shim"); len(left) != 0 {
		rig.Until(t, 10*time.Second, "no shim is left", func() bool { return len(r.Processes("jobd-shim")) == 0 })
	}
}

// A client of any version works with a daemon of any other, or says which two
// versions do not fit and what to do.
func TestUpgrade_OlderAndNewerFitTogether(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	older, newer := r.With(t, r.BuildVersion("1.0.0", 1)), r.With(t, r.BuildVersion("2.0.0", 2))
	version := func() string {
		status, err := r.Ask()
		if err != nil {
			t.Fatal(err)
		}
		return status.Version
	}

	// A newer client exchanges an older daemon, and nothing is lost.
	id := strings.TrimSpace(older.Jobd("run", "--", "sleep", "300"))
	job := older.UntilState(10*time.Second, id, "running")
	if text := newer.Jobd("version"); !strings.Contains(text, "jobd 2.0.0 (protocol 2)") || !strings.Contains(text, "daemon 1.0.0 (protocol 1)") {
		t.Errorf("version says %q", text)
	}
	if v := version(); v != "1.0.0" {
		t.Errorf("to look at the versions made the daemon %s", v)
	}
	if now := newer.Job(id); now.State != "running" || now.PID != job.PID {
		t.Errorf("the newer client sees %+v", now)
	}
	if v := version(); v != "2.0.0" {
		t.Errorf("after a newer client came the daemon is %s", v)
	}
	// An older client is served by a newer daemon, which stays.
	if now := older.Job(id); now.State != "running" || now.PID != job.PID {
		t.Errorf("the older client sees %+v", now)
	}
	older.Jobd("run", "--wait", "--", "true")
	front := older.Front("session")
	if result := front.Tool("list_jobs", map[string]any{}); result.IsError {
		t.Errorf("the older front end was told %s", result.Text())
	}
	if v := version(); v != "2.0.0" {
		t.Errorf("an older client made the daemon %s", v)
	}
	// Either can stop the other's daemon.
	older.Jobd("stop")
	if v := older.Jobd("start"); !strings.Contains(v, "started") {
		t.Errorf("start said %q", v)
	}
	if v := version(); v != "1.0.0" {
		t.Errorf("the daemon is %s", v)
	}
	newer.Jobd("stop")
	if _, err := r.Ask(); err == nil {
		t.Error("the older daemon was stopped and answers")
	}
	newer.Jobd("start")
	older.Jobd("cancel", id)
	older.UntilState(20*time.Second, id, "cancelled")
}
