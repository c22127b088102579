package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"jobd/internal/config"
)

// leftBehind returns the processes of this user whose environment names the
// home of a play: its daemon, shims and jobs.
func leftBehind(dir string) []int {
	mark := []byte(config.EnvHome + "=" + filepath.Join(dir, "home"))
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process of another user, and one that has ended, cannot be read.
		env, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil {
			continue
		}
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(kv, mark) {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}
