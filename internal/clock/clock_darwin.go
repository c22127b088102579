package clock

import (
	"errors"

	"golang.org/x/sys/unix"
)

// clock_gettime(3) of macOS: CLOCK_UPTIME_RAW does not count time asleep,
// CLOCK_MONOTONIC does.
const (
	runClock  = unix.CLOCK_UPTIME_RAW
	bootClock = unix.CLOCK_MONOTONIC
)

func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", errors.New("sysctl kern.bootsessionuuid is empty")
	}
	return id, nil
}
