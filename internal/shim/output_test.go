package shim_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"jobd/internal/jobs"
	"jobd/internal/shim"
)

func limit(n int64) func(*jobs.Spec) { return func(s *jobs.Spec) { s.OutputLimit = n } }

// onDisk returns how many bytes the segments of a job hold.
func (r *rig) onDisk(id string) int64 {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, id, "output"))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	var sum int64
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			sum += fi.Size()
		}
	}
	return sum
}

// numbered is a line whose place in the output is in it: 16 bytes each.
func numbered(i int64) string { return fmt.Sprintf("%015d\n", i) }

// checkNumbered checks that a piece of numbered lines is what belongs there.
func checkNumbered(t testing.TB, c jobs.Chunk) {
	t.Helper()
	for i, b := range c.Data {
		at := c.Offset + int64(i)
		if want := numbered(at / 16)[at%16]; b != want {
			t.Fatalf("byte %d is %q, want %q", at, b, want)
		}
	}
}

func TestHeadAndTailAreKeptAndTheRestIsCountedExactly(t *testing.T) {
	r := newRig(t)
	const max = 1 << 20
	for _, lines := range []int64{0, 1, max/16 - 1, max / 16, max/16 + 1, max, 5*max/16 + 7} {
		id, p := r.start(fmt.Sprintf("seq -f %%015.0f 0 %d", lines-1), limit(max))
		if exit := r.wait(p, 20*time.Second); exit.Code != 0 {
			t.Fatalf("%+v: %s", exit, r.output(id))
		}
		size, err := r.Output(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		total := lines * 16
		kept := r.onDisk(id)
		if size.Total != total || size.Dropped != total-kept || kept > max {
			t.Errorf("%d lines: %+v with %d bytes on disk", lines, size, kept)
		}
		if total <= max && size.Dropped != 0 {
			t.Errorf("%d lines: %d bytes dropped below the limit", lines, size.Dropped)
		}
		if total > max && kept < max-max/16 {
			t.Errorf("%d lines: only %d bytes kept", lines, kept)
		}
		// Every byte is right, and the gaps add up.
		var gaps, got, at int64
		for {
			c, err := r.ReadOutput(context.Background(), id, at, 70_000)
			if err != nil {
				t.Fatal(err)
			}
			gaps += c.Gap
			if c.Offset != at+c.Gap || c.Next != c.Offset+int64(len(c.Data)) || len(c.Data) > 70_000 {
				t.Fatalf("at %d: offset %d, gap %d, next %d, %d bytes", at, c.Offset, c.Gap, c.Next, len(c.Data))
			}
			if len(c.Data) == 0 {
				break
			}
			checkNumbered(t, c)
			got += int64(len(c.Data))
			at = c.Next
		}
		if at != total || gaps != size.Dropped || got != kept {
			t.Errorf("%d lines: read to %d, gaps of %d, %d bytes; %+v", lines, at, gaps, got, size)
		}
		if total > max {
			c, err := r.ReadOutput(context.Background(), id, 0, max)
			if err != nil || int64(len(c.Data)) != max/4 {
				t.Errorf("the head has %d bytes, %v; want %d", len(c.Data), err, max/4)
			}
		}
	}
}

func TestASmallLimitHolds(t *testing.T) {
	r := newRig(t)
	for _, want := range []int64{1, 5000, 16 << 10, 20_000} {
		id, p := r.start("seq 1 5000", limit(want))
		r.wait(p, 20*time.Second)
		size, err := r.Output(context.Background(), id)
		max := max(want, 16<<10) // there is none below
		if kept := r.onDisk(id); err != nil || size.Total != 23893 || kept > max || kept < max/2 || size.Dropped != size.Total-kept {
			t.Errorf("limit %d: %+v, %v, %d bytes on disk", max, size, err, kept)
		}
	}
}

func TestAFloodIsBoundedAndDoesNotStopTheJob(t *testing.T) {
	r := newRig(t)
	id, p := r.start("yes | head -c 300000000; echo over", limit(4<<20))
	var most int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				most = max(most, r.onDisk(id))
			}
		}
	})
	r.wait(p, 60*time.Second)
	close(done)
	wg.Wait()
	size, err := r.Output(context.Background(), id)
	if err != nil || size.Total != 300_000_005 || size.Dropped != size.Total-r.onDisk(id) {
		t.Errorf("%+v, %v", size, err)
	}
	if most > 4<<20 {
		t.Errorf("%d bytes were on disk", most)
	}
	c, err := r.TailOutput(context.Background(), id, 2, 1000)
	if err != nil || string(c.Data) != "y\nover\n" || c.Next != size.Total {
		t.Errorf("tail %q, next %d, %v", c.Data, c.Next, err)
	}
}

