package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text from jobs is hostile to a terminal: it may move the cursor over other
// text, set the window's title, answer as the keyboard, or write backwards.
//
// What the filter lets through: printable characters, newline, tab, and where
// the terminal shows colours, SGR sequences that set colours and weight. A
// carriage return before a newline is dropped; any other becomes a newline,
// so that a progress bar shows its steps and overwrites nothing. A complete
// control sequence (CSI) is dropped. Every other control character is made
// visible: ^[ for ESC, <U+009B> for a C1 control, <U+202E> for a character
// that changes the direction of writing or shows nothing. A byte that is not
// UTF-8 becomes U+FFFD.
//
// It is applied where a terminal shows the text. A pipe or file gets the bytes
// as the job wrote them.

// maxSequence bounds a control sequence; what is longer is no sequence.
const maxSequence = 64

// safeLine returns one line of text as a terminal may show it, without
// colours; a newline or tab in it becomes a space.
func safeLine(s string) string {
	var f filter
	b := f.filter(nil, []byte(s), true)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, string(b))
}

// A safeWriter filters all that is written to it. Close writes what it holds
// back and ends colours; it does not close the writer below.
type safeWriter struct {
	w io.Writer
	f filter
}

// newSafeWriter returns a writer of job text to a stream that shows on s. Where
// s is no terminal, or raw is set, the text passes as it is.
func newSafeWriter(w io.Writer, s screen, raw bool) io.WriteCloser {
	if raw || !s.terminal {
		return rawWriter{w}
	}
	return &safeWriter{w: w, f: filter{colour: s.colour}}
}

type rawWriter struct{ io.Writer }

func (rawWriter) Close() error { return nil }

// Write implements io.Writer.
func (s *safeWriter) Write(p []byte) (int, error) {
	if _, err := s.w.Write(s.f.filter(nil, p, false)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements io.Closer.
func (s *safeWriter) Close() error {
	_, err := s.w.Write(s.f.filter(nil, nil, true))
	return err
}

// A filter makes a stream of text safe. Its output does not depend on how the
// stream is cut into pieces.
type filter struct {
	colour bool   // let colours through
	held   []byte // the start of something that is not complete yet
	styled bool   // colours are on
}

// filter appends the safe form of p to dst. last says that nothing follows.
func (f *filter) filter(dst, p []byte, last bool) []byte {
	buf := append(f.held, p...)
	for len(buf) > 0 {
		var used int
		dst, used = f.step(dst, buf, last)
		if used == 0 {
			break
		}
		buf = buf[used:]
	}
	f.held = append([]byte(nil), buf...)
	if last && f.styled {
		dst = append(dst, "\x1b[0m"...)
		f.styled = false
	}
	return dst
}

// step handles what buf starts with and returns how many bytes that were; 0
// says that more are needed to tell.
func (f *filter) step(dst, buf []byte, last bool) ([]byte, int) {
	switch c := buf[0]; {
	case c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f):
		return append(dst, c), 1
	case c == '\r':
		if len(buf) == 1 && !last {
			return dst, 0
		}
		if len(buf) > 1 && (buf[1] == '\r' || buf[1] == '\n') {
			return dst, 1
		}
		return append(dst, '\n'), 1
	case c == 0x1b:
		return f.escape(dst, buf, last)
	case c < 0x20:
		return append(dst, '^', c+'@'), 1
	case c == 0x7f:
		return append(dst, "^?"...), 1
	}
	if !utf8.FullRune(buf) && !last {
		return dst, 0
	}
	r, size := utf8.DecodeRune(buf)
	if hazardous(r) {
		return fmt.Appendf(dst, "<U+%04X>", r), size
	}
	return utf8.AppendRune(dst, r), size
}

// escape handles buf, which starts with ESC.
func (f *filter) escape(dst, buf []byte, last bool) ([]byte, int) {
	n, complete := sequence(buf)
	switch {
	case n > 0 && complete:
		if buf[n-1] == 'm' && f.colour && harmlessSGR(string(buf[2:n-1])) {
			f.styled = true
			return append(dst, buf[:n]...), n
		}
		return dst, n
	case n > 0 && !last:
		return dst, 0
	}
	return append(dst, "^["...), 1
}

// sequence measures the control sequence (ECMA-48, 5.4: ESC [, parameters,
// intermediates, a final byte) at the start of buf. n is 0 if there is none;
// not complete means that it may still become one.
func sequence(buf []byte) (n int, complete bool) {
	if len(buf) == 1 {
		return 1, false
	}
	if buf[1] != '[' {
		return 0, false
	}
	i := 2
	for i < len(buf) && buf[i] >= 0x30 && buf[i] <= 0x3f {
		i++
	}
	for i < len(buf) && buf[i] >= 0x20 && buf[i] <= 0x2f {
		i++
	}
	switch {
	case i >= maxSequence:
		return 0, false
	case i == len(buf):
		return i, false
	case buf[i] >= 0x40 && buf[i] <= 0x7e:
		return i + 1, true
	}
	return 0, false
}

// harmlessSGR reports whether the parameters of an SGR sequence set nothing
// but colours, weight, slant and lines. Blinking and concealing do not pass.
func harmlessSGR(parameters string) bool {
	ps := strings.Split(parameters, ";")
	for i := 0; i < len(ps); i++ {
		p := ps[i]
		switch {
		case p == "38" || p == "48" || p == "58":
			// 38;5;N is a colour of the palette, 38;2;R;G;B a true colour.
			switch {
			case i+2 < len(ps) && ps[i+1] == "5":
				i += 2
			case i+4 < len(ps) && ps[i+1] == "2":
				i += 4
			default:
				return false
			}
		case strings.HasPrefix(p, "38:"), strings.HasPrefix(p, "48:"), strings.HasPrefix(p, "58:"), strings.HasPrefix(p, "4:"):
			// The same in one parameter, and the shapes of underlining.
		case !harmlessParameter(p):
			return false
		}
	}
	return true
}

func harmlessParameter(p string) bool {
	n := 0
	for _, c := range []byte(p) {
		if c < '0' || c > '9' || n > 999 {
			return false
		}
		n = n*10 + int(c-'0')
	}
	switch {
	case n == 5 || n == 6 || n == 8: // blinking, concealed
		return false
	case n <= 9, n >= 21 && n <= 29, n >= 30 && n <= 49, n == 53, n == 55, n == 59, n >= 90 && n <= 107:
		return true
	}
	return false
}

// hazardous reports whether a character must not reach a terminal: controls,
// and what changes the order of text or shows as nothing.
func hazardous(r rune) bool {
	switch {
	case r == utf8.RuneError:
		return false
	case r >= 0x80 && r <= 0x9f: // C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, // direction marks
		r >= 0x202a && r <= 0x202e, // direction embeddings and overrides
		r >= 0x2066 && r <= 0x2069: // direction isolates
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separators
		return true
	case r == 0x00ad, r == 0x180e, r == 0x200b, r >= 0x2060 && r <= 0x2065, r >= 0x206a && r <= 0x206f,
		r == 0xfeff, r >= 0xfff9 && r <= 0xfffb: // shown as nothing
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // tags, which hide text
		return r < 0xe0100 || r > 0xe01ef // but not variation selectors
	}
	return unicode.Is(unicode.Cc, r)
}
