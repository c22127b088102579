//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"jobd/internal/e2e/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.RemoveBin()
	os.Exit(code)
}

// decode reads a JSON value that must be right.
func decode(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("reading %s: %v", data, err)
	}
}
