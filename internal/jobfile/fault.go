package jobfile

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// A Fault is one thing that is wrong with a job file. Its text may hold parts
// of the file; control characters in them are replaced.
type Fault struct {
	// File is the path of the file, or of a directory of job files.
	File string
	// Line and Column count from 1, the column in characters. They are 0 where
	// the fault is not about a place in the file: it cannot be read, say.
	Line, Column int
	// Job is the job that cannot be used because of it, "" = none or all.
	Job string
	// Message says what is wrong, Hint what to do. Neither ends with a full stop.
	Message, Hint string
	// Source is the faulty line.
	Source string
}

// Error implements error: "file:line:column: message; hint".
func (f Fault) Error() string {
	s := f.place() + ": " + f.Message
	if f.Hint != "" {
		s += "; " + f.Hint
	}
	return s
}

// Sentence is the fault on one line, the faulty line included.
func (f Fault) Sentence() string {
	if line := strings.TrimSpace(visible(f.Source)); line != "" {
		return f.Error() + " (the line is: " + clip(line, 120) + ")"
	}
	return f.Error()
}

// Text is the fault for a terminal: the sentence, and below it the faulty line
// with a mark at the column. It ends with a line feed.
func (f Fault) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.place(), f.Message)
	if f.Line > 0 {
		line, mark := excerpt(visible(f.Source), f.Column)
		fmt.Fprintf(&b, "%6d | %s\n       | %s^\n", f.Line, line, strings.Repeat(" ", mark))
	}
	if f.Hint != "" {
		fmt.Fprintf(&b, "         %s\n", f.Hint)
	}
	return b.String()
}

func (f Fault) place() string {
	if f.Line == 0 {
		return visible(f.File)
	}
	return fmt.Sprintf("%s:%d:%d", visible(f.File), f.Line, f.Column)
}

// excerpt returns at most 100 characters of a line around a column, and where
// the column is in them.
func excerpt(line string, column int) (part string, mark int) {
	const width = 100
	runes := []rune(line)
	mark = max(0, min(column-1, len(runes)))
	from := 0
	if mark > width-20 {
		from = mark - width/2
	}
	to := min(len(runes), from+width)
	return string(runes[from:to]), mark - from
}

// visible replaces what could move a terminal's cursor or hide text.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError, !unicode.IsGraphic(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// clip cuts s to at most n bytes, on a character's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// near returns a hint that names the word that was likely meant, else what
// there is.
func near(word string, words []string) string {
	plain := strings.ToLower(strings.ReplaceAll(word, "-", "_"))
	best, least := "", 3
	if len(word) < 4 {
		least = 2
	}
	for _, w := range words {
		if d := levenshtein.ComputeDistance(plain, strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	for _, w := range words {
		if len(plain) > 2 && (strings.HasPrefix(w, plain) || strings.HasPrefix(plain, w)) {
			return fmt.Sprintf("did you mean %q?", w)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "there are " + strings.Join(words, ", ")
}
