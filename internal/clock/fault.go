//go:build fault

package clock

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"jobd/internal/jobs"
)

// Programs that were built with the tag "fault" have clocks that a test can
// disturb, by the file "clock" in JOBD_HOME. Each of its lines is one of
//
//	boot ID          this boot has that id: the machine was started anew
//	wall DURATION    the wall clock was stepped by so much
//	sleep DURATION   the machine slept so long, at some time in the past
//
// The steps are looked at anew at each reading, the id only when the process
// starts, for no process outlives its boot. The file is replaced, not written
// to, so that nobody reads half of it.
const faultFile = "clock"

type disturbance struct {
	boot        string
	wall, sleep time.Duration
}

func disturbed(now jobs.Clock) (jobs.Clock, error) {
	home := os.Getenv("JOBD_HOME")
	if home == "" {
		return now, nil
	}
	path := filepath.Join(home, faultFile)
	first, err := readDisturbance(path)
	if err != nil {
		return nil, err
	}
	return func() jobs.Instant {
		t := now()
		d, err := readDisturbance(path)
		if err != nil {
			panic(err) // a test that is wrong must not pass
		}
		t.Wall = t.Wall.Add(d.wall + d.sleep)
		t.Boot += d.sleep
		if first.boot != "" {
			t.BootID = first.boot
		}
		return t
	}, nil
}

func readDisturbance(path string) (d disturbance, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		what, value, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "boot":
			d.boot = value
		case "wall":
			d.wall, err = time.ParseDuration(value)
		case "sleep":
			d.sleep, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("%q is neither boot, wall nor sleep", lines.Text())
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", path, err)
		}
	}
	return d, lines.Err()
}
