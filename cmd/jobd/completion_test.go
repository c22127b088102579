package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"jobd/internal/ipc"
)

func TestCompletionOffersJobsThatFit(t *testing.T) {
	running := ipc.Job{ID: "9b01c2d30000000000000000000000bb", Name: "tests", State: "running"}
	asks := ipc.Job{ID: "9b01c2d31000000000000000000000bb", Name: "dep\x1b[2Jloy", State: "waiting", Questions: []ipc.Question{{Key: "q1"}}}
	d := ofJobs(nil, running, asks, finished(idA, "succeeded"))
	for args, want := range map[string]string{
		"status ":                 "9b01c2d30 9b01c2d31 3f2a9c1d",
		"logs 9b":                 "9b01c2d30 9b01c2d31",
		"wait ":                   "9b01c2d30 9b01c2d31",
		"cancel ":                 "9b01c2d30 9b01c2d31",
		"cancel 9b01c2d30 ":       "9b01c2d31",
		"result ":                 "3f2a9c1d",
		"answer ":                 "9b01c2d31",
		"run --wait --answer-by ": "person anyone",
		"run --answer-by ":        "person anyone",
		"ask x --on-time":         "--on-timeout",
		"comp":                    "completion",
		"completion ":             "bash zsh fish",
	} {
		t.Run(args, func(t *testing.T) {
			words := strings.Split(args, " ")
			got := invocation{daemon: d}.call(t, append([]string{"__complete"}, words...)...)
			var offered []string
			for line := range strings.SplitSeq(strings.TrimSpace(got.out), "\n") {
				word, _, _ := strings.Cut(line, "\t")
				if !strings.HasPrefix(word, ":") {
					offered = append(offered, word)
				}
			}
			if s := strings.Join(offered, " "); s != want {
				t.Errorf("got %q, want %q", s, want)
			}
			if strings.Contains(got.out, "\x1b") {
				t.Errorf("%q holds a control character", got.out)
			}
		})
	}
}

func TestCompletionIsSilentWithoutADaemon(t *testing.T) {
	d := &fakeDaemon{list: func(ipc.ListRequest) (ipc.ListReply, error) { return ipc.ListReply{}, errors.New("no daemon") }}
	if got := (invocation{daemon: d}).call(t, "__complete", "status", ""); got.out != ":4\n" {
		t.Errorf("got %+v", got)
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_jobd", "zsh": "#compdef jobd", "fish": "complete -c jobd"} {
		if got := (invocation{}).call(t, "completion", shell); got.code != 0 || !strings.Contains(got.out, mark) {
			t.Errorf("the script for %s does not hold %q", shell, mark)
		}
	}
}

// The script for bash works in a bash that has nothing else: words are
// completed by the program, and "=" parts none.
func TestCompletionInBash(t *testing.T) {
	script := (invocation{}).call(t, "completion", "bash").out
	stub := `jobd() { printf '%s\n' "$*" >asked; printf '9b01c2d3\ttests, running\n:4\n'; }` + "\n"
	for line, want := range map[string]string{
		"logs 9b":              "__complete logs 9b\noffered 9b01c2d3\n",
		"logs ":                "__complete logs \noffered 9b01c2d3\n",
		"status --state = run": "__complete status --state=run\noffered \n",
		"status --state =":     "__complete status --state=\noffered 9b01c2d3\n",
	} {
		words := strings.Split(line, " ")
		words = append([]string{"jobd"}, words...)
		cmd := exec.Command("bash", "--norc", "-c", stub+script+`
			COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
			compopt() { :; }
			__start_jobd
			cat asked; printf 'offered %s\n' "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, words...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if string(out) != want {
			t.Errorf("jobd %s: bash did %q, want %q", line, out, want)
		}
	}
}
