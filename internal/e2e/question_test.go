//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"jobd/internal/e2e/rig"
)

// An openQuestion is a question as "jobd status --json" prints it.
type openQuestion struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Mode    string `json:"mode"`
	Message string `json:"message"`
	URL     string `json:"url"`
	Fault   string `json:"fault"`
	Hidden  bool   `json:"hidden"`
	LeftMS  int64  `json:"left_ms"`
}

// asks are the open questions of a job.
func asks(t testing.TB, r *rig.Rig, id string) []openQuestion {
	t.Helper()
	var jobs []struct {
		Questions []openQuestion `json:"questions"`
	}
	decode(t, []byte(r.Jobd("status", id, "--json")), &jobs)
	return jobs[0].Questions
}

// answerSecret gives a job its secret as a pipe does.
func answerSecret(t testing.TB, r *rig.Rig, id, value string) {
	t.Helper()
	cmd := r.Command(t.Context(), "jobd", "answer", id, "--stdin")
	cmd.Stdin = strings.NewReader(value + "\n")
	if out := rig.Run(t, cmd); out.Code != 0 {
		t.Errorf("jobd answer --stdin ended with %d: %s", out.Code, out.Stderr)
	}
}
