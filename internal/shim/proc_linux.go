package shim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes reads /proc/*/stat (proc_pid_stat(5)). A process that ends
// meanwhile is left out.
func processes() ([]proc, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	table := make([]proc, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, err := readProc(pid); err == nil {
				table = append(table, p)
			}
		}
	}
	return table, nil
}

// readProc reads one process.
func readProc(pid int) (proc, error) {
	var buf [1024]byte
	b, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return proc{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads the content of a stat file.
func parseStat(pid int, b []byte) (proc, error) {
	// The command's name is in parentheses and may hold anything, these included.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return proc{}, fmt.Errorf("the stat of process %d has no name", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	// From field 3 on: state, ppid, pgrp, session, …; num_threads is field 20,
	// starttime field 22.
	if len(f) < 20 {
		return proc{}, fmt.Errorf("the stat of process %d is cut short", pid)
	}
	p := proc{pid: pid, start: f[19]}
	var err1, err2 error
	p.ppid, err1 = strconv.Atoi(f[1])
	p.sid, err2 = strconv.Atoi(f[3])
	// A process whose first thread has ended shows as a zombie while others run.
	p.dead = f[0] == "X" || f[0] == "Z" && f[17] <= "1"
	return p, errors.Join(err1, err2)
}

// readSmall reads a file of /proc into buf.
func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

// executable returns the path of what a process runs, "" if that cannot be
// read. A binary that was replaced on disk keeps its path.
func executable(pid int) string {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(exe, " (deleted)")
}

// environHas reports whether a process was started with this NAME=VALUE in its
// environment. Only the user's own can be read.
func environHas(pid int, mark string) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/environ", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	want := append(append([]byte{0}, mark...), 0)
	buf := make([]byte, 32<<10)
	have := 1 // buf[0] is a NUL before the first entry
	for {
		n, err := unix.Read(fd, buf[have:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return false
		}
		have += n
		if bytes.Contains(buf[:have], want) {
			return true
		}
		// Keep as much as may be the beginning of it.
		keep := min(have, len(want)-1)
		copy(buf, buf[have-keep:have])
		have = keep
	}
}

// signalProc signals exactly this process: the descriptor is opened first, and
// what is read afterwards describes the process behind it, or that is gone and
// the signal goes nowhere.
func signalProc(p proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := readProc(p.pid)
	if err != nil || now.start != p.start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// becomeReaper makes this process the parent of every orphan below it
// (PR_SET_CHILD_SUBREAPER(2const)). It returns whether that is so: then a
// process without children has no descendants either.
func becomeReaper() bool {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// selfDescriptors is a directory of this process's open descriptors.
const selfDescriptors = "/proc/self/fd"

// enlargePipe lets a pipe hold more, so that reader and writer wake each other
// less often. The kernel may refuse (pipe(7), pipe-user-pages-soft), and then
// it stays as it is.
func enlargePipe(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) }

// preferForOOM runs start with this process marked as one to be killed for
// memory before jobd and its shims; what start forks keeps the mark, this
// process loses it again (proc_pid_oom_score_adj(5): raising it and taking that
// back needs no privilege).
func preferForOOM(start func()) {
	const file = "/proc/self/oom_score_adj"
	var buf [16]byte
	was, err := readSmall(file, buf[:])
	if err != nil {
		start()
		return
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(was)))
	if err == nil && os.WriteFile(file, []byte(strconv.Itoa(min(score+100, 1000))), 0) == nil {
		defer func() { _ = os.WriteFile(file, []byte(strconv.Itoa(score)), 0) }()
	}
	start()
}

// A handle is a process that is not a number: it stays what it is after that
// process has ended and its id is used again.
type handle struct{ f *os.File }

// openHandle opens process pid by pidfd_open(2) (Linux 5.3), in the mode that
// lets Go's poller wait for it, so that waiting costs no thread.
func openHandle(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &handle{f: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// await returns nil once the process has ended, or an error after interrupt.
func (h *handle) await() error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
}

// interrupt makes await return.
func (h *handle) interrupt() { _ = h.f.Close() }

// signal sends a signal; a process that has ended is no error.
func (h *handle) signal(sig unix.Signal) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(serr, unix.ESRCH) {
		return nil
	}
	return serr
}

// close frees the handle.
func (h *handle) close() { _ = h.f.Close() }
