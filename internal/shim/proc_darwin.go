package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// processes reads the process table by sysctl kern.proc.all.
func processes() ([]proc, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	table := make([]proc, 0, len(list))
	for i := range list {
		table = append(table, fromKinfo(&list[i]))
	}
	return table, nil
}

// statZombie is SZOMB of sys/proc.h.
const statZombie = 5

func fromKinfo(k *unix.KinfoProc) proc {
	pid := int(k.Proc.P_pid)
	p := proc{
		pid:   pid,
		ppid:  int(k.Eproc.Ppid),
		start: fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec),
		dead:  k.Proc.P_stat == statZombie,
	}
	// The session in kinfo_proc is a kernel address.
	if sid, err := unix.Getsid(pid); err == nil {
		p.sid = sid
	}
	return p
}

// readProc reads one process.
func readProc(pid int) (proc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return proc{}, err
	}
	if int(k.Proc.P_pid) != pid {
		return proc{}, unix.ESRCH
	}
	return fromKinfo(k), nil
}

// processArgs splits what sysctl kern.procargs2 tells of a process: the number
// of arguments, the path that was executed, NUL bytes to align, the arguments,
// the environment.
func processArgs(pid int) (exe string, environ []byte) {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return "", nil
	}
	argc := int(int32(binary.LittleEndian.Uint32(b)))
	path, rest, ok := bytes.Cut(b[4:], []byte{0})
	if !ok {
		return "", nil
	}
	rest = bytes.TrimLeft(rest, "\x00")
	for ; argc > 0; argc-- {
		if _, rest, ok = bytes.Cut(rest, []byte{0}); !ok {
			return string(path), nil
		}
	}
	return string(path), rest
}

// executable returns the path of what a process runs, "" if that cannot be
// read or is relative.
func executable(pid int) string {
	exe, _ := processArgs(pid)
	if !strings.HasPrefix(exe, "/") {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		return resolved
	}
	return exe
}

// environHas reports whether a process was started with this NAME=VALUE in its
// environment. Only the user's own can be read.
func environHas(pid int, mark string) bool {
	_, environ := processArgs(pid)
	for len(environ) > 0 && environ[0] != 0 {
		var kv []byte
		kv, environ, _ = bytes.Cut(environ, []byte{0})
		if string(kv) == mark {
			return true
		}
	}
	return false
}

// signalProc signals this process. Between look and signal it may end and its
// id be used again; macOS offers nothing that excludes it, and gives out ids in
// ascending order, so that takes tens of thousands of new processes.
func signalProc(p proc, sig unix.Signal) error {
	now, err := readProc(p.pid)
	if err != nil || now.start != p.start || now.dead {
		return unix.ESRCH
	}
	return unix.Kill(p.pid, sig)
}

// becomeReaper: macOS has no subreaper; orphans go to launchd.
func becomeReaper() bool { return false }

// selfDescriptors is a directory of this process's open descriptors.
const selfDescriptors = "/dev/fd"

// enlargePipe: macOS grows pipes by itself.
func enlargePipe(int) {}

// preferForOOM: macOS has no such mark.
func preferForOOM(start func()) { start() }

// A handle is a process that is being waited for by the kqueue.
type handle struct {
	pid   int
	start string
	gone  chan struct{} // closed at its end
	stop  chan struct{} // closed by interrupt or close
	once  sync.Once
}

// exits is the one kqueue of this process that waits for others to end, with
// the one thread that blocks in it.
var exits struct {
	once sync.Once
	err  error
	kq   int

	mu   sync.Mutex
	wait map[int][]*handle // by pid
}

func startExits() {
	exits.kq, exits.err = unix.Kqueue()
	if exits.err != nil {
		return
	}
	unix.CloseOnExec(exits.kq)
	exits.wait = map[int][]*handle{}
	go func() {
		events := make([]unix.Kevent_t, 16)
		for {
			n, err := unix.Kevent(exits.kq, nil, events, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			for _, e := range events[:max(n, 0)] {
				exits.mu.Lock()
				for _, h := range exits.wait[int(e.Ident)] {
					close(h.gone)
				}
				delete(exits.wait, int(e.Ident))
				exits.mu.Unlock()
			}
		}
	}()
}

// openHandle opens process pid by kqueue(2), EVFILT_PROC with NOTE_EXIT.
func openHandle(pid int) (*handle, error) {
	exits.once.Do(startExits)
	if exits.err != nil {
		return nil, fmt.Errorf("kqueue: %w", exits.err)
	}
	p, err := readProc(pid)
	if err != nil {
		return nil, err
	}
	h := &handle{pid: pid, start: p.start, gone: make(chan struct{}), stop: make(chan struct{})}
	exits.mu.Lock()
	defer exits.mu.Unlock()
	var change [1]unix.Kevent_t
	unix.SetKevent(&change[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	_, err = unix.Kevent(exits.kq, change[:], nil, nil)
	if errors.Is(err, unix.ESRCH) {
		close(h.gone) // it has ended since, and may be waiting to be reaped
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kevent: %w", err)
	}
	exits.wait[pid] = append(exits.wait[pid], h)
	return h, nil
}

// await returns nil once the process has ended, or an error after interrupt.
func (h *handle) await() error {
	select {
	case <-h.gone:
		return nil
	case <-h.stop:
		return errors.New("waiting was interrupted")
	}
}

// interrupt makes await return.
func (h *handle) interrupt() { h.once.Do(func() { close(h.stop) }) }

// signal sends a signal; a process that has ended is no error.
func (h *handle) signal(sig unix.Signal) error {
	err := signalProc(proc{pid: h.pid, start: h.start}, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// close frees the handle.
func (h *handle) close() {
	h.interrupt()
	exits.mu.Lock()
	defer exits.mu.Unlock()
	list := exits.wait[h.pid]
	for i := range list {
		if list[i] == h {
			exits.wait[h.pid] = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(exits.wait[h.pid]) == 0 {
		delete(exits.wait, h.pid)
	}
}
