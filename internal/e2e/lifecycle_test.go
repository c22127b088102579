//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/e2e/rig"
)

// mcp-stdio dies at any point of a submission: the job is there once or not at
// all, never without its own record, and the same call again makes it one.
func TestServerIsKilled_AtAnyPointOfASubmission(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Jobd("start")
	random := rand.New(rand.NewPCG(uint64(number(t, "SEED", 1)), 5)) //nolint:gosec // a seed is to decide
	kills := number(t, "SUBMITS", 40)
	before := 0
	for i := range kills {
		name := fmt.Sprint("job", i)
		call := map[string]any{"name": "run_job", "arguments": map[string]any{"command": "echo " + name + " >> runs", "name": name, "idempotency_key": name}}
		front := r.Front("session")
		front.Start("tools/call", call)
		time.Sleep(time.Duration(random.IntN(12_000)) * time.Microsecond) // where in the submission it dies is the test
		front.Kill()
		n := 0
		for _, job := range r.Jobs() {
			if job.Name == name {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("%s is there %d times", name, n)
		}
		if n == 1 {
			before++
		}
		again := r.Front("session")
		result := again.Result(again.Call("tools/call", call))
		again.Close()
		if result.IsError {
			t.Fatalf("the same call again was told %q", result.Text())
		}
	}
	t.Logf("of %d killed submissions %d had made a job", kills, before)
	if before == 0 || before == kills {
		t.Error("the kills were all at one side of the submission")
	}
	jobs := map[string]expectation{}
	for _, job := range r.Jobs() {
		if _, twice := jobs[job.Name]; twice {
			t.Errorf("%s is there twice", job.Name)
		}
		jobs[job.Name] = expectation{job.ID, 0}
	}
	if len(jobs) != kills {
		t.Errorf("there are %d jobs of %d", len(jobs), kills)
	}
	came(t, r, jobs)
}

// Front ends that come and go leave nothing but the one daemon.
func TestServer_EndsWithItsInputEachTime(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Jobd("start")
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		cmd := r.Command(ctx, "mcp-stdio")
		if i%2 == 0 {
			cmd.Stdin = strings.NewReader(callOnly("list_jobs") + "\n")
		} // else /dev/null
		begun := time.Now()
		out := rig.Run(t, cmd)
		cancel()
		if out.Code != 0 || time.Since(begun) > 5*time.Second || i%2 == 0 && !strings.Contains(out.Stdout, `"id":1`) {
			t.Fatalf("after %v it ended with %d: %s%s", time.Since(begun), out.Code, out.Stdout, out.Stderr)
		}
	}
	if left := append(r.Processes("mcp-stdio"), r.Processes("jobd-shim")...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if daemons := r.Processes("jobd"); len(daemons) != 1 {
		t.Errorf("daemons: %v", daemons)
	}
}

// The terminal of the client hangs up. Its whole process group ends, the job and
// the daemon that the client started do not.
func TestClientHangsUp_TheJobRunsOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	cmd := exec.Command(r.Bin + "/mcp-stdio")
	cmd.Dir, cmd.Env = r.Project, r.Env("CLAUDE_PROJECT_DIR="+r.Project, "CLAUDE_CODE_SESSION_ID=s", "CLAUDE_CODE_ENTRYPOINT=cli")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as a terminal's session
	front := rig.StartFront(t, cmd)
	id := front.Run(map[string]any{"command": "while [ ! -e go ]; do sleep 0.05; done; exit 7"})
	job := r.UntilState(10*time.Second, id, "running")
	client := front.PID()
	for what, pid := range map[string]int{"job": job.PID, "daemon": r.Daemon()} {
		if session, err := unix.Getsid(pid); err != nil || session == client {
			t.Errorf("the %s is in the client's session (%v)", what, err)
		}
	}
	if err := syscall.Kill(-client, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, 5*time.Second, "the front end has ended", func() bool { return !front.Running() })
	r.Write("go", "", 0o600)
	if job := r.UntilState(20*time.Second, id, "failed"); job.Code() != 7 {
		t.Errorf("the job is %+v", job)
	}
}

// The daemon dies under a front end: the next call starts another, and is
// answered soon.
func TestDaemonIsKilled_TheNextCallIsAnsweredSoon(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	for range 5 {
		if result := front.Tool("run_job", map[string]any{"command": "true"}); result.IsError {
			t.Fatalf("the model was told %q", result.Text())
		}
		r.KillDaemon()
		begun := time.Now()
		if result := front.Tool("list_jobs", map[string]any{}); result.IsError {
			t.Errorf("the model was told %q", result.Text())
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the call took %v", took)
		}
	}
}

