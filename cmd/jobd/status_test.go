package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/ipc"
)

var update = flag.Bool("update", false, "write the golden files anew")

// statusJobs are jobs in every kind of state, with names and messages that do
// not behave.
func statusJobs() []ipc.Job {
	ago := func(d time.Duration) time.Time { return testNow.Add(-d) }
	return []ipc.Job{
		{ID: "3f2a9c1d0000000000000000000000aa", Name: "deploy", State: "waiting", Project: "/home/me/web", CreatedAt: ago(5 * time.Minute),
			StatusMessage: "waits for an answer: Deploy to production?", Questions: []ipc.Question{
				{ID: "x", Key: "q2", Mode: "form", Message: "Deploy to production?", LeftMS: 29 * 60000, OnTimeout: "fail"},
				{ID: "y", Key: "q3", Mode: "url", Message: "The password of the registry, which is needed to push the image that was built", LeftMS: 59000, OnTimeout: "continue",
					Fault: "it must be text of at least 8 characters"},
			}},
		{ID: "9b01c2d30000000000000000000000bb", Name: "tests", State: "running", Project: "/home/me/jobd", CreatedAt: ago(2 * time.Hour),
			StatusMessage: "420/1000 internal/sqlite: TestStore/survives_a_full_disk_and_goes_on_when_there_is_room_again"},
		{ID: "9b01c2d31000000000000000000000bb", Name: "日本語のとても長い名前のジョブ、端末で", State: "queued", Project: "/home/me/jobd", CreatedAt: ago(300 * time.Millisecond),
			StatusMessage: "queued, next in line"},
		{ID: "00aa00000000000000000000000000cc", Name: "evil\x1b]0;x\x07\x1b[2Jname\u202e", State: "failed", Final: true, Project: "/home/me/jobd", CreatedAt: ago(72 * time.Hour),
			StatusMessage: "exit code 2"},
		{ID: "00bb00000000000000000000000000cc", Name: "build", State: "succeeded", Final: true, Project: "/home/me/web", CreatedAt: ago(59 * time.Second), StatusMessage: "exit code 0"},
	}
}

func TestGoldenStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		screen screen
		jobs   []ipc.Job
	}{
		{"status-80", screen{terminal: true, width: 80}, statusJobs()},
		{"status-40", screen{terminal: true, width: 40}, statusJobs()},
		{"status-wide", screen{terminal: true, width: 200}, statusJobs()},
		{"status-pipe", screen{}, statusJobs()},
		{"status-colour", screen{terminal: true, width: 80, colour: true}, statusJobs()},
		{"status-one-project", screen{terminal: true, width: 80}, statusJobs()[1:3]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := writeStatus(&b, tt.screen, testNow, tt.jobs); err != nil {
				t.Fatal(err)
			}
			compareGolden(t, tt.name, b.String())
			checkScreen(t, tt.screen, b.String())
		})
	}
}

func TestGoldenDetails(t *testing.T) {
	started, ended := testNow.Add(-4*time.Minute), testNow.Add(-time.Minute)
	waiting := statusJobs()[0]
	waiting.Tool, waiting.Cwd, waiting.Session, waiting.PID = "deploy", "/home/me/web/ops", "b1c2", 4711
	waiting.Command = []string{"bash", "-c", "./deploy.sh 'it''s'\x1b[31m"}
	waiting.StartedAt, waiting.DurationMS, waiting.TimeoutMS = &started, 183_000, 45*60000
	waiting.Progress = &ipc.Progress{Done: 3, Total: 8, Text: "pushing"}
	ended1 := finished(idB, "failed")
	ended1.Reason, ended1.ExitCode, ended1.Command, ended1.Cwd, ended1.Project = "exit code 2", ptr(2), []string{"make", "-j4"}, "/src", "/src"
	ended1.StartedAt, ended1.EndedAt, ended1.DurationMS, ended1.OutputBytes, ended1.OutputDropped = &started, &ended, 180_000, 300<<20, 290<<20
	for _, tt := range []struct {
		name string
		job  ipc.Job
		tail string
	}{
		{"job-waiting", waiting, "step one\nstep \x1b[2Jtwo\n"},
		{"job-failed", ended1, "make: *** [all] Error 2\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			s := screen{terminal: true, width: 80}
			if err := writeJob(&b, s, testNow, tt.job, ipc.Output{Data: []byte(tt.tail)}); err != nil {
				t.Fatal(err)
			}
			checkScreen(t, s, b.String())
			compareGolden(t, tt.name, b.String())
		})
	}
}

// checkScreen sees that no line is wider than the screen, and nothing on it is
// a control but newlines and colours.
func checkScreen(t *testing.T, s screen, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		bare := sgr.ReplaceAllString(line, "")
		if strings.HasPrefix(bare, "    jobd answer") && !strings.Contains(bare, "(") {
			continue // a command to copy is never cut
		}
		if s.width > 0 && columns(bare) > s.width {
			t.Errorf("this line is %d columns wide on a screen of %d: %q", columns(bare), s.width, bare)
		}
		if strings.ContainsAny(bare, "\x1b\x07\u202e") {
			t.Errorf("this line holds a control character: %q", line)
		}
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", path, diff)
	}
}

