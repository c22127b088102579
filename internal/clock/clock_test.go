package clock_test

import (
	"testing"
	"time"

	"jobd/internal/clock"
)

func TestReadingsOfOneBootAdvanceTogether(t *testing.T) {
	now, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	a := now()
	deadline := time.Now().Add(20 * time.Millisecond)
	for time.Now().Before(deadline) {
		b := now()
		if b.Run < a.Run || b.Boot < a.Boot {
			t.Fatalf("went back: %+v, then %+v", a, b)
		}
	}
	b := now()
	for name, d := range map[string]time.Duration{"run": b.Run - a.Run, "boot": b.Boot - a.Boot} {
		if d < 20*time.Millisecond || d > 5*time.Second {
			t.Errorf("the %s clock went on by %v in about 20ms", name, d)
		}
	}
	if a.BootID != b.BootID || a.BootID == "" {
		t.Errorf("boot ids %q and %q of one boot", a.BootID, b.BootID)
	}
	if a.Boot < a.Run {
		t.Errorf("the clock with sleep (%v) is behind the one without (%v)", a.Boot, a.Run)
	}
	if d := time.Since(b.Wall); d < 0 || d > time.Minute {
		t.Errorf("the wall clock is off by %v", d)
	}
	if b.Wall.Location() != time.UTC {
		t.Errorf("the wall time is in %v, want UTC", b.Wall.Location())
	}
}

func TestAnotherClockTellsTheSameBoot(t *testing.T) {
	a, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	b, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	if a().BootID != b().BootID {
		t.Errorf("%q and %q", a().BootID, b().BootID)
	}
}

func BenchmarkClock(b *testing.B) {
	now, err := clock.New()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = now()
	}
}