// Eight jobs end at once, and the client comes for them later, after the daemon
// was exchanged: each result is there, and is delivered once.
func TestJobsEndTogether_EachIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	front := r.Front("session")
	var ids []string
	for i := range 8 {
		ids = append(ids, front.Run(map[string]any{"name": fmt.Sprint(i), "command": fmt.Sprintf("while [ ! -e go ]; do sleep 0.02; done; echo result %d; exit %d", i, i)}))
	}
	front.Close()
	r.Write("go", "", 0o600)
	unread := func() int {
		n := 0
		for _, job := range r.Jobs() {
			if job.Final() && job.DeliveredAt == nil {
				n++
			}
		}
		return n
	}
	rig.Until(t, 20*time.Second, "all have ended, and none was delivered", func() bool { return unread() == len(ids) })
	r.KillDaemon()
	r.Jobd("start")
	if n := unread(); n != len(ids) {
		t.Errorf("%d are unread after a restart", n)
	}

	// Two front ends of one session, as after a reconnect that left the old one
	// alive, see one store.
	one, two := r.Front("session"), r.Front("session")
	for i, id := range ids {
		reader := one
		if i%2 == 0 {
			reader = two
		}
		task := reader.Task(id)
		if task.Status != "completed" || task.Result == nil || !strings.Contains(task.Result.Text(), fmt.Sprint("result ", i)) {
			t.Errorf("job %d is %+v", i, task)
		}
	}
	rig.Until(t, 20*time.Second, "all are delivered", func() bool { return unread() == 0 })
	delivered := map[string]time.Time{}
	for _, job := range r.Jobs() {
		delivered[job.ID] = *job.DeliveredAt
	}
	// To read it again is possible at any time, and no second delivery.
	for i, id := range ids {
		if task := one.Task(id); task.Result == nil || !strings.Contains(task.Result.Text(), fmt.Sprint("result ", i)) {
			t.Errorf("read again, job %d is %+v", i, task)
		}
		if out := r.Try("result", id); !strings.Contains(out.Stdout, fmt.Sprint("result ", i)) {
			t.Errorf("in a shell the result of job %d is %q", i, out.Stdout)
		}
	}
	one.Close()
	two.Close()
	for _, job := range r.Jobs() {
		if !job.DeliveredAt.Equal(delivered[job.ID]) {
			t.Errorf("job %s was delivered at %v and at %v", job.Name, delivered[job.ID], job.DeliveredAt)
		}
	}
}

// What waits for input, or for a terminal, is told at once that there is none.
func TestJob_HasNoInputAndNoTerminal(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for command, want := range map[string]struct {
		code int
		out  string
	}{
		"cat":                      {0, ""},
		"read x; echo code $?":     {0, "code 1\n"},
		"test -t 0; echo $?":       {0, "1\n"},
		"test -t 1; echo $?":       {0, "1\n"},
		"echo x > /dev/tty":        {1, ""},
		"tput cols </dev/tty":      {1, ""},
		"python3 -c 'input()'":     {1, ""},
		"stty size; exit $?":       {1, ""},
		"readlink /proc/self/fd/0": {0, "/dev/null\n"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out := rig.Run(t, r.Command(ctx, "jobd", "run", "--wait", "--", "bash", "-c", command))
		cancel()
		if want.code == 0 && out.Code != 0 || want.code != 0 && out.Code == 0 || want.out != "" && out.Stdout != want.out {
			t.Errorf("%q ended with %d: %s%s", command, out.Code, out.Stdout, out.Stderr)
		}
	}
}

// A job that ignores TERM is not called cancelled before it is gone, with all
// that it started, also what left its session.
func TestCancel_IsOverWhenTheLastProcessIsGone(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for name, command := range map[string]string{
		"children":      "sleep 311 & bash -c 'sleep 312 & sleep 313' & wait",
		"left session":  "setsid -f sleep 321; setsid bash -c 'setsid sleep 322 & sleep 323' & sleep 324",
		"ignores TERM":  "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & while :; do sleep 1; done",
		"double forked": "(setsid sleep 331 & ) ; (nohup sleep 332 > /dev/null 2>&1 &) ; sleep 333",
	} {
		id := asJob(r, name, "touch '"+name+"'; "+command)
		r.UntilState(10*time.Second, id, "running")
		rig.Until(t, 10*time.Second, "it has begun", func() bool { _, err := os.Stat(r.Project + "/" + name); return err == nil })
		if name == "left session" {
			r.KillDaemon() // a later daemon knows what to end as well
		}
		r.Jobd("cancel", id)
		seen := ""
		rig.Until(t, 40*time.Second, name+" is cancelled", func() bool {
			seen = r.Job(id).State
			if seen != "cancelled" && seen != "stopping" {
				t.Fatalf("%s is %s", name, seen)
			}
			return seen == "cancelled"
		})
		if left := append(r.Processes("sleep"), r.Processes("bash")...); len(left) != 0 {
			t.Errorf("%s is cancelled, and left %v", name, left)
		}
	}
}
