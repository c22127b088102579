package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// job is what of a job these tests look at.
type job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	PID      int    `json:"pid"`
	ExitCode *int   `json:"exit_code"`
}

func (s *site) submit(command string) string {
	s.t.Helper()
	return strings.TrimSpace(s.must("run", "--", "sh", "-c", command))
}

func (s *site) job(id string) job {
	s.t.Helper()
	var found []job
	if err := json.Unmarshal([]byte(s.must("status", id, "--json")), &found); err != nil || len(found) != 1 {
		s.t.Fatalf("the status of job %s: %v, %v", id, found, err)
	}
	return found[0]
}

// awaitJob polls until the job is in the state.
func (s *site) awaitJob(id, state string) job {
	s.t.Helper()
	var j job
	eventually(s.t, "job "+id+" is "+state, func() bool { j = s.job(id); return j.State == state })
	return j
}

func TestAJobHoldsNothingOfItsDaemon(t *testing.T) {
	s := newSite(t)
	id := s.submit("sleep 600")
	j := s.awaitJob(id, "running")
	for _, name := range []string{"jobd.sock", "jobd.pid", "alive.lock", "jobd.db"} {
		for _, pid := range append(s.processes("jobd-shim"), j.PID) {
			fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			if err != nil || len(fds) == 0 {
				t.Fatalf("descriptors of process %d: %v, %v", pid, fds, err)
			}
			for _, fd := range fds {
				// A shim waits on alive.lock through an opening of its own.
				if to, err := os.Readlink(fd); err == nil && to == filepath.Join(s.dir, name) && (name != "alive.lock" || pid == j.PID) {
					t.Errorf("process %d has %s open", pid, to)
				}
			}
		}
	}
	s.kill(s.pid())
	s.must("start") // with the job alive
	if after := s.job(id); after.State != "running" || after.PID != j.PID {
		t.Errorf("the job was %+v and is %+v", j, after)
	}
}

func TestJobsOutliveTheExchangeOfTheDaemon(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(filepath.Dir(s.dir), "gate")
	id := s.submit("while [ ! -e " + gate + " ]; do sleep 0.02; done; exit 7")
	before := s.awaitJob(id, "running")
	s.must("restart")
	if j := s.job(id); j.State != "running" || j.PID != before.PID {
		t.Errorf("the job was %+v and is %+v", before, j)
	}
	s.must("stop")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.run("wait", id); code != 7 {
		t.Errorf("wait ended with %d, %s", code, errs)
	}
}

func TestAWaitGoesOnThroughTheExchangeOfTheDaemon(t *testing.T) {
	s := newSite(t)
	gate := filepath.Join(filepath.Dir(s.dir), "gate")
	id := s.submit("while [ ! -e " + gate + " ]; do sleep 0.02; done; exit 9")
	s.awaitJob(id, "running")
	waiter := s.cmd("wait", id)
	var errs bytes.Buffer
	waiter.Stderr = &errs
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	s.must("restart")
	s.kill(s.pid())
	s.must("start")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waiter.Wait()
	if code := waiter.ProcessState.ExitCode(); code != 9 {
		t.Errorf("wait ended with %d, %s", code, errs.String())
	}
}

func TestStopWithKillJobsEndsThem(t *testing.T) {
	s := newSite(t)
	id := s.submit("sleep 600")
	j := s.awaitJob(id, "running")
	s.kill(s.pid()) // the jobs of a daemon that is gone, too
	s.must("stop", "--kill-jobs")
	if !dead(j.PID) || !exists(s.p.Stopped) {
		t.Errorf("the job is dead: %t; stopped there: %t", dead(j.PID), exists(s.p.Stopped))
	}
	if j := s.job(id); j.State != "cancelled" {
		t.Errorf("the job is %+v", j)
	}
}

