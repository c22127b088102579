package shim

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// markName is the variable by which processes of a job are known that have
// left its session and its tree. Whoever composes a job's environment sets it
// to the job's id.
const markName = "JOBD_JOB_ID"

// leftoverGrace is the time between TERM and KILL for processes that a command
// left behind.
const leftoverGrace = 2 * time.Second

// A proc is one line of the process table.
type proc struct {
	pid, ppid, sid int
	start          string // with pid, names one process of this boot
	dead           bool   // ended, and not reaped yet
}

// A hunt says which processes belong to a job. Those that fit any of root,
// session and mark are found, and all below them.
type hunt struct {
	self    int    // the process that hunts; never found itself
	root    int    // all below this process; 0 = none
	session int    // all of this session; 0 = none
	mark    string // all with this NAME=VALUE in their environment; "" = none
	// dir is the directory of jobd's binaries. A session leader that runs jobd or
	// jobd-shim from there is spared, with all below it: a daemon that a shim
	// started is its descendant and serves other jobs. Running jobd is not enough,
	// or a job could hide by it.
	dir string
}

// find returns the processes of the job that are alive.
func (h hunt) find() ([]proc, error) {
	table, err := processes()
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	return h.pick(table, h.spares, environHas), nil
}

// pick is find on a given table.
func (h hunt) pick(table []proc, spares func(proc) bool, marked func(pid int, mark string) bool) []proc {
	below := map[int][]int{} // indices by parent
	for i, p := range table {
		below[p.ppid] = append(below[p.ppid], i)
	}
	hit := make([]bool, len(table))
	var set func(i int, to bool)
	set = func(i int, to bool) {
		if hit[i] == to || table[i].pid == h.self {
			return
		}
		hit[i] = to
		for _, c := range below[table[i].pid] {
			set(c, to)
		}
	}
	if h.root != 0 {
		for _, i := range below[h.root] {
			set(i, true)
		}
	}
	for i, p := range table {
		if !hit[i] && !p.dead && p.pid != h.self &&
			(h.session != 0 && p.sid == h.session || h.mark != "" && marked(p.pid, h.mark)) {
			set(i, true)
		}
	}
	// Only what is hit itself can spare what is below it. Elsewhere it must not:
	// what a killed shim leaves behind becomes the child of another shim, where
	// the daemon hangs under one.
	for i, p := range table {
		if hit[i] && p.pid == p.sid && !p.dead && spares(p) {
			set(i, false)
		}
	}
	var list []proc
	for i, p := range table {
		if hit[i] && !p.dead {
			list = append(list, p)
		}
	}
	return list
}

// spares reports whether a session leader is a daemon or a shim.
func (h hunt) spares(p proc) bool {
	if h.dir == "" {
		return false
	}
	exe := executable(p.pid)
	if filepath.Dir(exe) != h.dir {
		return false
	}
	base := filepath.Base(exe)
	return base == "jobd" || base == "jobd-shim"
}

// A killing ends the processes that a hunt finds: TERM, time, KILL.
type killing struct {
	hunt   hunt
	killAt time.Time // before it TERM, once for each; from it on KILL
	termed map[proc]bool
	count  map[proc]bool // all that were signalled
	stuck  time.Time     // since when none that is left may be signalled

	// find and signal are replaced by tests; nil = of the hunt, and signalProc.
	find   func() ([]proc, error)
	signal func(proc, unix.Signal) error
}

// round signals what is there now and reports whether anything is left. An
// error says that what is left cannot be ended.
func (k *killing) round(now time.Time) (left bool, err error) {
	if k.termed == nil {
		k.termed, k.count = map[proc]bool{}, map[proc]bool{}
		if k.find == nil {
			k.find, k.signal = k.hunt.find, signalProc
		}
	}
	list, err := k.find()
	if err != nil || len(list) == 0 {
		return false, err
	}
	kill := !now.Before(k.killAt)
	refused := 0
	for _, p := range list {
		if !kill && k.termed[p] {
			continue
		}
		var err error
		if kill {
			err = k.signal(p, unix.SIGKILL)
		} else {
			err = k.signal(p, unix.SIGTERM)
			// One that is stopped gets to handle it.
			_ = k.signal(p, unix.SIGCONT)
			k.termed[p] = true
		}
		if errors.Is(err, unix.EPERM) {
			refused++
			continue
		}
		k.count[p] = true
	}
	if !kill || refused < len(list) {
		k.stuck = time.Time{}
		return true, nil
	}
	// Processes of another user, by sudo and the like.
	if k.stuck.IsZero() {
		k.stuck = now
	}
	if now.Sub(k.stuck) > leftoverGrace {
		return true, fmt.Errorf("%d processes of the job belong to another user and cannot be ended, the first has the id %d", len(list), list[0].pid)
	}
	return true, nil
}

// pause returns the time to wait before round number n, from 0: short at first, for
// most processes end at once; and never more than half a second.
func pause(n int) time.Duration {
	return min(10*time.Millisecond<<min(n, 10), 500*time.Millisecond)
}
