package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// defaultOutputLimit is how much of a job's output is kept where its spec
	// does not say.
	defaultOutputLimit = 64 << 20
	// tailParts is into how many files the tail is divided: so much of it, at
	// most, is dropped before it had to be.
	tailParts = 16
	// minSegment keeps a small limit from making many files, and minLimit is the
	// smallest one that there is.
	minSegment = 4 << 10
	minLimit   = 4 * minSegment
	// spaceEvery is how many bytes are written between two looks at the free
	// space.
	spaceEvery = 8 << 20
	// minFree and minFreeShare are the room on the disk that output leaves to
	// others: the smaller of 256 MiB and a hundredth of the file system.
	minFree      = 256 << 20
	minFreeShare = 100
	// retryAfter is the time between two attempts to write after one failed.
	retryAfter = time.Second
)

// segmentName names the segment whose first byte has this offset.
func segmentName(offset int64) string { return fmt.Sprintf("%020d", offset) }

// parseSegment returns the offset in a segment's name.
func parseSegment(name string) (int64, bool) {
	if len(name) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 63)
	return int64(n), err == nil
}

// A recorder writes a job's output into segments. It never fails: what cannot be
// kept is counted.
type recorder struct {
	dir  string
	room func(dir string) bool // whether the disk has room for more

	mu sync.Mutex // guards what follows

	head, tail, part int64 // limits: of the head, of the tail, of one file of the tail

	total int64 // bytes of output so far
	kept  int64 // of them, those that are in a segment

	seg      *os.File // what is written to; nil = the next byte begins a segment
	segSize  int64
	segLimit int64
	headSize int64     // bytes in the head
	tails    []segment // of the tail, oldest first; the last may be seg
	tailSize int64     // bytes in the tail
	unlooked int64     // bytes written since the last look at the free space

	// failing: bytes are dropped until again has fired. marker is the name of
	// seg; while that is empty it says how far the output got, and is renamed as
	// that grows.
	failing bool
	again   *time.Timer
	marker  string
	closed  bool
}

// A segment is one file of the output.
type segment struct{ offset, size int64 }

func (s segment) end() int64 { return s.offset + s.size }

// newRecorder returns a recorder into dir, which it makes, that keeps at most
// limit bytes; 0 = the default, and less than 16 KiB is that.
func newRecorder(dir string, limit int64) *recorder {
	if limit <= 0 {
		limit = defaultOutputLimit
	}
	limit = max(limit, minLimit)
	r := &recorder{dir: dir, room: hasRoom, head: limit / 4}
	r.tail = limit - r.head
	r.part = max(r.tail/tailParts, minSegment)
	r.unlooked = spaceEvery
	return r
}

// hasRoom reports whether the file system of dir has more room than is left to
// others. Where that cannot be told, the write will tell.
func hasRoom(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return true
	}
	block := uint64(st.Bsize)
	return st.Bavail*block > min(minFree, st.Blocks*block/minFreeShare)
}

// Write takes the next bytes of the output. It returns no error.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		if r.failing {
			r.total += int64(len(p))
			break
		}
		if err := r.open(); err != nil {
			r.fail()
			continue
		}
		w, err := r.seg.Write(p[:min(int64(len(p)), r.segLimit-r.segSize)])
		r.wrote(int64(w))
		p = p[w:]
		if err != nil {
			r.fail()
		}
	}
	return n, nil
}

// size returns how many bytes there were, and how many of them are kept.
func (r *recorder) size() (total, kept int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, r.kept
}

// wrote counts bytes that are in the segment.
func (r *recorder) wrote(n int64) {
	r.total += n
	r.kept += n
	r.segSize += n
	r.unlooked += n
	if len(r.tails) == 0 {
		r.headSize += n
		return
	}
	r.tailSize += n
	r.tails[len(r.tails)-1].size += n
}

// fail starts, or goes on, dropping.
func (r *recorder) fail() {
	if r.seg != nil && r.segSize > 0 {
		// A write that failed may have left bytes that were not counted.
		_ = r.seg.Truncate(r.segSize)
		r.end()
	}
	r.failing = true
	r.again = time.AfterFunc(retryAfter, r.retry)
}

// retry ends the dropping if it can, and tells readers how far the output got.
func (r *recorder) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failing || r.closed {
		return
	}
	if err := r.open(); err != nil {
		r.fail()
	}
}

// end ends the present segment.
func (r *recorder) end() {
	if r.seg != nil {
		_ = r.seg.Close() // nothing is buffered; a failed write was told by write
		r.seg = nil
	}
}

// close ends the output.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.again != nil {
		r.again.Stop()
	}
	r.end()
}

// open makes sure that there is a segment with room for at least one byte, and
// that the disk has room.
func (r *recorder) open() error {
	switch {
	case r.seg == nil:
		if err := r.begin(); err != nil {
			return err
		}
	case r.segSize == 0:
		// It was begun for a byte that was dropped.
		if err := r.move(); err != nil {
			return err
		}
	case r.segSize >= r.segLimit:
		r.end()
		if err := r.begin(); err != nil {
			return err
		}
	}
	if r.unlooked >= spaceEvery || r.failing {
		if !r.room(r.dir) {
			return unix.ENOSPC
		}
		r.unlooked = 0
	}
	r.failing = false
	return nil
}

// begin starts the segment of the next byte: of the head while that has room,
// else of the tail, whose oldest ones go to make place.
func (r *recorder) begin() error {
	limit := r.head - r.headSize
	inTail := limit <= 0 || len(r.tails) > 0
	if inTail {
		limit = r.part
		for len(r.tails) > 0 && r.tailSize+limit > r.tail {
			old := r.tails[0]
			if err := os.Remove(filepath.Join(r.dir, segmentName(old.offset))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			r.tails = r.tails[1:]
			r.tailSize -= old.size
			r.kept -= old.size
		}
	}
	name := filepath.Join(r.dir, segmentName(r.total))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(r.dir, 0o700); err != nil {
			return err
		}
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		return err
	}
	if inTail {
		r.tails = append(r.tails, segment{offset: r.total})
	}
	r.seg, r.segSize, r.segLimit = f, 0, limit
	r.marker = name
	return nil
}

// move gives an empty segment the offset that the output has reached.
func (r *recorder) move() error {
	name := filepath.Join(r.dir, segmentName(r.total))
	if name == r.marker {
		return nil
	}
	if err := os.Rename(r.marker, name); err != nil {
		return err
	}
	if len(r.tails) > 0 {
		r.tails[len(r.tails)-1].offset = r.total
	}
	r.marker = name
	return nil
}