func TestStatusAsksForWhatItShows(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want ipc.ListRequest
	}{
		{"alone", nil, ipc.ListRequest{Pending: true}},
		{"all", []string{"--all"}, ipc.ListRequest{}},
		{"a project", []string{"--project", "/"}, ipc.ListRequest{Pending: true, Project: "/"}},
		{"a search looks at every job", []string{"--state", "failed", "--state", "lost", "--text", "py", "--key", "k", "--limit", "3"},
			ipc.ListRequest{States: []string{"failed", "lost"}, Text: "py", Key: "k", Limit: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got ipc.ListRequest
			d := &fakeDaemon{list: func(r ipc.ListRequest) (ipc.ListReply, error) { got = r; return ipc.ListReply{}, nil }}
			if o := (invocation{daemon: d}).call(t, append([]string{"status"}, tt.args...)...); o.code != 0 {
				t.Fatalf("got %+v", o)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusWhereJobdWasNeverUsedStartsNothing(t *testing.T) {
	for args, want := range map[string]outcome{
		"status":            {0, "", "no job runs, waits or has an unread result; 'jobd status --all' shows the others, 'jobd run -- CMD' starts one\n"},
		"status --all":      {0, "", "no jobs; 'jobd run -- CMD' starts one\n"},
		"status --json":     {0, "[]\n", ""},
		"status 3f2a":       {1, "", "jobd: there are no jobs yet; 'jobd run -- CMD' starts one\n"},
		"wait 3f2a":         {125, "", "jobd: there are no jobs yet; 'jobd run -- CMD' starts one\n"},
		"logs 3f2a":         {1, "", "jobd: there are no jobs yet; 'jobd run -- CMD' starts one\n"},
		"prune":             {0, "", "0 jobs removed\n"},
		"prune --json":      {0, "{\n  \"ids\": [],\n  \"dry_run\": false\n}\n", ""},
		"status --text abc": {0, "", "no such job\n"},
	} {
		t.Run(args, func(t *testing.T) {
			got := invocation{unused: true}.call(t, strings.Fields(args)...)
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestStatusJSONIsTheJobsOfTheWire(t *testing.T) {
	jobs := []ipc.Job{finished(idA, "succeeded"), finished(idB, "failed")}
	got := invocation{daemon: ofJobs(nil, jobs...)}.call(t, "status", "--json")
	want := []ipc.Job{filled(jobs[0]), filled(jobs[1])}
	if diff := cmp.Diff(want, asJSON[[]ipc.Job](t, got.out)); diff != "" {
		t.Errorf("the jobs differ (-want +got):\n%s", diff)
	}
	for _, field := range []string{"id", "name", "tool", "state", "task_status", "status_message", "project", "session", "cwd", "exit_code", "signal",
		"created_at", "started_at", "ended_at", "delivered_at", "progress", "questions", "output_bytes"} {
		if strings.Count(got.out, `"`+field+`": `) < 2 {
			t.Errorf("the field %s is not there for every job", field)
		}
	}
	one := invocation{daemon: ofJobs(nil, jobs...)}.call(t, "status", "--json", idB[:8])
	if diff := cmp.Diff(want[1:], asJSON[[]ipc.Job](t, one.out)); diff != "" {
		t.Errorf("the one job differs (-want +got):\n%s", diff)
	}
}

func TestShortIDsAreUniqueAndNoShorterThanEight(t *testing.T) {
	ids := []string{"9b01c2d3000a", "9b01c2d3100b", "3f2a9c1d0000", "9b01c2d3000a", "ab"}
	want := map[string]string{"9b01c2d3000a": "9b01c2d3000a", "9b01c2d3100b": "9b01c2d31", "3f2a9c1d0000": "3f2a9c1d", "ab": "ab"}
	if diff := cmp.Diff(want, shortIDs(ids)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour,
		"0.5d": 12 * time.Hour, "2w": 14 * 24 * time.Hour} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "-1d", "d", "1e9d", "NaNd", "soon"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 59 * time.Second: "59s", 119 * time.Second: "1m", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := shortSpan(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{1234 * time.Millisecond: "1.23s", 42 * time.Second: "42s", 125 * time.Second: "2m 5s", 25 * time.Hour: "25h 0m", 50 * time.Hour: "2d 2h"} {
		if got := longSpan(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestCommandLinesCanBeTypedAgain(t *testing.T) {
	got := commandLine([]string{"make", "-j4", "CC=gcc", "a b", "", "it's", "$HOME"})
	if want := `make -j4 CC=gcc 'a b' '' 'it'\''s' '$HOME'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
