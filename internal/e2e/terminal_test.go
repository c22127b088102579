//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/e2e/rig"
)

// A shop is an installation with a job in every state that a person looks at:
// one that asks, one that reports progress, one that failed and one that is
// done. They move only when the test lets them.
type shop struct {
	rig *rig.Rig
	ids map[string]string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	r := rig.New(t)
	s := &shop{r, map[string]string{}}
	s.run("build", "echo compiled")
	r.UntilState(30*time.Second, s.ids["build"], "succeeded")
	s.run("lint", "echo 'main.go:3: unused variable'; exit 2")
	rig.Until(t, 30*time.Second, "lint has failed", func() bool { return r.Job(s.ids["lint"]).State == "failed" })
	s.run("tests", `echo "ok  store"; jobd progress 3/8 "package three of eight"; printf '\033]0;title\007\033[31mok  wire\033[0m\n'; until [ -e go ]; do sleep 0.1; done; echo all passed`)
	s.run("deploy", `echo pushing; jobd ask "Deploy to production?" --field go:boolean; echo deployed`)
	r.UntilState(30*time.Second, s.ids["deploy"], "waiting")
	rig.Until(t, 30*time.Second, "tests has reported", func() bool {
		return strings.Contains(r.Job(s.ids["tests"]).StatusMessage, "three of eight") && r.Job(s.ids["tests"]).OutputBytes > 30
	})
	return s
}

func (s *shop) run(name, command string) {
	s.ids[name] = strings.TrimSpace(s.rig.Jobd("run", "--name", name, "--", "bash", "-c", command))
}

// short is the id that a table shows.
func (s *shop) short(name string) string { return s.ids[name][:8] }

var (
	shortIDs = regexp.MustCompile(`\b[0-9a-f]{8}\b`)
	spans    = regexp.MustCompile(`\b\d{1,3}[smhd]\b *`)
)

// still replaces what differs from run to run by as many characters: ids by
// the order in which they appear, and spans of time.
func still(screen string) string {
	seen := map[string]string{}
	screen = shortIDs.ReplaceAllStringFunc(screen, func(id string) string {
		if seen[id] == "" {
			seen[id] = strings.Repeat(fmt.Sprint(len(seen)+1), 8)
		}
		return seen[id]
	})
	return spans.ReplaceAllStringFunc(screen, func(span string) string {
		return fmt.Sprintf("%-*s", len(span), "#"+strings.TrimSpace(span)[len(strings.TrimSpace(span))-1:])
	})
}

