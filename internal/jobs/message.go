package jobs

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// messageLimit is the length of a status message in characters.
const messageLimit = 200

// The pace at which a client is asked to poll.
const (
	pollFirst  = 500 * time.Millisecond
	pollLater  = 2 * time.Second
	pollLong   = 5 * time.Second
	firstFor   = 10 * time.Second
	laterUntil = 10 * time.Minute
)

// Message returns the job's status message: one line, at most 200 characters,
// no control characters and no elapsed time. lastLine is the end of its output,
// place its place in the queue (0 = not queued).
func (j *Job) Message(lastLine string, place int) string {
	m := j.message(lastLine, place)
	if m = OneLine(m, messageLimit); m == "" {
		return string(j.state)
	}
	return m
}

func (j *Job) message(lastLine string, place int) string {
	switch {
	case j.state.Final():
		return j.Reason
	case j.state == Stopping && j.Stop != nil:
		return "being stopped: " + j.Stop.Reason
	case j.state == Waiting:
		open := j.Open()
		q := open[0]
		more := ""
		if len(open) > 1 {
			more = fmt.Sprintf(" (and %d more)", len(open)-1)
		}
		where := ""
		switch hidden := j.hidden(); {
		case hidden == len(open):
			where = "; answer it in a shell: jobd answer " + clip12(j.ID)
		case hidden > 0:
			where = fmt.Sprintf("; %d of them only in a shell: jobd answer %s", hidden, clip12(j.ID))
		}
		return "waits for an answer: " + OneLine(q.Message, 100) + more + where
	case j.Progress != nil:
		return j.Progress.String()
	case strings.TrimSpace(lastLine) != "":
		return lastLine
	case j.state == Queued && place > 1:
		return fmt.Sprintf("queued, number %d in line", place)
	case j.state == Queued:
		return "queued, next in line"
	case j.state == Starting:
		return "starting"
	}
	return "running"
}

// hidden counts the open questions past those that Claude Code shows for one
// task.
func (j *Job) hidden() int {
	n := 0
	for _, q := range j.Open() {
		if q.Hidden() {
			n++
		}
	}
	return n
}

// maxKeys is how many keys Claude Code takes for one task.
const maxKeys = 16

// Hidden reports whether the question comes too late in its job to be shown by
// Claude Code; it is answered in a shell.
func (q *Question) Hidden() bool { return q.Number > maxKeys }

// String returns the progress as a person reads it.
func (p *Progress) String() string {
	count := ""
	switch {
	case p.Total > 0:
		count = fmt.Sprintf("%s/%s", number(p.Done), number(p.Total))
	case p.Done != 0:
		count = number(p.Done)
	}
	switch {
	case count == "":
		return p.Text
	case p.Text == "":
		return count
	}
	return count + " " + p.Text
}

func number(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}

// clip12 shortens an id for people; a prefix of it finds the job.
func clip12(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// PollInterval returns how long a client should leave between two requests for
// a job that was created at the instant given.
func PollInterval(created, now Instant) time.Duration {
	switch age := now.Since(created); {
	case age < firstFor:
		return pollFirst
	case age < laterUntil:
		return pollLater
	}
	return pollLong
}

// OneLine makes one line of at most limit characters of a text that a job
// wrote: whatever is no printable character becomes a space, runs of spaces
// one, and escape sequences go whole.
func OneLine(s string, limit int) string {
	var b strings.Builder
	n, space := 0, false
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escape(s[i:])
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		if r == utf8.RuneError && size == 1 {
			r = '\uFFFD'
		}
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			// Format characters (bidirectional overrides, zero width) change how
			// the rest is shown: they go without a trace.
			space = space || unicode.IsSpace(r) || unicode.IsControl(r)
			continue
		}
		if space && n > 0 {
			b.WriteByte(' ')
			n++
		}
		space = false
		if n >= limit-1 && i < len(s) {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// escape returns the length of the terminal control sequence at the start of
// s, by ECMA-48: CSI … final byte, OSC … BEL or ST, or ESC and one byte.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
		return len(s)
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
			if s[i] == '\n' {
				return i
			}
		}
		return len(s)
	}
	if s[1] >= 0x20 && s[1] <= 0x7e {
		return 2
	}
	return 1
}
