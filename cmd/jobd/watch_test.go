package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"jobd/internal/ipc"
)

// deeds writes down what a watch does to the world.
type deeds struct {
	looks              []glance
	cancelled, answers []string
}

func (d *deeds) all() watchDeeds {
	return watchDeeds{
		look:   func(g glance) tea.Cmd { d.looks = append(d.looks, g); return nil },
		cancel: func(job ipc.Job) tea.Cmd { d.cancelled = append(d.cancelled, job.Name); return nil },
		answer: func(job ipc.Job) tea.Cmd { d.answers = append(d.answers, job.Name); return nil },
	}
}

// watchedJobs are those of the plain status, one with progress and output.
func watchedJobs() []ipc.Job {
	jobs := statusJobs()
	jobs[1].Progress = &ipc.Progress{Done: 420, Total: 1000, Text: "internal/sqlite"}
	return jobs
}

var watchedTails = map[string][]string{
	"9b01c2d30000000000000000000000bb": {"=== RUN   TestStore", "ok  jobd/internal/sqlite 3.2s"},
	"3f2a9c1d0000000000000000000000aa": {"building", "pushing to registry.example.com"},
}

// watching is a watch that has seen jobs, on a screen of a size.
func watching(d *deeds, s screen, height int, jobs []ipc.Job) watch {
	m := newWatch(s, testNow, d.all())
	m.height = height
	return apply(m, sight{glance: glance{jobs: true, tail: "?"}, at: testNow, list: jobs, tails: watchedTails})
}

func apply(m watch, messages ...tea.Msg) watch {
	for _, msg := range messages {
		next, _ := m.Update(msg)
		m = next.(watch)
	}
	return m
}

// press is the message of a key.
func press(key string) tea.KeyPressMsg {
	switch key {
	case "enter":
		return tea.KeyPressMsg{Code: tea.KeyEnter}
	case "esc":
		return tea.KeyPressMsg{Code: tea.KeyEscape}
	case "down":
		return tea.KeyPressMsg{Code: tea.KeyDown}
	case "up":
		return tea.KeyPressMsg{Code: tea.KeyUp}
	case "end":
		return tea.KeyPressMsg{Code: tea.KeyEnd}
	case "ctrl+c":
		return tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: rune(key[0]), Text: key}
}

func keyed(m watch, list ...string) watch {
	for _, key := range list {
		m = apply(m, press(key))
	}
	return m
}

func TestGoldenWatch(t *testing.T) {
	plain, small, coloured := screen{terminal: true, width: 80}, screen{terminal: true, width: 40}, screen{terminal: true, width: 80, colour: true}
	var many []ipc.Job
	for i := range 40 {
		many = append(many, ipc.Job{ID: fmt.Sprintf("%02x0000000000000000000000000000aa", i), Name: fmt.Sprintf("job %d", i), State: "running", StatusMessage: "working", CreatedAt: testNow})
	}
	d := &deeds{}
	for _, tt := range []struct {
		name   string
		screen screen
		height int
		watch  watch
	}{
		{"watch-80x24", plain, 24, watching(d, plain, 24, watchedJobs())},
		{"watch-40x12", small, 12, watching(d, small, 12, watchedJobs())},
		{"watch-colour", coloured, 24, watching(d, coloured, 24, watchedJobs())},
		{"watch-selected", plain, 24, keyed(watching(d, plain, 24, watchedJobs()), "down")},
		{"watch-output", plain, 24, keyed(watching(d, plain, 24, watchedJobs()), "j", "enter")},
		{"watch-cancel", plain, 24, keyed(watching(d, plain, 24, watchedJobs()), "c")},
		{"watch-many", plain, 24, keyed(watching(d, plain, 24, many), "end", "up")},
		{"watch-empty", plain, 24, watching(d, plain, 24, []ipc.Job{})},
		{"watch-away", plain, 24, apply(watching(d, plain, 24, watchedJobs()), sight{glance: glance{jobs: true}, at: testNow.Add(9 * time.Second), away: context.DeadlineExceeded})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Join(tt.watch.lines(), "\n") + "\n"
			if got := strings.Count(text, "\n"); got != tt.height {
				t.Errorf("it has %d lines, the screen %d", got, tt.height)
			}
			checkScreen(t, tt.screen, text)
			compareGolden(t, tt.name, text)
		})
	}
}

