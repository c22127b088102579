package clock

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// clock_gettime(2): CLOCK_MONOTONIC does not count time that the system is
// suspended, CLOCK_BOOTTIME does.
const (
	runClock  = unix.CLOCK_MONOTONIC
	bootClock = unix.CLOCK_BOOTTIME
)

// bootIDFile holds a random UUID that the kernel makes at each boot (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

func bootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", fmt.Errorf("%s is empty", bootIDFile)
	}
	return id, nil
}