func TestEveryByteValueComesThrough(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.tmp, "bytes")
	want := make([]byte, 0, 256*1000)
	for range 1000 {
		for b := range 256 {
			want = append(want, byte(b))
		}
	}
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.run(jobs.Spec{Argv: []string{"cat", file}}); got != string(want) {
		t.Errorf("%d bytes came through of %d, or others", len(got), len(want))
	}
}

func TestOneLongLineIsCountedExactly(t *testing.T) {
	r := newRig(t)
	id, p := r.start("head -c 100000000 /dev/zero | tr '\\0' x", limit(8<<20))
	if exit := r.wait(p, 60*time.Second); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	size, err := r.Output(context.Background(), id)
	if err != nil || size.Total != 100_000_000 || size.Dropped != size.Total-r.onDisk(id) {
		t.Errorf("%+v, %v", size, err)
	}
	// A line that is longer than the limit is cut at its front.
	c, err := r.TailOutput(context.Background(), id, 1, 1000)
	if err != nil || string(c.Data) != strings.Repeat("x", 1000) || c.Offset != 100_000_000-1000 {
		t.Errorf("tail of %d bytes at %d, %v", len(c.Data), c.Offset, err)
	}
}

func TestStandardErrorIsInOrderWithStandardOutput(t *testing.T) {
	r := newRig(t)
	if got := r.run(jobs.Spec{Argv: []string{"sh", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done"}}); got != "o1\ne1\no2\ne2\no3\ne3\n" {
		t.Errorf("got %q", got)
	}
}

func TestTheOutputOfAFastFailureIsNeverLost(t *testing.T) {
	r := newRig(t)
	for range 50 {
		id, p := r.start("echo E >&2; exit 1")
		if exit := r.wait(p, 10*time.Second); exit.Code != 1 || r.output(id) != "E\n" {
			t.Fatalf("%+v, %q", exit, r.output(id))
		}
	}
}

func TestTailCountsLines(t *testing.T) {
	r := newRig(t)
	for script, want := range map[string][]string{ // last lines for n = 0, 1, 2, 10
		"printf 'a\\nb\\nc\\n'":   {"a\nb\nc\n", "c\n", "b\nc\n", "a\nb\nc\n"},
		"printf 'a\\nb\\nc'":      {"a\nb\nc", "c", "b\nc", "a\nb\nc"},
		"printf '\\n\\n\\n'":      {"\n\n\n", "\n", "\n\n", "\n\n\n"},
		"true":                    {"", "", "", ""},
		"printf 'a\\n\\nb\\n\\n'": {"a\n\nb\n\n", "\n", "b\n\n", "a\n\nb\n\n"},
	} {
		id, p := r.start(script)
		r.wait(p, 10*time.Second)
		for i, n := range []int{0, 1, 2, 10} {
			c, err := r.TailOutput(context.Background(), id, n, 1000)
			if err != nil || string(c.Data) != want[i] || c.Next != c.Size.Total || c.Offset != c.Next-int64(len(c.Data)) {
				t.Errorf("%s: tail %d is %q (%+v), %v; want %q", script, n, c.Data, c, err, want[i])
			}
		}
	}
}

func TestReadingBeyondTheEndGivesTheEnd(t *testing.T) {
	r := newRig(t)
	id, p := r.start("echo hello")
	r.wait(p, 10*time.Second)
	for _, at := range []int64{6, 7, 1 << 60} {
		c, err := r.ReadOutput(context.Background(), id, at, 10)
		if err != nil || len(c.Data) != 0 || c.Offset != 6 || c.Next != 6 || c.Gap != 0 {
			t.Errorf("at %d: %+v, %v", at, c, err)
		}
	}
	if c, err := r.ReadOutput(context.Background(), id, -5, 3); err != nil || string(c.Data) != "hel" || c.Next != 3 {
		t.Errorf("before the beginning: %+v, %v", c, err)
	}
	if c, err := r.ReadOutput(context.Background(), id, 2, 0); err != nil || string(c.Data) != "llo\n" {
		t.Errorf("without a limit: %+v, %v", c, err)
	}
}

func TestAReaderMayFollowWhileTheShimWritesAndDeletes(t *testing.T) {
	r := newRig(t)
	const lines = 3_000_000
	id, p := r.start(fmt.Sprintf("seq -f %%015.0f 0 %d", lines-1), limit(1<<20))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var at, gaps, got int64
			for last := false; ; {
				c, err := r.ReadOutput(context.Background(), id, at, 64<<10)
				if err != nil {
					t.Error(err)
					return
				}
				if c.Offset < at || c.Offset != at+c.Gap {
					t.Errorf("at %d: offset %d with a gap of %d", at, c.Offset, c.Gap)
					return
				}
				checkNumbered(t, c)
				at, gaps, got = c.Next, gaps+c.Gap, got+int64(len(c.Data))
				if len(c.Data) > 0 || c.Gap > 0 {
					continue
				}
				if last {
					break
				}
				select {
				case <-ended:
					last = true
				case <-time.After(time.Millisecond):
				}
			}
			if at != lines*16 || got+gaps != at {
				t.Errorf("read to %d of %d: %d bytes, gaps of %d", at, lines*16, got, gaps)
			}
		})
	}
	wg.Go(func() {
		for {
			c, err := r.TailOutput(context.Background(), id, 3, 10_000)
			if err != nil {
				t.Error(err)
				return
			}
			checkNumbered(t, c)
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	r.wait(p, 60*time.Second)
	close(ended)
	wg.Wait()
}

func TestOutputThatCannotBeWrittenIsDroppedAndCounted(t *testing.T) {
	// A limit of the size of files makes writes fail as a full disk does, and
	// sends a signal that ends a process which does not expect it.
	wrapper := filepath.Join(t.TempDir(), "limited")
	script := "#!/bin/sh\nulimit -f 128\nexec " + filepath.Join(binDir, "jobd-shim") + " \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *shim.Options) { o.ShimPath = wrapper })
	const lines = 40_000
	id, p := r.start(fmt.Sprintf("seq -f %%015.0f 0 19999; sleep 1.5; seq -f %%015.0f 20000 %d; exit 3", lines-1), limit(16<<20))
	if exit := r.wait(p, 20*time.Second); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
	size, err := r.Output(context.Background(), id)
	if err != nil || size.Total != lines*16 || size.Dropped != size.Total-r.onDisk(id) || size.Dropped == 0 {
		t.Errorf("%+v, %v; %d bytes on disk", size, err, r.onDisk(id))
	}
	var pieces int
	var gaps, at int64
	for {
		c, err := r.ReadOutput(context.Background(), id, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		checkNumbered(t, c)
		gaps += c.Gap
		at = c.Next
		if len(c.Data) == 0 {
			break
		}
		pieces++
	}
	// A piece before the first fault, and one after it had been given a second.
	if pieces != 2 || at != size.Total || gaps != size.Dropped {
		t.Errorf("%d pieces up to %d, gaps of %d; %+v", pieces, at, gaps, size)
	}
}

func TestAnEndThatCannotBeRecordedIsRecordedLater(t *testing.T) {
	r := newRig(t)
	id, p := r.start("setsid -f sleep 600; while ! test -e go; do sleep 0.01; done; exit 5")
	// A directory where the record belongs.
	blocked := filepath.Join(r.dir, id, "exit.json")
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command has ended", func() bool { return !runs(p.PID()) })
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	if exit, err := p.Wait(ctx); err == nil {
		t.Fatalf("it ended without a record on disk: %+v", exit)
	}
	if rem, err := r.Inspect(context.Background(), id); err == nil || !rem.Held || rem.Exit != nil {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 10*time.Second); exit.Code != 5 || exit.StopFirst {
		t.Errorf("%+v", exit)
	}
}

func TestOutputOfAnUnknownJobIsEmpty(t *testing.T) {
	r := newRig(t)
	size, err := r.Output(context.Background(), "nobody")
	if err != nil || size.Total != 0 {
		t.Errorf("%+v, %v", size, err)
	}
	c, err := r.TailOutput(context.Background(), "nobody", 5, 100)
	if err != nil || len(c.Data) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := r.ReadOutput(context.Background(), "../etc", 0, 100); err == nil {
		t.Error("a path was taken for an id")
	}
}

func TestStrayFilesAreNoOutput(t *testing.T) {
	r := newRig(t)
	id, p := r.start("echo hi")
	r.wait(p, 10*time.Second)
	dir := filepath.Join(r.dir, id, "output")
	for _, name := range []string{"x", "1", "+0000000000000000001", "99999999999999999999", fmt.Sprintf("%020d.tmp", 3)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("stray"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, fmt.Sprintf("%020d", 3))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%020d", 9)), 0o700); err != nil {
		t.Fatal(err)
	}
	size, err := r.Output(context.Background(), id)
	if got := r.output(id); got != "hi\n" || err != nil || size.Total != 3 || size.Dropped != 0 {
		t.Errorf("%q, %+v, %v", got, size, err)
	}
	if !bytes.HasSuffix([]byte(r.output(id)), []byte("hi\n")) {
		t.Error("lost")
	}
}
