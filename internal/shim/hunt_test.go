package shim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAHuntFindsTheJobAndSparesDaemons(t *testing.T) {
	// Shim 100 holds the job; daemon 50 is outside, 300 was started by the shim.
	table := []proc{
		{pid: 1, ppid: 0, sid: 1},
		{pid: 50, ppid: 1, sid: 50},
		{pid: 100, ppid: 50, sid: 100},
		{pid: 101, ppid: 100, sid: 100}, // command
		{pid: 102, ppid: 101, sid: 100},
		{pid: 103, ppid: 100, sid: 103}, // setsid, orphaned
		{pid: 104, ppid: 100, sid: 100, dead: true},
		{pid: 105, ppid: 104, sid: 100},
		{pid: 110, ppid: 102, sid: 100}, // runs jobd, and leads no session
		{pid: 111, ppid: 110, sid: 100},
		{pid: 300, ppid: 100, sid: 300}, // jobd
		{pid: 301, ppid: 300, sid: 301}, // a shim of that
		{pid: 302, ppid: 301, sid: 301}, // and its job
		{pid: 400, ppid: 1, sid: 400},   // marked, elsewhere
		{pid: 401, ppid: 400, sid: 401},
		{pid: 500, ppid: 1, sid: 500},   // jobd, marked
		{pid: 501, ppid: 500, sid: 500}, // marked
		{pid: 600, ppid: 1, sid: 600},   // somebody else's
	}
	jobd := map[int]bool{50: true, 100: true, 110: true, 300: true, 301: true, 500: true}
	marked := map[int]bool{101: true, 103: true, 400: true, 500: true, 501: true}
	for name, c := range map[string]struct {
		hunt hunt
		want []int
	}{
		"below the shim":         {hunt{self: 100, root: 100}, []int{101, 102, 103, 105, 110, 111}},
		"and by the mark":        {hunt{self: 100, root: 100, mark: "x"}, []int{101, 102, 103, 105, 110, 111, 400, 401}},
		"session of a dead shim": {hunt{self: 50, session: 100}, []int{101, 102, 105, 110, 111}},
		"with the mark":          {hunt{self: 50, session: 100, mark: "x"}, []int{101, 102, 103, 105, 110, 111, 400, 401}},
		"nothing":                {hunt{self: 50}, nil},
	} {
		if c.hunt.session != 0 {
			// The shim is gone, and what it had belongs to process 1.
			c.hunt.dir = "x"
		}
		var rows []proc
		for _, p := range table {
			if c.hunt.session != 0 {
				if p.pid == 100 {
					continue
				}
				if p.ppid == 100 {
					p.ppid = 1
				}
			}
			rows = append(rows, p)
		}
		var got []int
		for _, p := range c.hunt.pick(rows, func(p proc) bool { return jobd[p.pid] }, func(pid int, _ string) bool { return marked[pid] }) {
			got = append(got, p.pid)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOrphansOfAKilledShimAreFoundBelowAnotherShim(t *testing.T) {
	// The daemon 20 hangs under shim 10; its own shim was killed, and what that
	// held has become the child of 10.
	table := []proc{
		{pid: 10, ppid: 1, sid: 10},  // shim
		{pid: 11, ppid: 10, sid: 10}, // its job
		{pid: 20, ppid: 10, sid: 20}, // the daemon
		{pid: 31, ppid: 10, sid: 30}, // left of the killed shim 30
		{pid: 32, ppid: 31, sid: 32},
	}
	h := hunt{self: 20, session: 30}
	var got []int
	for _, p := range h.pick(table, func(p proc) bool { return p.pid == 10 || p.pid == 20 }, nil) {
		got = append(got, p.pid)
	}
	if !slices.Equal(got, []int{31, 32}) {
		t.Errorf("found %v", got)
	}
}

func TestAKillingTermsOnceThenKillsAndGivesUpOnOthersProcesses(t *testing.T) {
	own, foreign := proc{pid: 7, start: "1"}, proc{pid: 8, start: "2"}
	left := []proc{own, foreign}
	var sent []string
	begun := time.Now()
	k := killing{killAt: begun.Add(time.Second),
		find: func() ([]proc, error) { return left, nil },
		signal: func(p proc, sig unix.Signal) error {
			sent = append(sent, fmt.Sprint(p.pid, unix.SignalName(sig)))
			if p == foreign {
				return unix.EPERM
			}
			return nil
		}}
	round := func(after time.Duration, want ...string) error {
		t.Helper()
		sent = nil
		some, err := k.round(begun.Add(after))
		if !some || !slices.Equal(sent, want) {
			t.Errorf("after %v: %q, left %t; want %q", after, sent, some, want)
		}
		return err
	}
	for _, err := range []error{
		round(0, "7SIGTERM", "7SIGCONT", "8SIGTERM", "8SIGCONT"),
		round(900 * time.Millisecond),
		round(time.Second, "7SIGKILL", "8SIGKILL"),
		round(10*time.Second, "7SIGKILL", "8SIGKILL"), // as long as one is its own
	} {
		if err != nil {
			t.Error(err)
		}
	}
	left = []proc{foreign}
	if err := round(11*time.Second, "8SIGKILL"); err != nil {
		t.Error(err)
	}
	if err := round(14*time.Second, "8SIGKILL"); err == nil || !strings.Contains(err.Error(), "the first has the id 8") {
		t.Errorf("not given up: %v", err)
	}
	if len(k.count) != 1 || !k.count[own] {
		t.Errorf("counted %v", k.count)
	}
	left = nil
	if some, err := k.round(begun.Add(15 * time.Second)); some || err != nil {
		t.Errorf("with nothing left: %t, %v", some, err)
	}
}
