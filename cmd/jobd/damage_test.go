package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// harm changes the database at the last place where it holds text, as a failing
// disk would. No daemon may run.
func (s *site) harm(text string, change func(db []byte, at int)) {
	s.t.Helper()
	db, err := os.ReadFile(s.p.DB)
	if err != nil {
		s.t.Fatal(err)
	}
	at := bytes.LastIndex(db, []byte(text))
	if at < 0 {
		s.t.Fatalf("the database does not hold %q", text)
	}
	change(db, at)
	if err := os.WriteFile(s.p.DB, db, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// says checks what the doctor says of damage.
func (s *site) says(want string) {
	s.t.Helper()
	s.t.Setenv("JOBD_HOME", s.dir)
	remark, err := checkDamage(context.Background())
	var r *remedied
	switch {
	case want == "":
		if err != nil {
			s.t.Errorf("the doctor finds %v", err)
		}
	case !errors.As(err, &r) || !r.warning || r.remedy == "" || !strings.Contains(err.Error(), want):
		s.t.Errorf("the doctor says %q, %v, want %q", remark, err, want)
	}
}

func TestADamagedRowIsMadeAnewAndTheDoctorTellsOfIt(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(filepath.Dir(s.dir), "gate")
	ended := s.submit("echo out; exit 4")
	eventually(t, "the job has failed", func() bool { return s.job(ended).State == "failed" })
	bad := s.submit("echo harmed; while [ ! -e " + gate + " ]; do sleep 0.02; done; exit 7")
	good := s.submit("sleep 600")
	before, other := s.awaitJob(bad, "running"), s.awaitJob(good, "running")
	s.must("stop")
	s.says("")
	s.harm("echo harmed", func(db []byte, at int) { db[at] ^= 1 })

	s.must("start")
	if j := s.job(bad); j.State != "running" || j.PID != before.PID {
		t.Errorf("the job was %+v and is %+v", before, j)
	}
	if j := s.job(good); j != other {
		t.Errorf("another job was %+v and is %+v", other, j)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.run("wait", bad); code != 7 {
		t.Errorf("wait ended with %d, %s", code, errs)
	}
	if out := s.must("logs", "--raw", bad); out != "harmed\n" {
		t.Errorf("its output is %q", out)
	}
	if log, err := os.ReadFile(s.p.Log); err != nil || !strings.Contains(string(log), "a job's row was damaged: it was set aside and made anew") {
		t.Errorf("the log does not say so: %v", err)
	}
	s.says("0 databases, and 1 job's row")
	if found, err := filepath.Glob(s.p.DB + ".damaged-*"); err != nil || len(found) != 1 || !strings.HasSuffix(found[0], bad) {
		t.Errorf("set aside: %v, %v", found, err)
	}
}

func TestADamagedBundleMakesItsJobAloneLost(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(s.dir, "gate")
	bad, good := s.submit("while [ ! -e "+gate+" ]; do sleep 0.05; done; exit 3"), s.submit("sleep 600")
	s.awaitJob(good, "running")
	s.awaitJob(bad, "running")
	s.must("stop")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(s.dir, "bundles", bad, "exit.json")
	eventually(t, "the job has ended", func() bool { return exists(record) && len(s.processes("bundles/"+bad)) == 0 })
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("start")
	s.awaitJob(bad, "lost")
	if out := s.must("status", bad); !strings.Contains(out, record) {
		t.Errorf("the status does not name the record: %s", out)
	}
	s.awaitJob(good, "running")
}

// Damage that shows only when a part of the file is read does not wait for a
// person: the jobs go on in a new database.
func TestADatabaseThatProvesDamagedLaterIsSetAside(t *testing.T) {
	s := newSite(t)
	var ids []string
	for i := range 24 {
		ids = append(ids, s.submit(fmt.Sprintf("echo harmed %d.; exit %d", i, i+1)))
	}
	for i, id := range ids {
		eventually(t, "the job has failed", func() bool { return s.job(id).State == "failed" })
		if j := s.job(id); *j.ExitCode != i+1 {
			t.Errorf("the job is %+v", j)
		}
	}
	live := s.submit("sleep 600")
	before := s.awaitJob(live, "running")
	s.must("stop")
	// The page of an old job: nothing that a start reads first.
	s.harm("echo harmed 2.", func(db []byte, at int) { copy(db[at/4096*4096:], "not a page") })
	s.must("start")
	for i, id := range ids {
		if j := s.job(id); j.State != "failed" || j.ExitCode == nil || *j.ExitCode != i+1 {
			t.Errorf("job %d is %+v", i, j)
		}
	}
	if j := s.awaitJob(live, "running"); j.PID != before.PID {
		t.Errorf("the job was %+v and is %+v", before, j)
	}
	var listed []job
	if err := json.Unmarshal([]byte(s.must("status", "--all", "--json")), &listed); err != nil || len(listed) != len(ids)+1 || listed[0].ID != live {
		t.Fatalf("the list is %+v, %v", listed, err)
	}
	for i, id := range ids {
		if got := listed[len(ids)-i].ID; got != id {
			t.Errorf("job %d is %s in the list, not %s", i, got, id)
		}
	}
	s.says("1 database, and 0 job's rows")
}

// Damage that is met while the daemon serves makes it give way to another, which
// looks at all of the file: no person has to restart anything.
func TestDamageThatIsMetWhileServingIsMendedByTheNextDaemon(t *testing.T) {
	s := newSite(t)
	var ids []string
	for i := range 24 {
		ids = append(ids, s.submit(fmt.Sprintf("echo harmed %d.; exit %d", i, i+1)))
	}
	for _, id := range ids {
		eventually(t, "the job has failed", func() bool { return s.job(id).State == "failed" })
	}
	live := s.submit("sleep 600")
	before := s.awaitJob(live, "running")
	s.must("restart") // which moves all of the log into the file
	daemon := s.pid()
	file, err := os.OpenFile(s.p.DB, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	db, err := os.ReadFile(s.p.DB)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(db, []byte("echo harmed 2."))
	if _, err := file.WriteAt(bytes.Repeat([]byte("not a page"), 20), int64(at/4096*4096)); at < 0 || err != nil {
		t.Fatalf("changing the file at %d: %v", at, err)
	}
	s.must("run", "--wait", "--", "true") // a change makes the daemon read the file anew
	s.run("status", "--all")              // which finds out, and may be told so
	eventually(t, "another daemon serves", func() bool {
		s.run("status", "--all")
		st, err := s.status()
		return err == nil && st.PID != daemon
	})
	for i, id := range ids {
		if j := s.job(id); j.State != "failed" || j.ExitCode == nil || *j.ExitCode != i+1 {
			t.Errorf("job %d is %+v", i, j)
		}
	}
	if j := s.awaitJob(live, "running"); j.PID != before.PID {
		t.Errorf("the job was %+v and is %+v", before, j)
	}
	s.says("1 database, and 0 job's rows")
}
