//go:build fault

package clock_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"jobd/internal/clock"
)

func TestADisturbedClockStepsSleepsAndBoots(t *testing.T) {
	home := t.TempDir()
	t.Setenv("JOBD_HOME", home)
	now, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	plain := now()
	if err := os.WriteFile(filepath.Join(home, "clock"), []byte("boot other\nwall -2h\nsleep 1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := now()
	if d := got.Wall.Sub(plain.Wall); d < -time.Hour || d > -time.Hour+time.Minute {
		t.Errorf("the wall clock went by %v", d)
	}
	if d := got.Boot - plain.Boot; d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("the boot clock went by %v", d)
	}
	if d := got.Run - plain.Run; d > time.Minute {
		t.Errorf("the run clock went by %v", d)
	}
	if got.BootID != plain.BootID {
		t.Errorf("the boot of a process changed to %s", got.BootID)
	}
	next, err := clock.New()
	if err != nil || next().BootID != "other" {
		t.Errorf("the next boot is %s, %v", next().BootID, err)
	}
}