// shows compares the screen with a golden one, until they are the same.
func shows(t *testing.T, term *rig.Terminal, name string) {
	t.Helper()
	path := filepath.Join("testdata", "screens", name+".txt")
	if *update {
		time.Sleep(3 * time.Second)
		if err := os.WriteFile(path, []byte(still(term.Screen())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.TrimSuffix(string(read(t, path)), "\n")
	var got string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = still(term.Screen()); got == want {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the screen is not that of %s (-want +got); -update writes it anew:\n%s", path, diff)
	}
	for i, line := range strings.Split(got, "\n") {
		if n := len([]rune(line)); n > 80 || i >= 24 {
			t.Errorf("line %d has %d columns", i+1, n)
		}
	}
}

func TestTerminal_StatusFits80x24(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(80, 24, nil)
	term.Type("clear; jobd status")
	shows(t, term, "status")
	if !strings.Contains(term.Coloured(), "\x1b[1m\x1b[33mwaiting") {
		t.Errorf("on a terminal the job that waits is not coloured: %q", term.Coloured())
	}
	term.Type("clear")
	term.Gone("deploy")
	term.Type("clear; NO_COLOR=1 jobd status")
	shows(t, term, "status-no-color")
	if screen := term.Coloured(); strings.Contains(screen, "\x1b[") {
		t.Errorf("with NO_COLOR there are colours: %q", screen)
	}
	// What it says to do next can be done as it says.
	term.Type("clear; jobd answer " + s.short("deploy"))
	term.Until("go (y/n)")
	term.Type("y")
	s.rig.UntilState(30*time.Second, s.ids["deploy"], "succeeded")
	if out := s.rig.Try("status"); strings.Contains(out.Stdout, "\x1b") {
		t.Errorf("where no terminal is there are colours: %q", out.Stdout)
	}
}

func TestTerminal_WatchShowsJobsLive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(80, 24, nil)
	term.Type("clear; jobd status --watch; echo left with $?")
	term.Until("? 59m left")
	shows(t, term, "watch")

	// A job moves, and the screen with it.
	term.Key("j")
	term.Until("[=======>            ]  37%  3 of 8  package three of eight")
	shows(t, term, "watch-selected")
	term.Key("Enter")
	term.Gone("LAST LINE")
	shows(t, term, "watch-output")
	s.rig.Write("go", "", 0o600)
	term.Until("all passed")
	term.Key("Escape")
	term.Until("LAST LINE")
	term.Until("jobd  1 waiting for you, 3 ended")

	// The question is answered without leaving.
	term.Key("k")
	term.Until("> " + s.short("deploy"))
	term.Key("a")
	term.Until("go (y/n)")
	term.Key("C-c")
	term.Until("deploy was not answered; the question stays open")
	term.Key("a")
	term.Until("go (y/n)")
	term.Type("y")
	s.rig.UntilState(30*time.Second, s.ids["deploy"], "succeeded")
	term.Until("jobd  4 ended")

	// A job is ended, after a yes.
	s.run("sleeper", "echo asleep; sleep 300")
	term.Until("sleeper")
	term.Key("g")
	term.Until("> " + s.short("sleeper"))
	term.Key("c")
	term.Until("Cancel sleeper (" + s.short("sleeper") + ") and all its processes?")
	term.Key("n")
	term.Gone("Cancel sleeper")
	if job := s.rig.Job(s.ids["sleeper"]); job.State != "running" {
		t.Errorf("after a no the job is %s", job.State)
	}
	term.Key("c")
	term.Until("Cancel sleeper")
	term.Key("y")
	s.rig.UntilState(30*time.Second, s.ids["sleeper"], "cancelled")
	term.Until("jobd  5 ended")

	term.Resize(60, 16)
	rig.Until(t, 10*time.Second, "it fits the smaller terminal", func() bool {
		lines := strings.Split(term.Screen(), "\n")
		return len(lines) == 16 && strings.HasPrefix(lines[15], "j/k or arrows select")
	})
	term.Key("q")
	term.Until("left with 0")
	term.Type("stty -a | tr ';' '\\n' | grep -w -o -e ' echo' -e ' icanon'")
	term.Until(" icanon")
	if !strings.Contains(term.Screen(), " echo") || term.Shows("LAST LINE") {
		t.Errorf("the terminal is not as it was:\n%s", term.Screen())
	}
}

// The table is there whatever becomes of the daemon, and says so.
func TestTerminal_WatchOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(80, 24, []string{"NO_COLOR=1"}, "jobd", "status", "--watch")
	term.Until("? 59m left")
	if screen := term.Coloured(); strings.Contains(screen, "\x1b[") {
		t.Errorf("with NO_COLOR there are colours: %q", screen)
	}

	stuck := s.rig.Daemon()
	if err := syscall.Kill(stuck, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	term.Until("jobd is away, trying again")
	if !term.Shows("deploy") {
		t.Error("while jobd is away the jobs are not shown")
	}
	rig.Kill(t, stuck)
	term.Gone("jobd is away")
	term.Until("1 waiting for you")
	s.rig.Write("go", "", 0o600)
	term.Until("1 waiting for you, 3 ended")

	s.rig.Jobd("stop")
	term.Until("jobd was stopped")
	s.rig.Jobd("start")
	term.Until("1 waiting for you")
	term.Key("q")
	rig.Until(t, 10*time.Second, "q ends it", func() bool { return !rig.Alive(term.PID()) })
}

// Where nothing happens next to nothing is written, so that it can be left open
// over ssh.
func TestTerminal_WatchWritesOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.run("busy", `while :; do echo "line $((i++))"; done`)
	term := s.rig.Terminal(80, 24, []string{"SSH_TTY=/dev/pts/0"}, "jobd", "status", "--watch")
	term.Until("busy")
	const seconds = 5
	before := term.Written()
	time.Sleep(seconds * time.Second) // the time that is measured
	if n := (term.Written() - before) / seconds; n == 0 || n > 2000 {
		t.Errorf("it writes %d bytes a second", n)
	}
}

func TestTerminal_WatchOfADumbTerminalRepeatsTheStatus(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(80, 50, []string{"TERM=dumb"}, "jobd", "status", "--watch")
	term.Until("jobd answer " + s.short("deploy"))
	s.rig.Write("go", "", 0o600)
	term.Until("tests   exit code 0")
	if n := strings.Count(term.Screen(), "1 question waits"); n < 2 || n > 4 {
		t.Errorf("the status was shown %d times:\n%s", n, term.Screen())
	}
	if strings.Contains(term.Coloured(), "\x1b[") {
		t.Error("a dumb terminal is sent sequences")
	}
	term.Key("C-c")
	rig.Until(t, 10*time.Second, "Ctrl-C ends it", func() bool { return !rig.Alive(term.PID()) })
}

// One job can be watched by itself.
func TestTerminal_WatchOfOneJob(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(80, 24, nil, "jobd", "status", "--watch", s.short("tests"))
	term.Until("3 of 8  package three of eight")
	if term.Shows("deploy") {
		t.Errorf("another job is shown:\n%s", term.Screen())
	}
	s.rig.Write("go", "", 0o600)
	term.Until("all passed")
	term.Until("tests  succeeded")
	term.Key("C-c")
	rig.Until(t, 10*time.Second, "Ctrl-C ends it", func() bool { return !rig.Alive(term.PID()) })
}

// run --wait is like the command itself: its output, its code; and Ctrl-C asks.
func TestTerminal_RunWaitAsksAtCtrlC(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	term := r.Terminal(80, 24, nil)
	term.Type(`jobd run --wait -- sh -c 'echo one; sleep 0.3; echo two >&2; exit 7'; echo code $?`)
	term.Until("code 7")
	if !strings.Contains(term.Screen(), "\none\ntwo\ncode 7") {
		t.Errorf("it shows\n%s", term.Screen())
	}
	wait := `clear; jobd run --wait --name long -- sh -c 'i=0; while [ ! -e go ]; do echo tick $i; i=$((i+1)); sleep 0.2; done; echo over'; echo code $?`
	term.Type(wait)
	term.Until("tick 2")
	term.Key("C-c")
	term.Until("(l)eave it running, (c)ancel, (w)ait on?")
	term.Type("w")
	term.Until("tick 9")
	term.Key("C-c")
	term.Until("[l]")
	term.Type("l")
	term.Until("code 11")
	left := r.Jobs()[0]
	if left.State != "running" {
		t.Errorf("the job that was left is %s", left.State)
	}
	r.Write("go", "", 0o600)
	r.UntilState(30*time.Second, left.ID, "succeeded")

	if err := os.Remove(r.Project + "/go"); err != nil {
		t.Fatal(err)
	}
	// What is still on the screen must not be taken for what comes.
	term.Type("clear")
	term.Gone("code 11")
	term.Type(wait)
	term.Until("tick 1")
	term.Key("C-c")
	term.Until("[l]")
	term.Type("c")
	term.Until("code 130")
	r.UntilState(30*time.Second, r.Jobs()[0].ID, "cancelled")
}

// Tab completes commands, flags and the ids of jobs, in a bash with nothing
// but the script.
func TestTerminal_CompletionInBash(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	term := s.rig.Terminal(100, 24, nil)
	term.Type(`eval "$(jobd completion bash)"; clear`)
	term.Gone("eval")
	for typed, want := range map[string]string{
		"jobd compl":                             "jobd completion ",
		"jobd answer ":                           "jobd answer " + s.short("deploy"),
		"jobd logs " + s.short("tests")[:6]:      "jobd logs " + s.short("tests"),
		"jobd status --wa":                       "jobd status --watch ",
		"jobd status --state wai":                "jobd status --state waiting ",
		"jobd run --answer-by any":               "jobd run --answer-by anyone ",
		"jobd completion fi":                     "jobd completion fish ",
		"jobd result " + s.short("build")[:5]:    "jobd result " + s.short("build"),
		"jobd cancel " + s.short("deploy") + " ": "jobd cancel " + s.short("deploy") + " " + s.short("tests"),
	} {
		term.Key("-l", "--", typed)
		term.Key("Tab")
		rig.Until(t, 10*time.Second, fmt.Sprintf("%q becomes %q", typed, want), func() bool {
			return strings.Contains(term.Screen()+" ", "$ "+want)
		})
		term.Key("C-u")
		term.Type("clear")
		term.Gone(strings.TrimSpace(want))
	}
	// Where several fit they are listed, with what they are.
	term.Key("-l", "--", "jobd status ")
	term.Key("Tab")
	term.Key("Tab")
	term.Until("deploy, waiting")
	term.Until("build, succeeded")
}