// Whatever the size of the terminal: nothing is wider or higher than it.
func TestWatchFitsEveryTerminal(t *testing.T) {
	for width := 1; width <= 120; width += 7 {
		for height := 1; height <= 40; height++ {
			s := screen{terminal: true, width: width}
			for _, m := range []watch{watching(&deeds{}, s, height, watchedJobs()), keyed(watching(&deeds{}, s, height, watchedJobs()), "enter")} {
				lines := m.lines()
				if len(lines) > height {
					t.Fatalf("%d lines on a terminal of %d", len(lines), height)
				}
				for _, line := range lines {
					if width >= 40 && columns(line) > width {
						t.Fatalf("%d columns on a terminal of %d: %q", columns(line), width, line)
					}
				}
			}
		}
	}
}

func TestWatchSelectionFollowsTheJob(t *testing.T) {
	jobs := watchedJobs()
	m := watching(&deeds{}, screen{terminal: true, width: 80}, 24, jobs[1:])
	if got := m.current().Name; got != "tests" {
		t.Errorf("at first %q is selected", got)
	}
	// A newer job comes in above it.
	m = apply(m, sight{glance: glance{jobs: true, tail: m.selected}, at: testNow, list: jobs})
	if got := m.current().Name; got != "tests" {
		t.Errorf("after a newer job came %q is selected", got)
	}
	// Its result was read elsewhere, so it is gone.
	m = apply(m, sight{glance: glance{jobs: true, tail: m.selected}, at: testNow, list: append(watchedJobs()[:1], watchedJobs()[2:]...)})
	if m.current() == nil || m.output {
		t.Error("nothing is selected")
	}
	m = apply(m, sight{glance: glance{jobs: true}, at: testNow, list: []ipc.Job{}})
	if m.current() != nil {
		t.Error("a job is selected where there is none")
	}
	keyed(m, "down", "up", "enter", "a", "c", "y", "end") // nothing to do, and no panic
}

func TestWatchCancelsOnlyAfterAYes(t *testing.T) {
	d := &deeds{}
	m := watching(d, screen{terminal: true, width: 80}, 24, watchedJobs())
	m = keyed(m, "c", "n", "c", "esc", "c", "q", "c", "c")
	if len(d.cancelled) != 0 {
		t.Fatalf("it cancelled %v", d.cancelled)
	}
	m = keyed(m, "c", "y", "y")
	if diff := cmp.Diff([]string{"deploy"}, d.cancelled); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m = apply(m, cancelled{job: watchedJobs()[0], err: errors.New("no such\x1b[2J job")})
	if got := m.note(); got != "deploy was not cancelled: no such job" {
		t.Errorf("it says %q", got)
	}
	// The fourth has ended.
	if m = keyed(m, "j", "j", "j", "c", "y"); len(d.cancelled) != 1 {
		t.Errorf("it cancelled %v", d.cancelled)
	}
	// The job that is asked about is gone before the answer.
	m = keyed(m, "g", "c")
	m = apply(m, sight{glance: glance{jobs: true}, at: testNow, list: watchedJobs()[1:]})
	if keyed(m, "y"); len(d.cancelled) != 1 {
		t.Errorf("it cancelled %v", d.cancelled)
	}
}

