package clock_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"jobd/internal/clock"
)

func TestBootTimeIsTheKernelsUptime(t *testing.T) {
	raw, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	up, err := strconv.ParseFloat(strings.Fields(string(raw))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	now, err := clock.New()
	if err != nil {
		t.Fatal(err)
	}
	if d := now().Boot.Seconds() - up; d < -0.1 || d > 5 {
		t.Errorf("the boot clock is %.2fs off the uptime", d)
	}
}
