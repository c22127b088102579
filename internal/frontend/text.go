package frontend

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// clean returns text from a job as plain text that is safe to show to a model:
// valid UTF-8, without terminal control sequences, control characters and
// characters that hide or reorder text, and with lines that were overwritten
// by carriage returns reduced to what a terminal would show last. Tags that
// clients use to speak to the model are defused.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = stripSequences(s)
	if strings.ContainsRune(s, '\r') {
		s = overwrite(s)
	}
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if hidden(r) {
			return -1
		}
		return r
	}, s)
	return reserved.ReplaceAllString(s, "&lt;$1")
}

// reserved are the beginnings of tags with which Claude Code wraps what it
// tells the model; text from a job must not be able to open or close them.
var reserved = regexp.MustCompile(`(?i)<(/?\s*(?:system-reminder|task-notification|mcp-server-note|task-id|function_calls|function_results|antml:\w+)\b)`)

// hidden reports whether r is invisible in itself and able to change how the
// text around it is read: control characters, bidirectional controls, tag
// characters and the byte order mark. Joiners stay, scripts and emoji need them.
func hidden(r rune) bool {
	switch {
	case unicode.IsControl(r):
		return true
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F, r == 0x061C:
		return true
	case r == 0x2028, r == 0x2029, r == 0xFEFF:
		return true
	case r >= 0xE0000 && r <= 0xE007F:
		return true
	}
	return false
}

// maxSequence bounds a terminal control sequence, so that one without its end
// does not swallow the text after it.
const maxSequence = 4096

// stripSequences removes the control sequences of ECMA-48: CSI, the strings
// OSC, DCS, SOS, PM and APC, and two-character escapes; in their 7-bit and
// their 8-bit forms. It takes time in proportion to the text, whatever is in it.
func stripSequences(s string) string {
	if !strings.ContainsAny(s, "\x1b\u0090\u0098\u009b\u009d\u009e\u009f") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	end := stringEnd{s: s}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b && i+1 < len(s):
			switch c := s[i+1]; {
			case c == '[':
				i = afterCSI(s, i+2)
			case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
				i = end.after(i + 2)
			case c >= 0x20 && c <= 0x7e:
				i = afterEscape(s, i+1)
			default:
				i++
			}
		case r == 0x9b:
			i = afterCSI(s, i+n)
		case r == 0x90 || r == 0x98 || r >= 0x9d && r <= 0x9f:
			i = end.after(i + n)
		default:
			b.WriteString(s[i : i+n])
			i += n
		}
	}
	return b.String()
}

// afterEscape returns where an escape ends that goes on at i with intermediate
// bytes and a final one.
func afterEscape(s string, i int) int {
	for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
		i++
	}
	if i < len(s) && s[i] >= 0x30 && s[i] <= 0x7e {
		i++
	}
	return i
}

// afterCSI returns where a control sequence ends whose parameters begin at i.
func afterCSI(s string, i int) int {
	for from := i; i < len(s) && i-from < maxSequence && s[i] >= 0x20 && s[i] <= 0x3f; {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7e {
		i++
	}
	return i
}

// stringEnd finds the ends of control strings in s, asked in ascending order.
type stringEnd struct {
	s        string
	at, next int // of the terminator found last: where it begins, what follows
}

// after returns what follows the control string whose content begins at i. It
// ends with BEL or ST; a line feed ends one that was never closed. Of one that
// is too long only the introducer goes.
func (e *stringEnd) after(i int) int {
	if e.at < i {
		e.at, e.next = len(e.s), len(e.s)
	scan:
		for j := i; j < len(e.s); j++ {
			switch rest := e.s[j:]; {
			case rest[0] == 0x07:
				e.at, e.next = j, j+1
				break scan
			case strings.HasPrefix(rest, "\x1b\\"), strings.HasPrefix(rest, "\u009c"):
				e.at, e.next = j, j+2
				break scan
			case rest[0] == '\n':
				e.at, e.next = j, j
				break scan
			}
		}
	}
	if e.at-i > maxSequence || e.at == len(e.s) {
		return i
	}
	return e.next
}

// overwrite reduces each line to what was written after its last carriage
// return, as progress bars are drawn.
func overwrite(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		if at := strings.LastIndexByte(line, '\r'); at >= 0 {
			line = line[at+1:]
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// oneLine returns clean text on a single line of at most limit characters.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(clean(s)), " ")
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}

// head returns the beginning of s, at most limit characters and 3×limit bytes,
// and whether something was left out. It ends at a line where one is near.
func head(s string, limit int) (string, bool) {
	end, count := 0, 0
	for end < len(s) {
		_, n := utf8.DecodeRuneInString(s[end:])
		if count == limit || end+n > 3*limit {
			break
		}
		count++
		end += n
	}
	if end == len(s) {
		return s, false
	}
	if at := strings.LastIndexByte(s[:end], '\n'); at > end/2 {
		end = at
	}
	return s[:end], true
}

// tail is head for the end of s.
func tail(s string, limit int) (string, bool) {
	start, count := len(s), 0
	for start > 0 {
		_, n := utf8.DecodeLastRuneInString(s[:start])
		if count == limit || len(s)-start+n > 3*limit {
			break
		}
		count++
		start -= n
	}
	if start == 0 {
		return s, false
	}
	if at := strings.IndexByte(s[start:], '\n'); at >= 0 && at < (len(s)-start)/2 {
		start += at + 1
	}
	return s[start:], true
}

// fenced puts text between two fences that do not occur in it, so that nothing
// a job prints can pass for the end of what it printed. Absurdly long runs of
// backticks are shortened for that.
func fenced(s string) string {
	const most = 64
	longest, run := 2, 0
	var b strings.Builder
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
		} else if run == most {
			continue
		} else {
			run++
			longest = max(longest, run)
		}
		b.WriteByte(s[i])
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + strings.TrimRight(b.String(), "\n") + "\n" + fence
}

// span writes a length of time for people: "0.4 s", "12 s", "3 min 5 s",
// "2 h 3 min", "4 d 2 h".
func span(d time.Duration) string {
	d = max(d, 0)
	two := func(a int64, unit string, b int64, small string) string {
		out := strconv.FormatInt(a, 10) + " " + unit
		if b != 0 {
			out += " " + strconv.FormatInt(b, 10) + " " + small
		}
		return out
	}
	seconds := int64(d / time.Second)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case seconds < 60:
		return strconv.FormatInt(seconds, 10) + " s"
	case seconds < 3600:
		return two(seconds/60, "min", seconds%60, "s")
	case seconds < 86400:
		return two(seconds/3600, "h", seconds%3600/60, "min")
	default:
		return two(seconds/86400, "d", seconds%86400/3600, "h")
	}
}

// number writes a count with thousands separated.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