func TestWatchAnswersTheSelectedQuestion(t *testing.T) {
	d := &deeds{}
	m := keyed(watching(d, screen{terminal: true, width: 80}, 24, watchedJobs()), "a", "j", "a")
	if diff := cmp.Diff([]string{"deploy"}, d.answers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := m.note(); got != "tests asks nothing" {
		t.Errorf("it says %q", got)
	}
	m = apply(m, answered{job: watchedJobs()[0], code: 130})
	if got := m.note(); got != "deploy was not answered; the question stays open" {
		t.Errorf("it says %q", got)
	}
	m = apply(m, sight{at: testNow.Add(time.Minute)})
	if got := m.note(); got != "" {
		t.Errorf("a minute later it still says %q", got)
	}
}

func TestWatchQuits(t *testing.T) {
	for _, key := range []string{"q", "ctrl+c"} {
		_, cmd := watching(&deeds{}, screen{terminal: true, width: 80}, 24, watchedJobs()).Update(press(key))
		if cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s does not quit", key)
		}
	}
}

// However fast things happen, one look follows the other, and without a key
// there is a second between them.
func TestWatchLooksOneAtATime(t *testing.T) {
	d := &deeds{}
	m := newWatch(screen{terminal: true, width: 80}, testNow, d.all())
	m.Init()
	m = apply(m, tea.WindowSizeMsg{Width: 80, Height: 24}, tea.WindowSizeMsg{Width: 81, Height: 24})
	m = keyed(m, "j", "k", "j")
	if len(d.looks) != 1 {
		t.Fatalf("%d looks are under way", len(d.looks))
	}
	list := sight{glance: glance{jobs: true}, at: testNow, list: watchedJobs(), tails: watchedTails}
	m = apply(m, list) // the resize wanted one
	if len(d.looks) != 2 {
		t.Fatalf("there were %d looks", len(d.looks))
	}
	m = apply(m, sight{glance: d.looks[1], at: testNow, tails: watchedTails}) // and now the output of the selected
	if len(d.looks) != 3 || d.looks[2].tail != watchedJobs()[0].ID || d.looks[2].jobs {
		t.Fatalf("the looks were %+v", d.looks)
	}
	next, cmd := m.Update(sight{glance: d.looks[2], at: testNow, tails: watchedTails})
	if m = next.(watch); len(d.looks) != 3 || cmd == nil {
		t.Fatalf("there were %d looks, and the next is not arranged", len(d.looks))
	}
	m = apply(m, alarm{testNow, m.turn - 1})
	if len(d.looks) != 3 {
		t.Error("an old alarm counts")
	}
	m = apply(m, alarm{testNow, m.turn})
	if len(d.looks) != 4 || !d.looks[3].jobs {
		t.Errorf("after the pause it looked for %+v", d.looks[3:])
	}
	if diff := cmp.Diff([]string{watchedJobs()[1].ID}, d.looks[3].last); diff != "" {
		t.Errorf("the job that reports progress is not looked at (-want +got):\n%s", diff)
	}
	for took, want := range map[time.Duration]time.Duration{0: time.Second, 50 * time.Millisecond: time.Second, 2 * time.Second: 20 * time.Second} {
		if got := pause(took); got != want {
			t.Errorf("after a look of %v it pauses for %v, want %v", took, got, want)
		}
	}
}

