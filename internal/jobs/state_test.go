package jobs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write golden files")

// TestNext holds every pair of state and event against the golden table that
// people read.
func TestNext(t *testing.T) {
	const file = "../../docs/states.md"
	got := statesPage()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s does not show the state table; run: go test ./internal/jobs -run TestNext -update", file)
	}
}

// statesPage draws the state machine as a page.
func statesPage() string {
	var b strings.Builder
	b.WriteString("# The states of a job\n\nWritten by `go test ./internal/jobs -run TestNext -update` from the table in `internal/jobs/state.go`.\n\n```mermaid\nstateDiagram-v2\n  [*] --> queued: submit\n")
	for _, s := range States() {
		for _, e := range Events() {
			if next, err := Next(s, e); err == nil {
				fmt.Fprintf(&b, "  %s --> %s: %s\n", s, next, e)
			}
		}
		if s.Final() {
			fmt.Fprintf(&b, "  %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n\n| event |")
	var livestates []State
	for _, s := range States() {
		if !s.Final() {
			livestates = append(livestates, s)
			fmt.Fprintf(&b, " %s |", s)
		}
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(livestates)) + "\n")
	for _, e := range Events() {
		fmt.Fprintf(&b, "| %s |", e)
		for _, s := range livestates {
			if next, err := Next(s, e); err == nil {
				fmt.Fprintf(&b, " %s |", next)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\nNo event happens to a final state: ")
	var f []string
	for _, s := range finals() {
		f = append(f, "`"+string(s)+"`")
	}
	b.WriteString(strings.Join(f, ", ") + ".\n")
	return b.String()
}

func TestFinalStatesNeverChange(t *testing.T) {
	for _, s := range finals() {
		for _, e := range Events() {
			next, err := Next(s, e)
			var te *TransitionError
			if !errors.As(err, &te) || next != s {
				t.Errorf("Next(%s, %s) = %s, %v; want a TransitionError", s, e, next, err)
			}
		}
	}
}

func TestEveryLiveStateReachesAnEnd(t *testing.T) {
	for _, s := range States() {
		seen := map[State]bool{s: true}
		for grown := true; grown; {
			grown = false
			for from := range seen {
				for _, next := range table[from] {
					if !seen[next] {
						seen[next], grown = true, true
					}
				}
			}
		}
		ends := false
		for to := range seen {
			ends = ends || to.Final()
		}
		if !ends {
			t.Errorf("a job that is %s can never end", s)
		}
	}
}

// FuzzApply feeds any sequence of events to a job and checks what must hold of
// it after each.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 2, 8})
	f.Add([]byte{0, 2, 4, 6, 7, 13})
	f.Fuzz(func(t *testing.T, events []byte) {
		now := Instant{Wall: time.Unix(1e9, 0), BootID: "b"}
		j := New("id", Spec{}, Keys{Join: "k"}, now)
		for i, b := range events {
			now.Run += time.Second
			now.Boot += time.Second
			e := Events()[int(b)%len(Events())]
			switch e {
			case EventAsked:
				if j.State() == Running || j.State() == Waiting {
					j.Questions = append(j.Questions, Question{ID: fmt.Sprint(i), State: QuestionOpen, Asked: now})
				}
			case EventStop:
				if j.Stop == nil {
					j.Stop = &Stop{Cause: CauseCancel, At: now}
				}
			case EventClosed:
				if len(j.Open()) < 2 {
					continue
				}
				j.set(j.Open()[0].ID, func(q *Question) { q.State = QuestionAnswered })
			}
			before, rev := j.State(), j.Revision()
			err := j.Apply(e, now, "")
			switch {
			case err != nil && (j.State() != before || j.Revision() != rev):
				t.Fatalf("a refused %s changed the job", e)
			case err == nil && j.Revision() != rev+1:
				t.Fatalf("%s moved the revision from %d to %d", e, rev, j.Revision())
			}
			if _, err := Restore(j, j.State(), j.Revision()); err != nil {
				t.Fatalf("after %s: %v", e, err)
			}
			if j.RunTime(now) > now.Run {
				t.Fatalf("the run time %s is longer than the life %s", j.RunTime(now), now.Run)
			}
		}
	})
}

func TestOutcome(t *testing.T) {
	cancel := &Stop{Cause: CauseCancel, Reason: "asked"}
	for _, c := range []struct {
		name   string
		stop   *Stop
		exit   Exit
		raised string
		want   Event
	}{
		{"exit 0", nil, Exit{}, "", EventSucceeded},
		{"exit 3", nil, Exit{Code: 3}, "", EventFailed},
		{"signal", nil, Exit{Code: -1, Signal: 9}, "", EventFailed},
		{"never started", nil, Exit{Code: -1, NotStarted: "command not found"}, "", EventNotStarted},
		{"ended before the signal", cancel, Exit{}, "", EventSucceeded},
		{"failed before the signal", cancel, Exit{Code: 1}, "", EventFailed},
		{"ended by the signal", cancel, Exit{Code: -1, Signal: 15, StopFirst: true}, "", EventCancelled},
		{"ended well after the signal", cancel, Exit{StopFirst: true}, "", EventCancelled},
		{"stopped before the launch", cancel, Exit{Code: -1, NotStarted: "stopped", StopFirst: true}, "", EventCancelled},
		{"timed out", &Stop{Cause: CauseTimeout}, Exit{Signal: 15, StopFirst: true}, "", EventTimedOut},
		{"unanswered", &Stop{Cause: CauseUnanswered}, Exit{Signal: 9, StopFirst: true}, "", EventUnanswered},
		{"raised an error", nil, Exit{Code: 1}, "no", EventErrored},
		{"raised an error and was cancelled", cancel, Exit{StopFirst: true}, "no", EventCancelled},
		{"the shim was signalled by a stranger", nil, Exit{Signal: 15, StopFirst: true}, "", EventFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, reason := outcome(c.stop, c.exit, c.raised); got != c.want {
				t.Errorf("got %s (%s), want %s", got, reason, c.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                          "plain",
		"  two \n\t lines ":              "two lines",
		"\x1b[31mred\x1b[0m":             "red",
		"\x1b]0;title\x07text":           "text",
		"\x1b]8;;http://x\x1b\\link":     "link",
		"a\u202eb\u200bc":                "abc",
		"bad\xffbyte":                    "bad\ufffdbyte",
		"\x1b":                           "",
		"bell\x07nul\x00":                "bell nul",
		strings.Repeat("ä", 300):         strings.Repeat("ä", 199) + "…",
		"\x1b[" + strings.Repeat("1", 9): "",
	} {
		if got := OneLine(in, 200); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPollInterval(t *testing.T) {
	created := Instant{BootID: "b", Wall: time.Unix(1e9, 0)}
	for age, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, 9 * time.Second: 500 * time.Millisecond,
		10 * time.Second: 2 * time.Second, 9 * time.Minute: 2 * time.Second, 10 * time.Minute: 5 * time.Second,
	} {
		now := created
		now.Boot += age
		now.Wall = now.Wall.Add(10 * 365 * 24 * time.Hour) // a step of the wall clock does not matter
		if got := PollInterval(created, now); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}
