package frontend

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"jobd/internal/ipc"
)

// A scriptedLine answers Heard as a test says.
type scriptedLine struct {
	mu     sync.Mutex
	within []time.Duration
	heard  chan bool // nil = as a transport that knows nothing
	waits  int
}

func (l *scriptedLine) Waits(http.Header) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits++
}

func (l *scriptedLine) Heard(ctx context.Context, within time.Duration) bool {
	l.mu.Lock()
	l.within = append(l.within, within)
	l.mu.Unlock()
	select {
	case ok := <-l.heard:
		return ok
	case <-ctx.Done():
		return false
	}
}

func TestAResultIsDeliveredOnceWhenTheClientWasHeard(t *testing.T) {
	for name, give := range map[string]func(p *peer, id string){
		"by tasks/get": func(p *peer, id string) { p.request("tasks/get", map[string]any{"taskId": id}) },
		"by get_job":   func(p *peer, id string) { p.call("get_job", map[string]any{"job_id": id}, nil).wait() },
	} {
		t.Run(name, func(t *testing.T) {
			var line *scriptedLine
			bubbleWith(t, withTasks, func(o *Options) { line = &scriptedLine{heard: make(chan bool)}; o.Line = line }, func(t *testing.T, d *fakeDaemon, p *peer) {
				id := d.add(ipc.Job{}).ID
				give(p, id)
				synctest.Wait()
				if len(line.within) != 0 {
					t.Fatal("a job that runs is being delivered")
				}
				d.finish(id, stateSucceeded, "ok\n", nil)
				give(p, id)
				give(p, id)
				synctest.Wait()
				if len(line.within) != 1 || line.within[0] != 2*time.Second {
					t.Fatalf("listened %v", line.within)
				}
				if len(seen(d, &d.delivered)) != 0 {
					t.Fatal("delivered before the client was heard")
				}
				line.heard <- false // it was gone
				synctest.Wait()
				give(p, id)
				synctest.Wait()
				line.heard <- true
				synctest.Wait()
				give(p, id)
				time.Sleep(time.Minute)
				if r := only(t, seen(d, &d.delivered)); r.ID != id || r.Session != "session-1" || r.Shell {
					t.Errorf("delivered %+v", r)
				}
			})
		})
	}
}

// Whether a job is this session's is the daemon's to say, and may change.
func TestAResultThatWasRefusedIsReportedWithItsNextReading(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{Session: "the one before"}).ID
		d.finish(id, stateSucceeded, "ok\n", nil)
		for n := range 4 {
			if n == 2 {
				d.change(func() { d.find(id).Session = "session-1" })
			}
			p.request("tasks/get", map[string]any{"taskId": id})
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if got, want := len(seen(d, &d.delivered)), min(n+1, 3); got != want {
				t.Errorf("after reading %d times it was reported %d times, want %d", n+1, got, want)
			}
		}
	})
}

func TestAWaitedCallDelivers(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		time.Sleep(5 * time.Second)
		d.finish(d.first(), stateSucceeded, "ok\n", nil)
		call.wait()
		time.Sleep(1900 * time.Millisecond)
		if len(seen(d, &d.delivered)) != 0 {
			t.Error("delivered at once")
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		only(t, seen(d, &d.delivered))
	})
}

func TestACancelledCallDeliversNothing(t *testing.T) {
	bubble(t, withForms, func(t *testing.T, d *fakeDaemon, p *peer) {
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		time.Sleep(5 * time.Second)
		call.cancel("timed out")
		synctest.Wait()
		d.finish(d.first(), stateSucceeded, "ok\n", nil)
		time.Sleep(time.Minute)
		if n := len(seen(d, &d.delivered)); n != 0 {
			t.Errorf("delivered %d", n)
		}
	})
}

func TestDeliveryWaitsForTheDaemon(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		d.finish(id, stateSucceeded, "ok\n", nil)
		p.request("tasks/get", map[string]any{"taskId": id})
		d.change(func() { d.down = errDown })
		time.Sleep(10 * time.Minute)
		d.change(func() { d.down = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		only(t, seen(d, &d.delivered))
	})
}

func TestWhatIsNotConfirmedIsDroppedAtTheEnd(t *testing.T) {
	var line *scriptedLine
	bubbleWith(t, withTasks, func(o *Options) { line = &scriptedLine{heard: make(chan bool)}; o.Line = line }, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		d.finish(id, stateSucceeded, "ok\n", nil)
		p.request("tasks/get", map[string]any{"taskId": id})
		synctest.Wait()
		start := time.Now()
		p.end()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the end took %v", took)
		}
		if len(d.delivered) != 0 {
			t.Error("delivered to a client that is gone")
		}
	})
}

func TestSubscribersGetEachChangeAndDeliver(t *testing.T) {
	bubble(t, withTasks, func(t *testing.T, d *fakeDaemon, p *peer) {
		id := d.add(ipc.Job{}).ID
		listen := p.send("subscriptions/listen", map[string]any{"notifications": map[string]any{"taskIds": []string{id}}})
		synctest.Wait()
		d.ask(id, confirm("q1"))
		synctest.Wait()
		time.Sleep(2 * time.Second)
		d.job(id, func(j *ipc.Job) { j.State, j.Questions = stateRunning, nil })
		time.Sleep(2 * time.Second)
		d.finish(id, stateSucceeded, "ok\n", nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		var states []any
		for _, n := range p.told("notifications/tasks") {
			states = append(states, n["status"])
		}
		if len(states) != 4 || states[0] != "working" || states[1] != "input_required" || states[2] != "working" || states[3] != "completed" {
			t.Errorf("told %v", states)
		}
		only(t, seen(d, &d.delivered))
		listen.cancel("")
	})
}

func TestOnlyLongWaitsAreDroppedAtTheEndOfInput(t *testing.T) {
	var line *scriptedLine
	bubbleWith(t, withForms, func(o *Options) { line = &scriptedLine{heard: make(chan bool)}; o.Line = line }, func(t *testing.T, d *fakeDaemon, p *peer) {
		p.call("list_jobs", nil, nil).wait()
		p.request("tools/list", nil)
		if line.waits != 0 {
			t.Error("a quick request is marked as waiting")
		}
		call := p.call("run_job", map[string]any{"command": "x"}, nil)
		synctest.Wait()
		if line.waits != 1 {
			t.Error("a waiting call is not marked")
		}
		call.wait()
	})
}
