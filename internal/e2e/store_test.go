//go:build e2e

package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver by which another program locks the database

	"jobd/internal/e2e/rig"
)

// onDisk puts the rig's state on a file system of its own. It returns false to
// one who has no right to mount: then the tests of the store and of the shim
// with limits and failing disks are what remains.
func onDisk(t *testing.T, r *rig.Rig, size string) bool {
	t.Helper()
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("jobd-test", r.State, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Logf("no right to mount a file system: %v", err)
		return false
	}
	t.Cleanup(func() {
		killAll(t, r)
		if err := syscall.Unmount(r.State, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

// fill leaves not a byte on the rig's disk. The function returned makes room.
func fill(t *testing.T, r *rig.Rig) (free func()) {
	t.Helper()
	path := r.State + "/ballast"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 64 << 10; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that is full: who submits is told so, and there is no job; a job that
// ends meanwhile has its result once there is room.
func TestStore_IsFull(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if !onDisk(t, r, "6m") {
		return
	}
	front := r.Front("session")
	id := front.Run(map[string]any{"command": "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; exit 5"})
	rig.Until(t, 20*time.Second, "the job has printed", func() bool { return r.Jobd("logs", "--raw", id) == "before\n" })
	bundles := func() []string {
		found, err := filepath.Glob(r.State + "/bundles/*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	free := fill(t, r)

	refused := 0
	for range 20 {
		out := r.Try("run", "--", "true")
		if out.Code == 0 {
			continue // a page that was free already took it
		}
		refused++
		if !strings.Contains(out.Stderr, "no space left") || !strings.Contains(out.Stderr, r.State) || strings.Count(out.Stderr, "\n") > 2 {
			t.Errorf("the shell was told %q", out.Stderr)
		}
	}
	if refused == 0 {
		t.Error("every job was taken; the disk is not full")
	}
	result := front.Tool("run_job", map[string]any{"command": "true"})
	if !result.IsError || !strings.Contains(result.Text(), "no space left") || !strings.Contains(result.Text(), r.State) {
		t.Errorf("the model was told %q", result.Text())
	}
	r.Write("go", "", 0o600)
	// It can neither record its end nor be taken for ended.
	rig.Until(t, 20*time.Second, "the command has ended", func() bool { return len(r.Processes("bash"))+len(r.Processes("sleep")) == 0 })
	if job := r.Job(id); job.Final() {
		t.Errorf("with a full disk the job became %+v", job)
	}
	kill := r.KillDaemon() // nor does a daemon that starts with a full disk lose it
	free()
	job := r.UntilState(30*time.Second, id, "failed")
	if job.Code() != 5 {
		t.Errorf("the job is %+v", job)
	}
	if now := r.Daemon(); now == kill {
		t.Errorf("the daemon is still %d", now)
	}
	for _, job := range r.Jobs() {
		if job.ID != id && job.State != "succeeded" {
			job = r.UntilState(20*time.Second, job.ID, "succeeded", "failed")
			if job.State == "failed" && !strings.Contains(job.StatusMessage, "no space left") {
				t.Errorf("a job that was accepted is %+v", job)
			}
		}
	}
	if task := front.UntilDone(20*time.Second, id); task.Result == nil || !strings.Contains(task.Result.Text(), "exit code 5") {
		t.Errorf("the task is %+v", task)
	}
	r.Jobd("run", "--wait", "--", "true")
	r.Jobd("restart") // what was refused has left nothing behind
	if jobs, found := r.Jobs(), bundles(); len(jobs) != len(found) {
		t.Errorf("there are %d jobs and %d bundles", len(jobs), len(found))
	}
}

// A database that another program has locked: whoever writes is told so after a
// while, whoever reads is not bothered, and nothing is lost.
func TestStore_IsLockedByAnotherProgram(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	id := asJob(r, "ends", "while [ ! -e go ]; do sleep 0.05; done; echo out; exit 6")
	r.UntilState(20*time.Second, id, "running")
	db, err := sql.Open("sqlite", "file:"+r.State+"/jobd.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Write("go", "", 0o600)
	out := r.Try("run", "--", "true")
	if out.Code == 0 || !strings.Contains(out.Stderr, "locked by another program") || !strings.Contains(out.Stderr, r.State+"/jobd.db") {
		t.Errorf("the shell was told %q, code %d", out.Stderr, out.Code)
	}
	if job := r.Job(id); job.State != "running" {
		t.Errorf("the job is %+v", job)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if job := r.UntilState(20*time.Second, id, "failed"); job.Code() != 6 {
		t.Errorf("the job is %+v", job)
	}
	if jobs := r.Jobs(); len(jobs) != 1 {
		t.Errorf("there are %d jobs", len(jobs))
	}
}

// A person who reads the database with another program, for longer than a lock
// is waited for, is in nobody's way.
func TestStore_IsReadByAnotherProgram(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Jobd("start")
	db, err := sql.Open("sqlite", "file:"+r.State+"/jobd.db?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	count := func() (n int) {
		if err := tx.QueryRow("SELECT count(*) FROM jobs").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Fatalf("there are %d jobs", n)
	}
	front := r.Front("session")
	written := 0
	for begun := time.Now(); time.Since(begun) < 6*time.Second; written += 32 {
		var answers []<-chan rig.Message
		for i := range 32 {
			answers = append(answers, front.Start("tools/call", map[string]any{"name": "run_job",
				"arguments": map[string]any{"command": "true", "idempotency_key": fmt.Sprint(written + i)}}))
		}
		for _, answer := range answers {
			if result := front.Result(<-answer); result.IsError {
				t.Fatalf("a writer was told %q", result.Text())
			}
		}
	}
	if n := count(); n != 0 {
		t.Errorf("the reader sees %d jobs", n)
	}
	if jobs := r.Jobs(); len(jobs) != written {
		t.Errorf("%d of %d jobs are there", len(jobs), written)
	}
}

// A state directory that became read-only says so in every error, and is as it
// was when it can be written again.
func TestStore_IsReadOnly(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	if !onDisk(t, r, "16m") {
		return
	}
	id := asJob(r, "kept", "echo kept; exit 4")
	r.UntilState(20*time.Second, id, "failed")
	r.Jobd("stop")
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("", r.State, "", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	rig.Until(t, 10*time.Second, "nothing has files open", func() bool { return len(r.Processes("")) == 0 })
	remount(syscall.MS_RDONLY)
	front := r.Front("session")
	for what, said := range map[string]string{
		"run":      r.Try("run", "--", "true").Stderr,
		"start":    r.Try("start").Stderr,
		"run_job":  front.Tool("run_job", map[string]any{"command": "true"}).Text(),
		"get_job":  front.Tool("get_job", map[string]any{"job_id": id}).Text(),
		"jobs now": front.Tool("list_jobs", map[string]any{}).Text(),
	} {
		if !strings.Contains(said, r.State) || !strings.Contains(said, "read-only") {
			t.Errorf("%s was told %q", what, said)
		}
	}
	remount(0)
	if job := r.Job(id); job.State != "failed" || job.Code() != 4 {
		t.Errorf("the job is %+v", job)
	}
	if result := front.Tool("run_job", map[string]any{"command": "true"}); result.IsError {
		t.Errorf("afterwards the model was told %q", result.Text())
	}
}
