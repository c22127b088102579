//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobd/internal/e2e/rig"
)

// peak is the most memory that a process ever had, in MB, of the kind that
// /proc/PID/status names VmHWM.
func peak(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1000
}

// onDiskBytes is how much room a directory takes, with all that is in it.
func onDiskBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var sum int64
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		if os.IsNotExist(err) {
			return nil // it was removed meanwhile
		}
		sum += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// yesToFile measures how many bytes a second "yes" writes into a file, over four
// gigabytes at most, which fit into the cache of the machine.
func yesToFile(t *testing.T, r *rig.Rig, seconds int) float64 {
	t.Helper()
	path := r.Project + "/baseline"
	begun := time.Now()
	out, err := exec.Command("bash", "-c", fmt.Sprintf("ulimit -f %d; timeout %d yes > %s", 4<<20, seconds, path)).CombinedOutput()
	took := time.Since(begun)
	fi, serr := os.Stat(path)
	if serr != nil || fi.Size() < 1<<20 {
		t.Fatalf("yes > file: %v, %v: %s", err, serr, out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return float64(fi.Size()) / took.Seconds()
}

// A job that prints as fast as it can is not held up, and does not fill the
// disk: the head and the tail are kept, and what is not is counted. FLOOD is for
// how many seconds; from 30 on its speed is asserted.
func TestFlood_StaysWithinItsLimitAndIsNotHeldUp(t *testing.T) {
	const limit = 64 << 20
	seconds := number(t, "FLOOD", 3)
	r := rig.New(t)
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte("output_limit: 64MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Jobd("start")
	toFile := yesToFile(t, r, min(seconds, 10))
	id := asJob(r, "flood", fmt.Sprintf("timeout %d yes", seconds))
	r.UntilState(10*time.Second, id, "running")
	begun := time.Now()
	shims := r.Processes("jobd-shim")
	if len(shims) != 1 {
		t.Fatalf("shims: %v", shims)
	}
	var most int64
	var ofShim, ofDaemon float64
	rig.Until(t, time.Duration(seconds+20)*time.Second, "the flood is over", func() bool {
		most = max(most, onDiskBytes(t, r.State+"/bundles/"+id))
		if rig.Alive(shims[0].PID) && time.Since(begun) < time.Duration(seconds)*time.Second {
			ofShim = max(ofShim, peak(t, shims[0].PID))
		}
		ofDaemon = max(ofDaemon, peak(t, r.Daemon()))
		return r.Job(id).Final()
	})
	toFile = (toFile + yesToFile(t, r, min(seconds, 10))) / 2

	job := r.Job(id)
	if job.State != "failed" || job.Code() != 124 { // timeout(1) has ended it
		t.Errorf("the job is %+v", job)
	}
	asJob := float64(job.OutputBytes) / float64(seconds)
	t.Logf("in %d s the job printed %.1f GB, %.0f MB/s; yes > file makes %.0f MB/s: a ratio of %.2f; at most %.1f MB on disk; jobd at most %.1f MB, its shim %.1f MB",
		seconds, float64(job.OutputBytes)/1e9, asJob/1e6, toFile/1e6, asJob/toFile, float64(most)/1e6, ofDaemon, ofShim)
	if most > limit+1<<20 {
		t.Errorf("%d bytes were on disk, the limit is %d", most, limit)
	}
	if os.Getenv("JOBD_RACE") != "1" && (ofDaemon > 30 || ofShim > 30) {
		t.Errorf("jobd had %.1f MB, its shim %.1f MB", ofDaemon, ofShim)
	}
	if seconds >= 30 && asJob < toFile/2 {
		t.Errorf("the job made %.0f MB/s, and yes > file %.0f MB/s", asJob/1e6, toFile/1e6)
	}
	// Head and tail are there, and the gap between them is told.
	var detail []struct {
		Bytes   int64 `json:"output_bytes"`
		Dropped int64 `json:"output_dropped"`
	}
	decode(t, []byte(r.Jobd("status", id, "--json")), &detail)
	raw := r.Jobd("logs", "--raw", id)
	if kept := detail[0].Bytes - detail[0].Dropped; int64(len(raw)) != kept || kept < limit/2 || kept > limit {
		t.Errorf("%d bytes came, %d are not kept, and %d are printed", detail[0].Bytes, detail[0].Dropped, len(raw))
	}
	if strings.Trim(raw, "y\n") != "" {
		t.Error("something else is printed")
	}
}

// A very large output is handed out in pieces: no answer is large, and no
// process takes much memory. OUTPUT is its size in MB.
func TestHugeOutput_IsHandedOutInPieces(t *testing.T) {
	size := int64(number(t, "OUTPUT", 128)) << 20
	r := rig.New(t)
	if err := os.MkdirAll(r.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.State+"/config.yaml", []byte("output_limit: 2GiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	front := r.Front("session")
	id := front.Run(map[string]any{"command": fmt.Sprintf("sleep 1.5; yes 0123456789abcde | head -c %d", size)})
	task := front.UntilDone(5*time.Minute, id)
	if task.Result == nil || task.Result.IsError || !strings.Contains(task.Result.Text(), "read_job_output") {
		t.Fatalf("the task is %+v", task)
	}
	for at := int64(0); at < size; at += size / 5 {
		piece := front.Tool("read_job_output", map[string]any{"job_id": id, "offset": at / 16 * 16, "limit": 1000})
		if piece.IsError || !strings.Contains(piece.Text(), "0123456789abcde") {
			t.Errorf("at %d there is %q", at, piece.Text())
		}
	}
	for _, line := range front.Lines() {
		if len(line) > 64<<10 {
			t.Errorf("an answer has %d bytes: %.200s…", len(line), line)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	count := exec.CommandContext(ctx, "bash", "-c", `"$0" logs --raw "$1" | wc -c`, r.Bin+"/jobd", id)
	count.Env, count.Dir = r.Env(), r.Project
	if out := rig.Run(t, count); strings.TrimSpace(out.Stdout) != fmt.Sprint(size) {
		t.Errorf("logs printed %s bytes of %d: %s", out.Stdout, size, out.Stderr)
	}
	ofDaemon, ofFront := peak(t, r.Daemon()), peak(t, front.PID())
	t.Logf("with %d MB of output jobd had %.1f MB at most, mcp-stdio %.1f MB", size>>20, ofDaemon, ofFront)
	if os.Getenv("JOBD_RACE") != "1" && (ofDaemon > 100 || ofFront > 100) {
		t.Errorf("jobd had %.1f MB, mcp-stdio %.1f MB", ofDaemon, ofFront)
	}
}

// goroutines ends the daemon and returns how many goroutines it had, from the
// report that the Go runtime leaves in its log.
func goroutines(t *testing.T, r *rig.Rig) int {
	t.Helper()
	path := r.State + "/jobd.log"
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	daemon := r.Daemon()
	if err := syscall.Kill(daemon, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, 10*time.Second, "the daemon has ended", func() bool { return !rig.Alive(daemon) })
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := len(regexp.MustCompile(`(?m)^goroutine \d+ `).FindAll(log[before.Size():], -1))
	if n == 0 {
		t.Fatalf("no goroutine in the report: %s", log[before.Size():])
	}
	return n
}

// After very many jobs the daemon has no more open, and no more at work, than
// after a few. MANY says how many.
func TestManyJobs_LeaveNothingBehindInTheDaemon(t *testing.T) {
	many := number(t, "MANY", 150)
	r := rig.New(t)
	r.Jobd("start")
	total := 0
	run := func(n int) {
		front := r.Front("session")
		for n > 0 {
			var answers []<-chan rig.Message
			for range min(n, 10) {
				answers = append(answers, front.Start("tools/call", map[string]any{"name": "run_job",
					"arguments": map[string]any{"command": "echo E >&2; exit 3", "idempotency_key": fmt.Sprint(total)}}))
				total++
			}
			for _, answer := range answers {
				// What a fast failure printed is there each time.
				result := front.Result(<-answer)
				if result.TaskID != "" { // on a machine with much to do
					result = *front.UntilDone(time.Minute, result.TaskID).Result
				}
				if code := result.Meta.Job.ExitCode; code == nil || *code != 3 || !strings.Contains(result.Text(), "\nE\n") {
					t.Fatalf("a job was answered with %q", result.Text())
				}
			}
			n -= len(answers)
		}
		front.Close()
		rig.Until(t, time.Minute, "all have ended", func() bool {
			status, err := r.Ask()
			return err == nil && status.LiveJobs == 0 && len(r.Processes("jobd-shim")) == 0
		})
	}
	descriptors := func() (n int) {
		rig.Until(t, 10*time.Second, "the clients are gone", func() bool {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.Daemon()))
			if err != nil {
				t.Fatal(err)
			}
			was := n
			n = len(open)
			return n == was
		})
		return n
	}
	run(20)
	few := goroutines(t, r)
	r.Jobd("start")
	run(20)
	open, memory := descriptors(), peak(t, r.Daemon())
	run(many)
	daemon := r.Daemon()
	after, memoryAfter := descriptors(), peak(t, daemon)
	for _, zombie := range children(t, daemon) {
		t.Errorf("the daemon has the child %s", zombie)
	}
	log, err := os.Stat(r.State + "/jobd.log")
	if err != nil {
		t.Fatal(err)
	}
	size := onDiskBytes(t, r.State+"/bundles")
	bundles, err := os.ReadDir(r.State + "/bundles")
	if err != nil {
		t.Fatal(err)
	}
	lot := goroutines(t, r)
	t.Logf("%d jobs: descriptors %d, then %d; goroutines %d, then %d; peak memory %.1f MB, then %.1f MB; %d bundles of %d bytes each; %d bytes of log",
		total, open, after, few, lot, memory, memoryAfter, len(bundles), size/int64(len(bundles)), log.Size())
	if after > open+10 { // those of the database are opened as they are needed
		t.Errorf("there were %d descriptors and are %d", open, after)
	}
	if lot > few+3 {
		t.Errorf("there were %d goroutines and are %d", few, lot)
	}
	if len(bundles) != total || size/int64(len(bundles)) > 40<<10 {
		t.Errorf("%d jobs have %d bundles of %d bytes", total, len(bundles), size)
	}
	if log.Size() > 64<<10 {
		t.Errorf("%d bytes were logged", log.Size())
	}
}

// children are the child processes of a process, zombies too.
func children(t *testing.T, parent int) (found []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		fields := strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			found = append(found, string(line))
		}
	}
	return found
}
