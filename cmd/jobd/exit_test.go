package main

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"jobd/internal/ipc"
)

func TestWaitEndsWithTheJobsCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		job  ipc.Job
		want int
	}{
		{"succeeded", ipc.Job{State: "succeeded", ExitCode: ptr(0)}, 0},
		{"exit code", ipc.Job{State: "failed", ExitCode: ptr(42)}, 42},
		{"exit code 255", ipc.Job{State: "failed", ExitCode: ptr(255)}, 255},
		{"killed", ipc.Job{State: "failed", Signal: ptr("SIGKILL")}, 137},
		{"terminated", ipc.Job{State: "failed", Signal: ptr("SIGTERM")}, 143},
		{"signal without a name", ipc.Job{State: "failed", Signal: ptr("signal 34")}, 162},
		{"unknown signal", ipc.Job{State: "failed", Signal: ptr("SIGODD")}, 1},
		{"not found", ipc.Job{State: "failed", Reason: "could not be started: exec: \"nope\": executable file not found in $PATH"}, 127},
		{"no such file", ipc.Job{State: "failed", Reason: "could not be started: fork/exec ./nope: no such file or directory"}, 127},
		{"not executable", ipc.Job{State: "failed", Reason: "could not be started: fork/exec /etc/passwd: permission denied"}, 126},
		{"timed out", ipc.Job{State: "timed_out", Signal: ptr("SIGTERM")}, 124},
		{"unanswered", ipc.Job{State: "unanswered"}, 12},
		{"cancelled", ipc.Job{State: "cancelled", ExitCode: ptr(3)}, 130},
		{"errored", ipc.Job{State: "errored", ExitCode: ptr(0)}, 13},
		{"lost", ipc.Job{State: "lost"}, 14},
		{"live", ipc.Job{State: "running"}, 11},
		{"a state of a newer daemon", ipc.Job{State: "paused"}, 11},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := exitCodeOf(tt.job); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestErrorsArePrintedAsOneSafeLine(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"none", nil, 0, ""},
		{"plain", errors.New("it broke"), 1, "jobd: it broke\n"},
		{"of the daemon", &ipc.Error{Code: ipc.CodeNotFound, Message: "there is no job 12", Hint: "see jobd status"}, 1, "jobd: there is no job 12; see jobd status\n"},
		{"with a code", withCode(11, errors.New("still running")), 11, "jobd: still running\n"},
		{"silent", withCode(7, nil), 7, ""},
		{"wrapped", fmt.Errorf("waiting: %w", withCode(12, errors.New("late"))), 12, "jobd: waiting: late\n"},
		{"hostile", errors.New("job \x1b]0;x\x07 said\x1b[2J no"), 1, "jobd: job ^[]0;x^G said no\n"},
		{"several", errors.Join(errors.New("one"), errors.New("two")), 1, "jobd: one\ntwo\n"},
		{"reader gone", fmt.Errorf("write: %w", syscall.EPIPE), 141, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if code := report(&b, tt.err); code != tt.code || b.String() != tt.text {
				t.Errorf("got %d and %q, want %d and %q", code, b.String(), tt.code, tt.text)
			}
		})
	}
}

func TestUsageErrorsSayWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"stauts"}, `jobd: unknown command "stauts"; did you mean status or start?`},
		{[]string{"stauts", "--json"}, `jobd: unknown command "stauts"; did you mean status or start?`},
		{[]string{"frobnicate"}, `jobd: unknown command "frobnicate"; 'jobd help' lists all commands`},
		{[]string{"status", "--jsno"}, "jobd: unknown flag --jsno; did you mean --json?"},
		{[]string{"status", "--proj", "x"}, "jobd: unknown flag --proj; did you mean --project?"},
		{[]string{"status", "--zzzzzz"}, "jobd: unknown flag --zzzzzz; see 'jobd status --help'"},
		{[]string{"status", "-z"}, "jobd: unknown flag -z; see 'jobd status --help'"},
		{[]string{"status", "--limit", "many"}, `jobd: --limit cannot be "many": `},
		{[]string{"status", "--limit", "-1"}, "jobd: --limit cannot be -1; give a number of jobs, or 0 for all; see 'jobd status --help'"},
		{[]string{"status", "--state", "done"}, `jobd: --state cannot be "done"; the states are queued, starting, `},
		{[]string{"status", "--key"}, "jobd: --key needs a value: "},
		{[]string{"status", "xyz"}, `jobd: "xyz" is no job's id; `},
		{[]string{"status", idA, "--all"}, "jobd: one job was named, so there is nothing to select; "},
		{[]string{"run"}, "jobd: there is no command to run; write it after --, "},
		{[]string{"run", "--timeout", "5", "--", "true"}, `jobd: --timeout cannot be "5": give a number and a unit, such as 90s, 30m, 24h or 7d`},
		{[]string{"run", "--env", "X", "--", "true"}, `jobd: --env cannot be "X"; write NAME=VALUE`},
		{[]string{"run", "--question-timeout", "0", "--", "true"}, "jobd: --question-timeout cannot be 0: "},
		{[]string{"run", "--answer-by", "me", "--", "true"}, `jobd: --answer-by cannot be "me"; use person or anyone`},
		{[]string{"wait"}, "jobd: name a job by its id, "},
		{[]string{"wait", "aa", "bb"}, "jobd: one job at a time: 2 jobs were named"},
		{[]string{"cancel"}, "jobd: name jobs by their ids, "},
		{[]string{"logs", "aa", "--tail", "1", "--offset", "2"}, "jobd: --tail and --offset exclude each other"},
		{[]string{"logs", "aa", "--offset", "-2"}, "jobd: --offset cannot be -2"},
		{[]string{"result"}, "jobd: name a job by its id, "},
		{[]string{"result", "--text", "a", "--mcp", "b"}, "jobd: --text, --json, --file, --mcp and --protocol-error exclude each other"},
		{[]string{"result", "--code", "3", "aa"}, "jobd: --code goes with --protocol-error"},
		{[]string{"result", "--data", "3", "aa"}, "jobd: --data goes with --protocol-error"},
		{[]string{"answer", "aa", "yes"}, `jobd: "yes" is no answer; write FIELD=VALUE`},
		{[]string{"answer", "aa", "a=b", "--decline"}, "jobd: --decline, --stdin and FIELD=VALUE exclude each other"},
		{[]string{"ask"}, "jobd: there is no question; "},
		{[]string{"ask", "Go", "on?"}, "jobd: the question is one argument; put it in quotes"},
		{[]string{"ask", "Go?", "--timeout", "0"}, "jobd: --timeout cannot be 0: "},
		{[]string{"ask", "Go?", "--on-timeout", "die"}, `jobd: --on-timeout cannot be "die"; use fail, default or continue`},
		{[]string{"ask", "Go?", "--field", "x"}, `jobd: --field: "x" has no type; write it as NAME:TYPE, for example x:boolean`},
		{[]string{"ask", "Go?", "--raw", "-f", "a:string", "-f", "b:string"}, "jobd: --raw prints one value, and the question has 2 fields"},
		{[]string{"progress"}, "jobd: there is nothing to report; "},
		{[]string{"prune", "all"}, `jobd: "all" is not understood here`},
		{[]string{"completion"}, "jobd: name one shell: bash, zsh or fish"},
		{[]string{"completion", "tcsh"}, `jobd: there is no completion for "tcsh"; `},
	} {
		t.Run(fmt.Sprint(tt.args), func(t *testing.T) {
			got := invocation{}.call(t, tt.args...)
			if got.code != exitUsage || got.out != "" || !bytes.HasPrefix([]byte(got.err), []byte(tt.want)) {
				t.Errorf("got code %d, output %q, errors %q; want code 2 and errors that begin with %q", got.code, got.out, got.err, tt.want)
			}
		})
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	root := newRootCommand(&cli{})
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" {
			continue
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("jobd %s lacks a short text, a long text or an example", cmd.Name())
		}
	}
	got := invocation{}.call(t, "help", "exit-codes")
	if got.code != 0 || !bytes.Contains([]byte(got.out), []byte("124    the job used up its run time")) {
		t.Errorf("'jobd help exit-codes' gives code %d and %q", got.code, got.out)
	}
}
