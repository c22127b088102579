package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// maxChunk bounds what one call reads, whatever limit it was given.
const maxChunk = 16 << 20

// Output implements [jobs.Runner]. While the job runs, bytes that the shim
// drops for lack of room show with a delay of about a second.
func (r *Runner) Output(_ context.Context, id string) (jobs.OutputSize, error) {
	b, err := r.bundle(id)
	if err != nil {
		return jobs.OutputSize{}, err
	}
	l, err := b.listing()
	return l.size(), err
}

// ReadOutput implements [jobs.Runner]. The piece ends where a gap begins; an
// offset beyond the end gives an empty piece at the end. limit is at most
// 16 MiB; 0 or less is that.
func (r *Runner) ReadOutput(_ context.Context, id string, offset int64, limit int) (jobs.Chunk, error) {
	b, err := r.bundle(id)
	if err != nil {
		return jobs.Chunk{}, err
	}
	offset = max(offset, 0)
	for {
		l, err := b.listing()
		if err != nil {
			return jobs.Chunk{}, err
		}
		from := l.next(min(offset, l.total))
		data, err := b.copyOut(l, from, clampLimit(limit))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the shim deleted it since; each time, the tail has moved on
		}
		if err != nil {
			return jobs.Chunk{}, err
		}
		return l.chunk(from, data, max(from-offset, 0)), nil
	}
}

// TailOutput implements [jobs.Runner]. The piece never goes back over a gap,
// and begins within a line where that alone is longer than limit.
func (r *Runner) TailOutput(_ context.Context, id string, lines, limit int) (jobs.Chunk, error) {
	b, err := r.bundle(id)
	if err != nil {
		return jobs.Chunk{}, err
	}
	for {
		l, err := b.listing()
		if err != nil {
			return jobs.Chunk{}, err
		}
		from := l.tail(clampLimit(limit))
		data, err := b.copyOut(l, from, l.end()-from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return jobs.Chunk{}, err
		}
		if from+int64(len(data)) != l.end() {
			continue // the shim deleted the middle of it since
		}
		cut := lastLines(data, lines)
		return l.chunk(from+int64(cut), data[cut:], 0), nil
	}
}

func clampLimit(limit int) int64 {
	if limit <= 0 || limit > maxChunk {
		return maxChunk
	}
	return int64(limit)
}

// lastLines returns where the last n lines of data begin; n 0 or less = all.
// A newline at the end ends the last line and begins none.
func lastLines(data []byte, n int) int {
	if n <= 0 {
		return 0
	}
	at := len(bytes.TrimSuffix(data, []byte("\n")))
	for ; n > 0; n-- {
		at = bytes.LastIndexByte(data[:at], '\n')
		if at < 0 {
			return 0
		}
	}
	return at + 1
}

// A listing is what there is of a job's output at one moment.
type listing struct {
	segments []segment // in order, without overlap; none is empty
	total    int64     // bytes of output, as far as is known
	dropped  int64
}

func (l listing) size() jobs.OutputSize { return jobs.OutputSize{Total: l.total, Dropped: l.dropped} }

func (l listing) chunk(from int64, data []byte, gap int64) jobs.Chunk {
	return jobs.Chunk{Offset: from, Data: data, Next: from + int64(len(data)), Gap: gap, Size: l.size()}
}

// end returns the offset after the last byte that is kept.
func (l listing) end() int64 {
	if len(l.segments) == 0 {
		return l.total
	}
	return l.segments[len(l.segments)-1].end()
}

// next returns the first offset at or after this one whose byte is kept, or the
// total.
func (l listing) next(offset int64) int64 {
	for _, s := range l.segments {
		if offset < s.end() {
			return max(offset, s.offset)
		}
	}
	return l.total
}

// tail returns the least offset from which bytes are kept without a gap up to
// the end, not more than limit of them.
func (l listing) tail(limit int64) int64 {
	end := l.end()
	from := end
	for _, s := range slices.Backward(l.segments) {
		if s.end() != from || end-from >= limit {
			break
		}
		from = s.offset
	}
	return max(from, end-limit)
}

// listing reads the names and sizes of the segments. The shim may write and
// delete meanwhile.
func (b bundle) listing() (listing, error) {
	// The exit record first: once it is there, the segments stay as they are.
	var exit exitRecord
	// A damaged record must not hide the output: what is there can be counted.
	ended := b.readRecord(fileExit, &exit) == nil
	for {
		l, err := b.segments()
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return listing{}, fmt.Errorf("reading the output: %w", err)
		}
		if ended {
			l.total = max(l.total, exit.OutputTotal)
		}
		l.dropped = l.total
		for _, s := range l.segments {
			l.dropped -= s.size
		}
		return l, nil
	}
}

// errOvertaken says that the shim has deleted what was the newest segment a
// moment ago: there are newer ones, without which the total would go back.
var errOvertaken = errors.New("overtaken by the shim")

// segments is listing without what needs the exit record.
func (b bundle) segments() (listing, error) {
	var l listing
	names, err := os.ReadDir(b.file(dirOutput)) // sorted by name, so by offset
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return listing{}, err
	}
	gone := false
	for _, e := range names {
		offset, ok := parseSegment(e.Name())
		if !ok {
			continue
		}
		fi, err := e.Info()
		if gone = errors.Is(err, fs.ErrNotExist); gone {
			continue
		}
		if err != nil {
			return listing{}, err
		}
		if !fi.Mode().IsRegular() {
			continue
		}
		l.total = max(l.total, offset+fi.Size())
		if n := len(l.segments); n > 0 {
			// Only damage makes segments overlap: show each byte once.
			l.segments[n-1].size = min(l.segments[n-1].size, offset-l.segments[n-1].offset)
		}
		if fi.Size() > 0 {
			l.segments = append(l.segments, segment{offset: offset, size: fi.Size()})
		}
	}
	if gone {
		return listing{}, errOvertaken
	}
	return l, nil
}

// copyOut reads at most limit bytes from this offset on, up to the first gap. An
// error that wraps [fs.ErrNotExist] says that the first segment is gone.
func (b bundle) copyOut(l listing, from, limit int64) ([]byte, error) {
	var data []byte
	for _, s := range l.segments {
		if s.end() <= from || limit <= 0 {
			continue
		}
		if s.offset > from {
			break
		}
		n := min(s.end()-from, limit)
		if data == nil {
			var size int64
			for _, t := range l.segments {
				if t.end() > from {
					size += t.end() - max(t.offset, from)
				}
			}
			data = make([]byte, 0, min(limit, size))
		}
		got, err := b.readSegment(s, from-s.offset, data[len(data):len(data)+int(n)])
		data = data[:len(data)+got]
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && len(data) > 0 {
				return data, nil // what was read before it is good
			}
			return nil, err
		}
		from += int64(got)
		limit -= int64(got)
		if int64(got) < n {
			break
		}
	}
	return data, nil
}

// readSegment fills p from a place in a segment.
func (b bundle) readSegment(s segment, at int64, p []byte) (int, error) {
	f, err := os.OpenFile(filepath.Join(b.file(dirOutput), segmentName(s.offset)), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.ReadAt(p, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return n, fmt.Errorf("reading the output: %w", err)
	}
	return n, nil
}
