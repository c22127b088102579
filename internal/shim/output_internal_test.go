package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// kept returns the segments in a directory.
func kept(t *testing.T, b bundle) listing {
	t.Helper()
	l, err := b.segments()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheRecorderLeavesRoomOnTheDisk(t *testing.T) {
	b := bundle(t.TempDir())
	r := newRecorder(b.file(dirOutput), 1<<20)
	room := true
	r.room = func(string) bool { return room }
	write := func(n int) {
		t.Helper()
		if w, err := r.Write(bytes.Repeat([]byte("x"), n)); w != n || err != nil {
			t.Fatalf("wrote %d, %v", w, err)
		}
	}
	write(1000)
	room = false
	r.unlooked = spaceEvery // time to look again
	write(500)
	write(500)
	if total, keeps := r.size(); total != 2000 || keeps != 1000 {
		t.Errorf("%d bytes, %d kept", total, keeps)
	}
	r.retry()
	if l := kept(t, b); l.total != 2000 || len(l.segments) != 1 {
		t.Errorf("readers see %+v: the retry tells how far it got", l)
	}
	write(300)
	room = true
	r.retry()
	write(200)
	write(100)
	r.close()
	if total, keeps := r.size(); total != 2600 || keeps != 1300 {
		t.Errorf("%d bytes, %d kept", total, keeps)
	}
	want := []segment{{0, 1000}, {2300, 300}}
	if l := kept(t, b); l.total != 2600 || len(l.segments) != 2 || l.segments[0] != want[0] || l.segments[1] != want[1] {
		t.Errorf("%+v, want %+v", l, want)
	}
	r.retry() // one that was under way when it was closed
	if _, err := os.Stat(filepath.Join(b.file(dirOutput), segmentName(2600))); err == nil {
		t.Error("a closed recorder goes on")
	}
}

func TestTheRecorderLivesWithoutADirectory(t *testing.T) {
	b := bundle(filepath.Join(t.TempDir(), "missing"))
	r := newRecorder(b.file(dirOutput), 1000)
	for range 3 {
		if n, err := r.Write([]byte("hello")); n != 5 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		r.retry()
	}
	if total, keeps := r.size(); total != 15 || keeps != 0 {
		t.Errorf("%d bytes, %d kept", total, keeps)
	}
	if err := os.Mkdir(string(b), 0o700); err != nil {
		t.Fatal(err)
	}
	r.retry()
	if _, err := r.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	r.close()
	if l := kept(t, b); l.total != 20 || len(l.segments) != 1 || l.segments[0] != (segment{15, 5}) {
		t.Errorf("%+v", l)
	}
}

func FuzzSegmentName(f *testing.F) {
	f.Add("00000000000000000000")
	f.Add("09223372036854775807")
	f.Add("09223372036854775808")
	f.Add("+0000000000000000001")
	f.Fuzz(func(t *testing.T, name string) {
		if offset, ok := parseSegment(name); ok && segmentName(offset) != name {
			t.Fatalf("%q was read as %d", name, offset)
		}
	})
}

func FuzzLastLines(f *testing.F) {
	f.Add([]byte("a\nb\nc"), 2)
	f.Add([]byte("\n\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		cut := lastLines(data, n)
		if cut < 0 || cut > len(data) || cut > 0 && data[cut-1] != '\n' {
			t.Fatalf("%d lines of %q begin at %d", n, data, cut)
		}
		if lines := bytes.Count(bytes.TrimSuffix(data[cut:], []byte("\n")), []byte("\n")) + 1; n > 0 && lines > n {
			t.Fatalf("%d lines of %q: there are %d from %d on", n, data, lines, cut)
		}
	})
}
