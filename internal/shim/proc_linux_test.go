package shim

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAProcessIsReadWhateverItsName(t *testing.T) {
	for raw, want := range map[string]proc{
		"7 (sh) S 1 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 5":           {pid: 7, ppid: 1, sid: 3, start: "4242"},
		"7 (a) Z 9 9 9) R 1 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 5 6": {pid: 7, ppid: 1, sid: 3, start: "4242"},
		"7 (gone) Z 1 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 5":         {pid: 7, ppid: 1, sid: 3, start: "4242", dead: true},
		"7 (threads) Z 1 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 4 0 4242 5":      {pid: 7, ppid: 1, sid: 3, start: "4242"},
		"7 (\n\x00) T 1 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 5\n":     {pid: 7, ppid: 1, sid: 3, start: "4242"},
	} {
		if got, err := parseStat(7, []byte(raw)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "7 sh S 1", "7 (sh) S 1 2", "7 (sh) S x 2 3 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 5"} {
		if got, err := parseStat(7, []byte(raw)); err == nil {
			t.Errorf("%q was read as %+v", raw, got)
		}
	}
}

func TestThisProcessIsInTheTable(t *testing.T) {
	table, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	sid, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		if p.pid == os.Getpid() {
			if p.ppid != os.Getppid() || p.sid != sid || p.dead {
				t.Errorf("%+v", p)
			}
			return
		}
	}
	t.Error("it is not")
}

func TestASignalGoesToTheProcessThatWasMeantOnly(t *testing.T) {
	self, err := readProc(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := signalProc(self, 0); err != nil {
		t.Errorf("itself: %v", err)
	}
	other := self
	other.start += "0" // as if the id had been given out again
	if err := signalProc(other, unix.SIGKILL); err != unix.ESRCH {
		t.Errorf("another of the same id: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) b) R 2 3 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 5 6"))
	f.Add([]byte("1 () Z"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := parseStat(7, raw); err == nil && (p.pid != 7 || p.start == "") {
			t.Fatalf("%q was read as %+v", raw, p)
		}
	})
}
