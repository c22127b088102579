package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAMissingOrEmptyFileGivesTheDefaults(t *testing.T) {
	got, err := Load(filepath.Join(t.TempDir(), "config.yaml"))
	if err != nil || !cmp.Equal(got, Default()) {
		t.Errorf("missing file: %+v, %v", got, err)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "\n\n"} {
		got, err := Parse("config.yaml", []byte(text))
		if err != nil || !cmp.Equal(got, Default()) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestEverySettingIsTaken(t *testing.T) {
	got, err := Parse("config.yaml", []byte(`# all of them
timeout: 0
question_timeout: 90m
answer_within: 2s
max_running: 3
retention: 1d12h
output_limit: 1GiB
notify: ["notify-send", "--app-name=jobd", 'a b']
unattended: wait
run_job: off
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Limits{
		Timeout: 0, QuestionTimeout: 90 * time.Minute, AnswerWithin: 2 * time.Second, MaxRunning: 3,
		Retention: 36 * time.Hour, OutputLimit: 1 << 30, Notify: []string{"notify-send", "--app-name=jobd", "a b"},
		Unattended: "wait", RunJob: false,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if one, err := Parse("config.yaml", []byte("run_job: true")); err != nil || !one.RunJob {
		t.Errorf("a file of one setting: %+v, %v", one, err)
	}
}

func TestAFaultNamesPlaceAndFix(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"timeot: 1h", `config.yaml:1:1: unknown setting "timeot"; did you mean "timeout"?`},
		{"max-running: 4", `config.yaml:1:1: unknown setting "max-running"; did you mean "max_running"?`},
		{"\ncolour: red", `config.yaml:2:1: unknown setting "colour"; there are answer_within, max_running, notify`},
		{"timeout: 1h\ntimeout: 2h", "2:1: "},
		{"timeout: 30", `config.yaml:1:10: timeout: "30" lacks a unit; write a number with a unit, such as 90s`},
		{"timeout: -1h", `"-1h" is negative`},
		{"timeout: soon", `"soon" is no span of time`},
		{"timeout:", "timeout: the value is missing"},
		{"timeout: [1h]", "timeout: it must be a single value"},
		{"answer_within: 5m", `"5m" is more than 30s`},
		{"question_timeout: 0", `"0" is less than 1s`},
		{"max_running: 0", `"0" is no number from 1 to 10000`},
		{"max_running: many", `"many" is no number`},
		{"output_limit: 12", `"12" is less than 64KiB`},
		{"output_limit: 64 bananas", `is no size`},
		{"notify: notify-send", "notify: it must be a list of arguments"},
		{"notify: ['']", "the command is empty"},
		{"unattended: maybe", `"maybe" is neither "cancel" nor "wait"`},
		{"run_job: 2", `"2" is neither "on" nor "off"`},
		{"- a\n- b", "this is no list of settings"},
		{"just text", "this is no list of settings"},
		{"timeout: 1h\n---\ntimeout: 2h", "a second document"},
		{"timeout: \"1h", "config.yaml:1:"},
		{"a: b: c", "config.yaml:1:"},
	} {
		l, err := Parse("config.yaml", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q (%+v)", test.text, err, test.want, l)
		}
	}
}

func TestEveryFaultIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("timeot: 1h\nmax_running: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	if err == nil || strings.Count(err.Error(), path+":") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "1.5h": 90 * time.Minute, "30d": 720 * time.Hour, "0.5d": 12 * time.Hour, "2d3m": 48*time.Hour + 3*time.Minute,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "NaNd", "1d-1h", "999999999d", "1e3d5", "Infd", "+1h", "1x"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"65536": 65536, "64MiB": 64 << 20, "64M": 64 << 20, "64MB": 64e6, "1.5k": 1536, "2 GiB": 2 << 30,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.2.3", "99999999999TiB", "1 x"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzParse holds that no file makes the parser panic or gives limits out of
// range.
func FuzzParse(f *testing.F) {
	f.Add([]byte("timeout: 1h\nnotify: [a]\n"))
	f.Add([]byte("timeout: *a\n? b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("config.yaml", data)
		if err == nil && (l.MaxRunning < 1 || l.Timeout < 0 || l.QuestionTimeout <= 0 || l.Retention <= 0 || l.OutputLimit < 64<<10) {
			t.Errorf("%+v", l)
		}
	})
}
