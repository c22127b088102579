package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
)

var update = flag.Bool("update", false, "write the golden files anew; only for a new version of a record")

var someInstant = instant{
	Wall:   time.Date(2026, 8, 22, 10, 20, 30, 123456789, time.UTC),
	Run:    90 * time.Minute,
	Boot:   48 * time.Hour,
	BootID: "0b9a2d1e-8c57-4f3a-9d25-6b1f0c7e4a11",
}

// golden are records with every field set, by the name of their file.
func golden() map[string]record {
	return map[string]record{
		"spec.json": &specRecord{Version: 1, Created: someInstant, Spec: jobs.Spec{
			Tool: "run_job", Name: "build", Argv: []string{"make", "-C", "a & b", "<all>", "ü"}, Dir: "/home/u/p", Project: "/home/u/p",
			Session: "s1", Shell: true, Interactive: true, Args: json.RawMessage(`{"command":"make"}`), EnvNames: []string{"TOKEN"},
			Digest: "d1", Umask: 0o22, NoFile: 1024, NoFileMax: 4096, OutputLimit: 1 << 20, Timeout: time.Hour, QuestionTimeout: time.Minute,
			OnTimeout: jobs.OnTimeoutFail, Grace: 10 * time.Second, AnswerWithin: time.Second, Unattended: jobs.UnattendedWait,
			AnswerBy: jobs.AnswerByAnyone, Group: "deploy", RerunInterrupted: true,
		}},
		"shim.lock":        &shimRecord{Version: 1, PID: 4711, Start: "123456", BootID: someInstant.BootID},
		"launch.json":      &launchRecord{Version: 1, At: someInstant},
		"started.json":     &startedRecord{Version: 1, PID: 4712, At: someInstant},
		"stop":             &stopRecord{Version: 1, Cause: jobs.CauseUnanswered, At: someInstant},
		"exit.json":        &exitRecord{Version: 1, Code: 7, StopFirst: true, At: someInstant, OutputTotal: 1000, OutputDropped: 10},
		"exit-signal.json": &exitRecord{Version: 1, Code: -1, Signal: 15, SignalName: "SIGTERM", At: someInstant},
		"exit-not.json":    &exitRecord{Version: 1, Code: -1, NotStarted: "command not found: x", At: someInstant},
	}
}

// blank returns an empty record of the same type.
func blank(r record) record {
	return reflect.New(reflect.TypeOf(r).Elem()).Interface().(record)
}

func TestRecordsAreFrozen(t *testing.T) {
	for name, want := range golden() {
		file := filepath.Join("testdata", "records", name)
		raw, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		frozen, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(frozen), string(raw)); diff != "" {
			t.Errorf("%s is written differently; older and newer processes must understand each other: %s", name, diff)
		}
		got := blank(want)
		if err := decode(frozen, got); err != nil {
			t.Errorf("%s cannot be read any more: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is read differently: %s", name, diff)
		}
	}
}

func TestTheEnvironmentFileIsFrozen(t *testing.T) {
	environ := []string{"HOME=/home/u", "EMPTY=", "BYTES=\x01\xff\n"}
	file := filepath.Join("testdata", "records", "env")
	if *update {
		if err := os.WriteFile(file, encodeEnviron(environ), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(frozen), string(encodeEnviron(environ))); diff != "" {
		t.Error(diff)
	}
	got, err := decodeEnviron(frozen)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(environ, got); diff != "" {
		t.Error(diff)
	}
	// Whatever is torn off or changed is seen.
	for n := range frozen {
		if _, err := decodeEnviron(frozen[:n]); err == nil {
			t.Errorf("cut after %d bytes it was taken for whole", n)
		}
		flipped := bytes.Clone(frozen)
		flipped[n] ^= 4
		if _, err := decodeEnviron(flipped); err == nil {
			t.Errorf("with byte %d changed it was taken for whole", n)
		}
	}
}

func TestAnUnusableRecordIsAnErrorThatNamesTheFile(t *testing.T) {
	b := bundle(t.TempDir())
	for name, r := range golden() {
		for what, raw := range map[string]string{
			"empty":       "",
			"cut":         `{"version":1,`,
			"no object":   `[1]`,
			"no version":  `{}`,
			"version 0":   `{"version":0}`,
			"newer":       `{"version":2,"at":"quite another shape","pid":"x"}`,
			"wrong type":  `{"version":1,"at":7,"pid":"x","code":"x","spec":1,"cause":1}`,
			"binary":      "\x00\xff\x00",
			"wrong value": `{"version":1,"pid":-1,"cause":"whim","code":999,"spec":{"argv":[]}}`,
		} {
			if what == "wrong value" && name == "launch.json" {
				continue // it has no value that could be wrong
			}
			if err := os.WriteFile(b.file(name), []byte(raw), 0o600); err != nil {
				t.Fatal(err)
			}
			err := b.readRecord(name, blank(r))
			if err == nil || !strings.Contains(err.Error(), b.file(name)) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if what == "newer" && !strings.Contains(err.Error(), "version 2") {
				t.Errorf("%s: a newer version gives %v", name, err)
			}
		}
		if err := os.Remove(b.file(name)); err != nil {
			t.Fatal(err)
		}
		if err := b.readRecord(name, blank(r)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, missing: %v", name, err)
		}
		if err := os.Symlink("/etc/passwd", b.file(name)); err != nil {
			t.Fatal(err)
		}
		if err := b.readRecord(name, blank(r)); err == nil || !strings.Contains(err.Error(), b.file(name)) {
			t.Errorf("%s, a link: %v", name, err)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	for _, r := range golden() {
		raw, err := encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"code":-1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, r := range golden() {
			got := blank(r)
			if decode(raw, got) != nil {
				continue
			}
			// Whatever is taken can be written, and reads the same again.
			again, err := encode(got)
			if err != nil {
				t.Fatalf("%T from %q cannot be written: %v", got, raw, err)
			}
			second := blank(r)
			if err := decode(again, second); err != nil {
				t.Fatalf("%T from %q is written as %q, which is refused: %v", got, raw, again, err)
			}
			third, err := encode(second)
			if err != nil || !bytes.Equal(again, third) {
				t.Fatalf("%T from %q is written as %q and then as %q, %v", got, raw, again, third, err)
			}
		}
	})
}

func FuzzReadEnviron(f *testing.F) {
	f.Add(encodeEnviron(nil))
	f.Add(encodeEnviron([]string{"A=1", "B=", "C=\xff\n="}))
	f.Add([]byte("jobd-env 1 4 00000000\nA=1\x00"))
	f.Add([]byte("jobd-env 1 -1 +0\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		environ, err := decodeEnviron(raw)
		if err == nil && !bytes.Equal(encodeEnviron(environ), raw) {
			t.Fatalf("%q was read as %q", raw, environ)
		}
	})
}
