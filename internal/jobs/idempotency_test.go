package jobs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/jobs"
)

// TestRepeatedCalls runs every row of the tables in docs/idempotency.md.
func TestRepeatedCalls(t *testing.T) {
	f, err := os.Open("../../docs/idempotency.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section, rows := "", 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "## "); ok {
			section = name
		}
		cells := strings.Split(strings.Trim(lines.Text(), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], " ---") || strings.HasPrefix(cells[0], " the job of") {
			continue
		}
		rows++
		before, call, gets := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		t.Run(before+"/"+call, func(t *testing.T) {
			inBubble(t, func(r *rig) { r.repeat(section, before, call, gets) })
		})
	}
	if err := lines.Err(); err != nil || rows < 40 {
		t.Fatalf("the page has %d rows, %v", rows, err)
	}
}

// repeat runs one row.
func (r *rig) repeat(section, before, call, gets string) {
	r.t.Helper()
	base := func(s *jobs.Submission) {
		s.Join, s.Request = true, "first request"
		if strings.Contains(section, "with an idempotency key") {
			s.Key = "k"
		}
	}
	first := r.bring(before, base)
	again, joined, err := r.try(base, func(s *jobs.Submission) {
		s.Request = "second request"
		for _, part := range strings.Split(strings.ReplaceAll(call, " and ", ", with "), ", ") {
			switch part {
			case "identical", "with the same key":
			case "the same request":
				s.Request = "first request"
			case "of another session":
				s.Spec.Session = "other"
			case "in another project":
				s.Spec.Project, s.Identity = "/other", []byte("same, but in /other")
			case "with other arguments":
				s.Spec.Argv, s.Identity = []string{"false"}, []byte("other")
			case "without the key":
				s.Key = ""
			case "with an idempotency key", "with another key":
				s.Key = "another"
			case "from a shell":
				s.Spec.Shell, s.Join = true, false
			case "of a tool with dedupe: off":
				s.Join = false
			default:
				r.t.Fatalf("the test does not know a call %q", part)
			}
		}
	})
	switch gets {
	case "the same job":
		if err != nil || again.ID != first.ID || joined == jobs.JoinedNot {
			r.t.Errorf("got job %s for %s, %q, %v", again.ID, first.ID, joined, err)
		}
	case "a new job":
		if err != nil || again.ID == first.ID || joined != jobs.JoinedNot {
			r.t.Errorf("got job %s for %s, %q, %v", again.ID, first.ID, joined, err)
		}
	case "an error that names the difference":
		if !errors.Is(err, jobs.ErrConflict) || !strings.Contains(err.Error(), `the command was "true" and is now "false"`) {
			r.t.Errorf("got %v", err)
		}
	default:
		r.t.Fatalf("the test does not know the outcome %q", gets)
	}
}

// bring makes a job and brings it where the table says.
func (r *rig) bring(to string, base func(*jobs.Submission)) jobs.Job {
	r.t.Helper()
	ctx := context.Background()
	state, fate, _ := strings.Cut(to, ", ")
	switch state {
	case "queued":
		r.max = 1
		r.restart()
		r.submit(func(s *jobs.Submission) { s.Identity = []byte("in the way") })
	case "starting":
		r.runner.hold = make(chan struct{})
	}
	j := r.submit(base)
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	cancel := func() {
		_, err := r.sup.Cancel(ctx, j.ID, jobs.Cancel{})
		must(err)
	}
	want := jobs.State(state)
	switch state {
	case "queued", "running":
	case "starting":
		hold := r.runner.hold
		r.atEnd = func() { close(hold) }
	case "waiting":
		_, gone := r.ask(j.ID, question("a"))
		r.atEnd = gone
	case "stopping at a client's wish":
		r.runner.disobey(j.ID)
		cancel()
		want = jobs.Stopping
	case "stopping for its timeout":
		r.runner.disobey(j.ID)
		r.pass(time.Hour)
		want = jobs.Stopping
	case "succeeded":
		r.runner.exit(j.ID, jobs.Exit{})
	case "failed":
		r.runner.exit(j.ID, jobs.Exit{Code: 1})
	case "timed_out":
		r.pass(time.Hour)
	case "errored":
		must(r.sup.SetResult(ctx, j.ID, jobs.ResultError, []byte(`{"code":1,"message":"m"}`)))
		r.runner.exit(j.ID, jobs.Exit{})
	case "lost":
		r.runner.kill(j.ID)
	case "cancelled":
		cancel()
	case "unanswered":
		r.ask(j.ID, question("a"))
		r.pass(time.Hour)
	default:
		r.t.Fatalf("the test does not know a job that is %q", state)
	}
	r.is(j.ID, want)
	switch fate {
	case "":
	case "delivered":
		must(r.sup.Deliver(ctx, j.ID, session("s")))
	case "read by another session":
		must(r.sup.Deliver(ctx, j.ID, session("other")))
		must(r.sup.Deliver(ctx, j.ID, jobs.Reader{Shell: true}))
	case "expired":
		_, err := r.sup.Prune(ctx, jobs.Prune{Undelivered: true})
		must(err)
	default:
		r.t.Fatalf("the test does not know the fate %q", fate)
	}
	return j
}

func TestConcurrentIdenticalCallsAreOneJob(t *testing.T) {
	for _, key := range []string{"", "k"} {
		t.Run("key "+key, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var mu sync.Mutex
				ids, created := map[string]int{}, 0
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						j, joined, err := r.sup.Submit(context.Background(), jobs.Submission{
							Spec:    jobs.Spec{Tool: "run_job", Name: "n", Argv: []string{"true"}, Dir: "/", Project: "/p", Session: fmt.Sprint("s", i%2)},
							Environ: func(string) []string { return nil }, Identity: []byte("same"), Request: fmt.Sprint("call ", i), Key: key, Join: true})
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Error(err)
						}
						ids[j.ID]++
						if joined == jobs.JoinedNot {
							created++
						}
					}()
				}
				wg.Wait()
				synctest.Wait()
				want := 2 // one for each session
				if key != "" {
					want = 1
				}
				if len(ids) != want || created != want {
					t.Errorf("%d jobs, %d created, want %d", len(ids), created, want)
				}
				if bundles, _ := r.runner.Bundles(context.Background()); len(bundles) != want {
					t.Errorf("%d bundles are left", len(bundles))
				}
			})
		})
	}
}
