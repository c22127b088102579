package notify

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFillKeepsValuesWithinTheirArguments(t *testing.T) {
	got := Fill([]string{"notify-send", "jobd: {name}", "{message}", "--x={state}", "{unknown}"},
		Notice{Name: "build; rm -rf ~", Message: "$(id) {job}\n--flag", State: "failed", Job: "abc"})
	want := []string{"notify-send", "jobd: build; rm -rf ~", "$(id) {job}\n--flag", "--x=failed", "{unknown}"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTheCommandIsRunWithoutAShell(t *testing.T) {
	dir := t.TempDir()
	touch, err := filepath.EvalSymlinks("/usr/bin/touch")
	if err != nil {
		t.Fatal(err)
	}
	n := New([]string{touch, filepath.Join(dir, "{message}")}, nil, slog.New(slog.DiscardHandler))
	defer n.Close()
	n.Tell(Notice{Message: "a b $(c)"})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "a b $(c)")); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the command did not run")
		}
	}
}

func TestCloseEndsACommandThatHangs(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "started")
	n := New([]string{"/bin/sh", "-c", `touch "$1"; sleep 1000`, "sh", mark}, os.Environ(), slog.New(slog.DiscardHandler))
	n.Tell(Notice{})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(mark); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the command did not run")
		}
	}
	done := make(chan struct{})
	go func() { n.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Close did not end the command")
	}
}

func TestNoCommandTellsNobody(t *testing.T) {
	n := New(nil, nil, slog.New(slog.DiscardHandler))
	n.Tell(Notice{})
	n.Close()
}
