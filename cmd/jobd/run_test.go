package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/caller"
	"jobd/internal/ipc"
)

func TestRunSubmitsWhatItWasCalledWith(t *testing.T) {
	dir := caller.Real(t.TempDir())
	if err := os.MkdirAll(filepath.Join(dir, "repo", ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "repo", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOBD_TEST_MARK", "x=y")
	t.Setenv("CLAUDE_CODE_MESSAGING_TOKEN", "hunter2")
	var got ipc.SubmitRequest
	d := &fakeDaemon{submit: func(r ipc.SubmitRequest) (ipc.SubmitReply, error) {
		got = r
		return ipc.SubmitReply{Job: ipc.Job{ID: idA, State: "queued"}}, nil
	}}
	o := invocation{daemon: d}.call(t, "run", "--name", "n", "--timeout", "0", "--question-timeout", "2m", "--key", "k", "--group", "g", "--answer-by", "anyone",
		"--cwd", filepath.Join(dir, "repo", "sub"), "--env", "A=b=c", "-e", "D=", "--", "make", "-j4", "--json")
	if o != (outcome{0, idA + "\n", ""}) {
		t.Fatalf("got %+v", o)
	}
	environ := strings.Split(string(got.Environ), "\x00")
	for _, kv := range environ {
		if strings.Contains(kv, "hunter2") {
			t.Errorf("the environment holds %s", kv)
		}
	}
	for _, kv := range []string{"JOBD_TEST_MARK=x=y", "PWD=" + filepath.Join(dir, "repo", "sub")} {
		if !strings.Contains("\x00"+string(got.Environ), "\x00"+kv+"\x00") {
			t.Errorf("the environment lacks %s", kv)
		}
	}
	if got.NoFile == 0 || got.NoFileMax < got.NoFile {
		t.Errorf("the limits of open files are %d and %d", got.NoFile, got.NoFileMax)
	}
	mask := caller.Umask()
	want := ipc.SubmitRequest{Tool: "shell", Name: "n", Argv: []string{"make", "-j4", "--json"}, Dir: filepath.Join(dir, "repo", "sub"), Project: filepath.Join(dir, "repo"),
		Session: "shell", Env: map[string]string{"A": "b=c", "D": ""}, Umask: mask, TimeoutMS: ptr(int64(0)), QuestionTimeoutMS: ptr(int64(120000)),
		AnswerBy: "anyone", Group: "g", Key: "k", Shell: true, Interactive: true}
	got.Environ, got.NoFile, got.NoFileMax = nil, 0, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the request differs (-want +got):\n%s", diff)
	}
}

func TestRunTellsOfAKeyThatWasUsed(t *testing.T) {
	d := &fakeDaemon{submit: func(ipc.SubmitRequest) (ipc.SubmitReply, error) {
		return ipc.SubmitReply{Job: finished(idA, "succeeded"), Joined: "key"}, nil
	}}
	got := invocation{daemon: d}.call(t, "run", "--key", "k", "true")
	if got != (outcome{0, idA + "\n", `jobd: the key "k" belongs to job 3f2a9c1d (succeeded); nothing was started` + "\n"}) {
		t.Errorf("got %+v", got)
	}
}

func TestRunAndWaitEndAsTheJobDoes(t *testing.T) {
	failed := finished(idA, "failed")
	failed.ExitCode = ptr(3)
	timedOut := finished(idA, "timed_out")
	timedOut.Reason = "it ran for 1s, the time it was given"
	for _, tt := range []struct {
		job ipc.Job
		run outcome
	}{
		{finished(idA, "succeeded"), outcome{0, "hello\x1b[31m\n", ""}},
		{failed, outcome{3, "hello\x1b[31m\n", ""}},
		{timedOut, outcome{124, "hello\x1b[31m\n", "jobd: job 3f2a9c1d timed out: it ran for 1s, the time it was given\n"}},
	} {
		t.Run(tt.job.State, func(t *testing.T) {
			d := ofJobs(map[string]string{idA: "hello\x1b[31m\n"}, tt.job)
			running := tt.job
			running.Final, running.State = false, "running"
			d.submit = func(ipc.SubmitRequest) (ipc.SubmitReply, error) { return ipc.SubmitReply{Job: running}, nil }
			if got := (invocation{daemon: d}).call(t, "run", "--wait", "true"); got != tt.run {
				t.Errorf("run --wait: got %+v, want %+v", got, tt.run)
			}
			want := tt.run
			want.out = ""
			if got := (invocation{daemon: d}).call(t, "wait", "3f2a"); got != want {
				t.Errorf("wait: got %+v, want %+v", got, want)
			}
			got := invocation{daemon: d}.call(t, "run", "--wait", "--json", "true")
			if diff := cmp.Diff(filled(tt.job), asJSON[ipc.Job](t, got.out)); diff != "" || got.code != want.code {
				t.Errorf("run --wait --json ends with %d, and its job differs (-want +got):\n%s", got.code, diff)
			}
			if diff := cmp.Diff([]string{idA, idA, idA}, d.delivered); diff != "" {
				t.Errorf("reading the result of a job of a shell delivers it (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaitTellsOfQuestionsOnce(t *testing.T) {
	q := question(t, "q1", "Go \x1b[2Jon?", "go:boolean")
	states := []ipc.Job{
		{ID: idA, State: "running", Revision: 1},
		{ID: idA, State: "waiting", Revision: 2, Questions: []ipc.Question{q}},
		{ID: idA, State: "waiting", Revision: 3, Questions: []ipc.Question{q}},
		finished(idA, "succeeded"),
	}
	n := 0
	d := &fakeDaemon{get: func(r ipc.GetRequest) (ipc.Job, error) {
		if n > 0 && r.Revision != states[n-1].Revision {
			t.Errorf("the request waits for a revision after %d, not %d", r.Revision, states[n-1].Revision)
		}
		n++
		return states[n-1], nil
	}}
	got := invocation{daemon: d}.call(t, "wait", "3f2a")
	want := outcome{0, "", "jobd: the job asks: Go on?\n      1m left, then the job is ended; answer: jobd answer 3f2a9c1d\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWaitKeepsOwnFaultsApartFromTheJobs(t *testing.T) {
	d := &fakeDaemon{get: func(ipc.GetRequest) (ipc.Job, error) {
		return ipc.Job{}, &ipc.Error{Code: ipc.CodeNotFound, Message: "there is no job 12"}
	}}
	if got := (invocation{daemon: d}).call(t, "wait", "12"); got != (outcome{125, "", "jobd: there is no job 12\n"}) {
		t.Errorf("got %+v", got)
	}
}

func TestWaitOutlivesARestart(t *testing.T) {
	n := 0
	d := &fakeDaemon{get: func(ipc.GetRequest) (ipc.Job, error) {
		switch n++; n {
		case 1:
			return ipc.Job{ID: idA, State: "running", Revision: 1}, nil
		case 2, 3:
			return ipc.Job{}, &ipc.Error{Code: ipc.CodeUnavailable, Message: "jobd is stopping"}
		}
		return finished(idA, "succeeded"), nil
	}}
	if got := (invocation{daemon: d}).call(t, "wait", "3f2a"); got != (outcome{}) {
		t.Errorf("got %+v", got)
	}
}

func TestWaitIsBounded(t *testing.T) {
	d := &fakeDaemon{get: func(r ipc.GetRequest) (ipc.Job, error) {
		return ipc.Job{ID: idA, State: "running", Revision: r.Revision + 1}, nil
	}}
	got := invocation{daemon: d}.call(t, "wait", "--timeout", "20ms", "3f2a")
	if got != (outcome{11, "", "jobd: job 3f2a9c1d is still running after 20ms; it goes on\n"}) {
		t.Errorf("got %+v", got)
	}
}

func TestLogs(t *testing.T) {
	text := "one\ntwo\x1b[2J\nthree\n"
	d := ofJobs(map[string]string{idA: text}, finished(idA, "succeeded"))
	whole := d.output
	d.output = func(r ipc.OutputRequest) (ipc.Output, error) {
		if r.Lines > 0 {
			return ipc.Output{Offset: 12, Data: []byte("three\n"), Next: int64(len(text)), Total: int64(len(text)), End: true}, nil
		}
		return whole(r)
	}
	for args, want := range map[string]outcome{
		"logs 3f2a":            {0, text, ""},
		"logs -f 3f2a":         {0, text, ""},
		"logs --tail 1 3f2a":   {0, "three\n", ""},
		"logs --tail 0 3f2a":   {0, "", ""},
		"logs -fn 1 3f2a":      {0, "three\n", ""},
		"logs --offset 4 3f2a": {0, text[4:], ""},
	} {
		t.Run(args, func(t *testing.T) {
			if got := (invocation{daemon: d}).call(t, strings.Fields(args)...); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	if got := (invocation{daemon: d, terminal: true}).call(t, "logs", "3f2a"); got.out != "one\ntwo\nthree\n" {
		t.Errorf("a terminal gets %q", got.out)
	}
	if got := (invocation{daemon: d, terminal: true}).call(t, "logs", "--raw", "3f2a"); got.out != text {
		t.Errorf("a terminal with --raw gets %q", got.out)
	}
	if len(d.delivered) != 2 {
		t.Errorf("following to the end delivers, looking does not: delivered %d times, not twice", len(d.delivered))
	}
}

func TestLogsSayWhereBytesAreMissing(t *testing.T) {
	d := ofJobs(nil, finished(idA, "succeeded"))
	d.output = func(r ipc.OutputRequest) (ipc.Output, error) {
		if r.Offset == 0 {
			return ipc.Output{Data: []byte("head\n"), Next: 5, Total: 3000, Dropped: 2048}, nil
		}
		return ipc.Output{Offset: 2053, Gap: 2048, Data: []byte("tail\n"), Next: 3000, Total: 3000, Dropped: 2048, End: true}, nil
	}
	want := outcome{0, "head\ntail\n", "jobd: 2.0 KiB of output are missing here, from byte 5 to byte 2053; the job wrote more than is kept\n"}
	if got := (invocation{daemon: d}).call(t, "logs", "3f2a"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCancelGoesThroughAllJobs(t *testing.T) {
	d := &fakeDaemon{cancel: func(r ipc.CancelRequest) (ipc.Job, error) {
		switch {
		case r.Reason != "wrong branch":
			t.Errorf("the reason is %q", r.Reason)
		case r.ID == "12":
			return ipc.Job{}, &ipc.Error{Code: ipc.CodeNotFound, Message: "there is no job 12"}
		case r.ID == idB[:4]:
			return finished(idB, "failed"), nil
		}
		return ipc.Job{ID: idA, State: "stopping"}, nil
	}}
	got := invocation{daemon: d}.call(t, "cancel", "12", idB[:4], idA, "--reason", "wrong branch")
	want := outcome{1, "9b01c2d3  had ended already: failed\n3f2a9c1d  stopping\n", "jobd: there is no job 12\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPruneAsksForWhatItWasTold(t *testing.T) {
	for args, want := range map[string]ipc.PruneRequest{
		"prune":                              {},
		"prune --older-than 7d --dry-run":    {OlderThanMS: 7 * 24 * 3600 * 1000, DryRun: true},
		"prune --older-than 0 --undelivered": {OlderThanMS: 1, Undelivered: true},
	} {
		var got ipc.PruneRequest
		d := &fakeDaemon{prune: func(r ipc.PruneRequest) (ipc.PruneReply, error) {
			got = r
			return ipc.PruneReply{IDs: []string{idA}}, nil
		}}
		o := invocation{daemon: d}.call(t, strings.Fields(args)...)
		if got != want || o.code != 0 || o.out != idA+"\n" || !strings.HasPrefix(o.err, "1 job ") {
			t.Errorf("%s: asked for %+v and printed %+v, want %+v", args, got, o, want)
		}
	}
}

func TestProjectOfADirectory(t *testing.T) {
	root := caller.Real(t.TempDir())
	for _, dir := range []string{"repo/.git", "repo/a/b", "repo/inner/.jobd", "repo/inner/x", "alone"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "repo"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"repo": "repo", "repo/a/b": "repo", "repo/inner/x": "repo/inner", "alone": "alone", "link/a": "repo"} {
		if got := caller.Project("", filepath.Join(root, dir)); got != filepath.Join(root, want) {
			t.Errorf("the project of %s is %s, want %s", dir, got, want)
		}
	}
	if got := caller.Project(filepath.Join(root, "link"), "/"); got != filepath.Join(root, "repo") {
		t.Errorf("a project that Claude Code names is taken by its real path, not as %s", got)
	}
}
