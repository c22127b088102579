package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// edge is how much is kept of either end of a line that is too long.
const edge = 4 << 10

// A frame is one line of input.
type frame struct {
	line []byte // without its end; fresh memory
	// long: the line was longer than allowed; head and tail are its ends.
	long       bool
	head, tail []byte
}

// readFrame reads one line of at most limit bytes. The last line needs no end.
// At the end of input it returns a nil frame and io.EOF.
func readFrame(r *bufio.Reader, limit int) (*frame, error) {
	var f frame
	some := false
	for {
		piece, err := r.ReadSlice('\n')
		some = some || len(piece) > 0
		done := err == nil
		if done {
			piece = piece[:len(piece)-1]
		}
		switch {
		case f.long:
			f.tail = append(f.tail, piece...)
			if cut := len(f.tail) - edge; cut > 0 {
				f.tail = append(f.tail[:0], f.tail[cut:]...)
			}
		case len(f.line)+len(piece) > limit:
			f.long = true
			whole := append(f.line, piece...)
			f.head = bytes.Clone(whole[:min(edge, len(whole))])
			f.tail = bytes.Clone(whole[max(0, len(whole)-edge):])
			f.line = nil
		default:
			f.line = append(f.line, piece...)
		}
		switch {
		case done:
			return &f, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case some && errors.Is(err, io.EOF):
			return &f, nil // the next read says io.EOF again
		default:
			return nil, err
		}
	}
}
