package main

import (
	"os/exec"
	"strconv"
	"strings"

	"path/filepath"

	"jobd/internal/config"
)

// leftBehind returns the processes of this user whose environment names the
// home of a play: its daemon, shims and jobs. ps shows it (-E) to the owner.
func leftBehind(dir string) []int {
	out, err := exec.Command("ps", "-x", "-E", "-ww", "-o", "pid=,command=").Output() //nolint:noctx // it ends by itself
	if err != nil {
		return nil
	}
	mark := " " + config.EnvHome + "=" + filepath.Join(dir, "home") + " "
	var found []int
	for line := range strings.SplitSeq(string(out), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.Contains(line+" ", mark) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