func TestADaemonWithAJobIsNotIdle(t *testing.T) {
	s := newSite(t)
	pid := s.start("--idle-exit", "2s")
	gate := filepath.Join(filepath.Dir(s.dir), "gate")
	s.submit("while [ ! -e " + gate + " ]; do sleep 0.02; done")
	time.Sleep(3500 * time.Millisecond)
	if dead(pid) {
		t.Error("it left with a job alive")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon is gone", func() bool { return dead(pid) })
}

func TestAShimBringsBackADaemonThatDied(t *testing.T) {
	s := newSite(t)
	s.awaitJob(s.submit("sleep 600"), "running")
	s.kill(s.pid())
	eventually(t, "a daemon answers", func() bool { _, err := s.status(); return err == nil })
	s.must("stop")
	time.Sleep(3 * time.Second) // longer than shims wait
	if got := s.daemons(); len(got) != 0 {
		t.Errorf("one that was stopped came back: %v", got)
	}
}

func TestADatabaseThatIsDamagedIsSetAside(t *testing.T) {
	s := newSite(t)
	id := s.submit("echo kept; exit 4")
	eventually(t, "the job has failed", func() bool { return s.job(id).State == "failed" })
	live := s.submit("sleep 600")
	s.awaitJob(live, "running")
	s.must("stop")
	db, err := os.ReadFile(s.p.DB)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(db); i++ {
		db[i] ^= 0x5a
	}
	if err := os.WriteFile(s.p.DB, db, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"-wal", "-shm"} {
		os.Remove(s.p.DB + side)
	}
	s.must("start")
	if j := s.job(id); j.State != "failed" || j.ExitCode == nil || *j.ExitCode != 4 {
		t.Errorf("the job that had ended is %+v", j)
	}
	if j := s.awaitJob(live, "running"); j.PID == 0 {
		t.Errorf("the job that runs is %+v", j)
	}
	aside, err := filepath.Glob(s.p.DB + ".damaged-*")
	if err != nil || len(aside) == 0 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	log, err := os.ReadFile(s.p.Log)
	if err != nil || !strings.Contains(string(log), "the database is damaged: it was set aside") {
		t.Errorf("the log does not say so: %v", err)
	}
}

func TestADatabaseOfAnotherKindIsRefusedUntouched(t *testing.T) {
	for name, change := range map[string]func(db []byte){
		"newer":   func(db []byte) { copy(db[60:], []byte{0, 0, 0x7f, 0xff}) },                  // user_version
		"foreign": func(db []byte) { copy(db[60:], []byte{0, 0, 0, 1}); copy(db[68:], "xxxx") }, // application_id
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.must("start")
			s.must("stop")
			db, err := os.ReadFile(s.p.DB)
			if err != nil {
				t.Fatal(err)
			}
			change(db)
			if err := os.WriteFile(s.p.DB, db, 0o600); err != nil {
				t.Fatal(err)
			}
			_, errs, code := s.run("start")
			if code != exitError || !strings.Contains(errs, s.p.DB) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q", code, errs)
			}
			if after, err := os.ReadFile(s.p.DB); err != nil || !bytes.Equal(after, db) {
				t.Errorf("the database has changed: %v", err)
			}
			if !exists(s.p.Stopped) {
				t.Error("a start that failed took back the stop")
			}
		})
	}
}

func TestAWrongConfigurationIsNamedByPlace(t *testing.T) {
	s := newSite(t)
	if err := s.p.Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "config.yaml"), []byte("timeout: 1h\nmax_rnning: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(s.dir, "config.yaml") + `:2:1: unknown setting "max_rnning"; did you mean "max_running"?`
	if _, errs, code := s.run("start"); code != exitError || errs != "jobd: "+want+"\n" {
		t.Errorf("exit code %d, %q", code, errs)
	}
	if _, errs, _ := s.run("run", "--", "true"); !strings.Contains(errs, want) {
		t.Errorf("by a client: %q", errs)
	}
}

func TestTheForegroundDaemonIsTheSame(t *testing.T) {
	s := newSite(t)
	cmd := s.cmd("daemon")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers", func() bool { _, err := s.status(); return err == nil })
	if s.pid() != cmd.Process.Pid {
		t.Errorf("process %d answers", s.pid())
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", cmd.Process.Pid)); err != nil || cwd != "/" {
		t.Errorf("working directory %q, %v", cwd, err)
	}
	if out := s.must("start"); !strings.Contains(out, "already running") {
		t.Errorf("start: %q", out)
	}
	if _, errs, code := s.run("run", "--wait", "--", "sh", "-c", `test -z "$SECRET_TOKEN"`); code != 1 {
		t.Errorf("a job lacks its caller's environment: %d, %s", code, errs)
	}
	s.must("stop")
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(errs.String(), "jobd serves") {
		t.Errorf("standard error: %q", errs.String())
	}
	log, err := os.ReadFile(s.p.Log)
	if err != nil || !strings.Contains(string(log), "jobd leaves") || strings.Contains(string(log), "hunter2") {
		t.Errorf("the log: %s, %v", log, err)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobd.log")
	if err := os.WriteFile(path, []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(path, false)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 10_000
	log := slog.New(slog.NewJSONHandler(l, nil))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				log.Info("a line of some length", "writer", i, "line", j)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != logKept+1 {
		t.Fatalf("files %v, %v", names, err)
	}
	var newest string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > 10_000 || len(data) == 0 {
			t.Errorf("%s has %d bytes, %v", name, len(data), err)
		}
		for line := range strings.Lines(string(data)) {
			if !json.Valid([]byte(line)) && line != "old\n" {
				t.Errorf("%s holds the torn line %q", name, line)
			}
		}
		if fi, err := os.Stat(name); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
		if name == path {
			newest = string(data)
		}
	}
	if !strings.Contains(newest, "a line of some length") {
		t.Error("the newest file is not the one without a number")
	}
}