func TestWatchOutlivesTheDaemon(t *testing.T) {
	m := watching(&deeds{}, screen{terminal: true, width: 120}, 24, watchedJobs())
	if got := m.left(m.jobs[0].Questions[0]); got != 29*time.Minute {
		t.Errorf("there are %v left", got)
	}
	for err, want := range map[error]string{
		context.DeadlineExceeded:                                    "jobd is away, trying again",
		&ipc.Error{Code: ipc.CodeUnavailable, Message: "no daemon"}: "jobd is away, trying again",
		errWatchStopped: "jobd was stopped, and no job is lost; jobd start starts it again",
		&ipc.Error{Code: ipc.CodeVersion, Message: "it\x07 is newer"}:    "jobd is away, trying again: it^G is newer",
		fmt.Errorf("connecting to the socket: %w; leave", syscall.EPERM): "jobd is away, trying again: connecting to the socket: operation not permitted; leave",
	} {
		away := apply(m, sight{glance: glance{jobs: true}, at: testNow.Add(time.Minute), away: err})
		if got := away.title(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		if len(away.jobs) != 5 || away.left(away.jobs[0].Questions[0]) != 28*time.Minute {
			t.Error("what was seen last is not shown, or time stands still")
		}
		back := apply(away, sight{glance: glance{jobs: true}, at: testNow.Add(time.Minute), list: watchedJobs()[1:]})
		if got := back.title(); got != "jobd  1 running, 1 queued, 2 ended" {
			t.Errorf("after that it says %q", got)
		}
	}
}

func TestBars(t *testing.T) {
	for want, p := range map[string]ipc.Progress{
		"[      ]   0%": {Done: 0, Total: 8},
		"[==>   ]  37%": {Done: 3, Total: 8},
		"[=====>]  99%": {Done: 999, Total: 1000},
		"[======] 100%": {Done: 9, Total: 8},
	} {
		if got := bar(p, 6); got != want {
			t.Errorf("%+v: got %q, want %q", p, got, want)
		}
	}
	inf := math.Inf(1)
	if got := bar(ipc.Progress{Done: inf, Total: inf}, 6); got != "[      ]   0%" {
		t.Errorf("infinite of infinite: got %q", got)
	}
}

func TestTailsAreSafeAndShowTheLastState(t *testing.T) {
	got := tailLines([]byte("10%\r20%\r30%\r\nred \x1b[31mred\x1b[0m \x1b]0;title\x07\n\n100%\r\n\n"))
	want := []string{"30%", "red red ^[]0;title^G", "", "100%"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := tailLines([]byte("\n\n")); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestWatchIsRefusedWhereItCannotBeShown(t *testing.T) {
	for args, want := range map[string]outcome{
		"status --watch":        {1, "", "jobd: --watch needs a terminal; elsewhere repeat jobd status --json, or let jobd wait ID wait for an end\n"},
		"status --watch --json": {2, "", "jobd: --watch is for a person, --json for a program; give one of them; see 'jobd status --help'\n"},
	} {
		if got := (invocation{}).call(t, strings.Fields(args)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
}

// An observer asks for no more than it is to see, and starts no daemon that was
// stopped on purpose.
func TestObserver(t *testing.T) {
	jobs := watchedJobs()
	d := ofJobs(map[string]string{jobs[0].ID: "a\nb\n", jobs[1].ID: "c\n"}, jobs...)
	stopped := false
	connects := 0
	o := &observer{c: &cli{
		getenv: func(string) string { return "" }, now: func() time.Time { return testNow },
		started: func() (bool, error) { return true, nil },
		stopped: func() bool { return stopped },
		connect: func(context.Context, bool) (ipc.Handler, error) { connects++; return d, nil },
	}}
	s := o.look(t.Context(), glance{jobs: true, tail: jobs[0].ID, lines: 5, last: []string{jobs[1].ID, "gone"}})
	if diff := cmp.Diff(map[string][]string{jobs[0].ID: {"a", "b"}, jobs[1].ID: {"c"}}, s.tails); diff != "" || len(s.list) != 5 || s.away != nil {
		t.Errorf("it saw %+v (-want +got):\n%s", s, diff)
	}
	o.only = jobs[1].ID
	if s = o.look(t.Context(), glance{jobs: true}); len(s.list) != 1 || s.list[0].Name != "tests" {
		t.Errorf("it saw %+v", s)
	}
	if o.only = "abcd"; len(o.look(t.Context(), glance{jobs: true}).list) != 0 {
		t.Error("it saw a job that is not there")
	}
	stopped = true
	if s = o.look(t.Context(), glance{jobs: true}); !errors.Is(s.away, errWatchStopped) || connects != 1 {
		t.Errorf("after a stop it saw %+v, and had %d connections", s, connects)
	}
}
