package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the pages of this program's own file out of the process.
// Starting touches nearly all of them, and resting needs few. They stay in the
// system's cache, to be mapped again when they are used, or for the system to
// give away. Nothing is lost by a failure.
func unmapProgram() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 00400000-00cbb000 r-xp 00000000 fe:00 12345 /usr/local/lib/jobd/jobd
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasSuffix(lines.Text(), exe) || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue // what is writable may differ from the file
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && start < end {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}
