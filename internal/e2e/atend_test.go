//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/e2e/rig"
)

// near is how near to the job's end the daemon is killed.
const near = 2 * time.Millisecond

// The daemon dies within two milliseconds of a job's end, before it or after it.
// Whatever it was doing, the exit code is right. ENDS says how often; those that
// missed the two milliseconds do not count.
func TestDaemonIsKilled_AtAJobsEnd(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Jobd("start")
	seed := uint64(number(t, "SEED", 1))
	random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a seed is to decide
	ends := number(t, "ENDS", 20)
	var hits []time.Duration
	tries := 0
	for ; len(hits) < ends && tries < 10*ends; tries++ {
		// Half of the kills are the job's own, so many microseconds before its
		// end; the others come so many after it.
		before, pause := tries%2 == 0, random.IntN(int(near.Microseconds()))
		code := 1 + tries%100
		id, killed := killAtEnd(t, r, tries, before, pause, code)
		job := r.UntilState(30*time.Second, id, "failed")
		if job.Code() != code {
			t.Errorf("job %d is %s with exit code %d, not %d: %s", tries, job.State, job.Code(), code, job.StatusMessage)
		}
		if out := r.Jobd("logs", "--raw", id); out != fmt.Sprintf("out %d\n", tries) {
			t.Errorf("job %d printed %q", tries, out)
		}
		var exit struct {
			At struct {
				Wall time.Time `json:"wall"`
			} `json:"at"`
		}
		record, err := os.ReadFile(r.State + "/bundles/" + id + "/exit.json")
		if err == nil {
			err = json.Unmarshal(record, &exit)
		}
		if err != nil {
			t.Fatalf("reading the record of job %d: %v", tries, err)
		}
		if off := killed.Sub(exit.At.Wall); off.Abs() <= near {
			hits = append(hits, off)
		}
		if t.Failed() {
			return
		}
	}
	var histogram [8]int
	for _, off := range hits {
		histogram[min(int((off+near)/(near/4)), 7)]++
	}
	t.Logf("seed %d: the daemon was killed %d times within 2 ms of a job's end, %d times further from it; by half milliseconds from -2 to +2: %s",
		seed, len(hits), tries-len(hits), strings.Trim(fmt.Sprint(histogram), "[]"))
	if len(hits) < ends {
		t.Errorf("of %d kills only %d fell within 2 ms of the job's end", tries, len(hits))
	}
}

// killAtEnd runs a job that ends with this code, and kills the daemon before or
// after its end. It returns the job and when the daemon was killed.
func killAtEnd(t *testing.T, r *rig.Rig, n int, before bool, pause, code int) (id string, killed time.Time) {
	t.Helper()
	name := func(what string) string { return fmt.Sprintf("%s/%s%d", r.Project, what, n) }
	if err := syscall.Mkfifo(name("go"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Builtins of bash only: a process more would take longer than the time that
	// is to pass.
	id = asJob(r, fmt.Sprint("job", n), fmt.Sprintf(
		`read daemon pause < %s; echo out %d; if ((daemon)); then kill -9 $daemon; echo $EPOCHREALTIME > %s; fi; ((end = ${EPOCHREALTIME/./} + pause)); while ((${EPOCHREALTIME/./} < end)); do :; done; exit %d`,
		name("go"), n, name("killed"), code))
	var word *os.File
	rig.Until(t, 20*time.Second, "the job waits for a word", func() (ok bool) {
		var err error
		word, err = os.OpenFile(name("go"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	defer word.Close()
	daemon := r.Daemon()
	if before {
		fmt.Fprintln(word, daemon, pause)
		rig.Until(t, 20*time.Second, "the job has killed the daemon", func() bool {
			text, err := os.ReadFile(name("killed"))
			seconds, perr := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			killed = time.UnixMicro(int64(seconds * 1e6))
			return err == nil && perr == nil
		})
		return id, killed
	}
	job := r.UntilState(20*time.Second, id, "running")
	end, err := unix.PidfdOpen(job.PID, 0)
	if err != nil {
		t.Fatalf("waiting for process %d: %v", job.PID, err)
	}
	defer unix.Close(end)
	fmt.Fprintln(word, 0, 0)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}, 20_000)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
	for begun := time.Now(); time.Since(begun) < time.Duration(pause)*time.Microsecond; { // a timer is not as exact
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return id, time.Now()
}
