package main

import (
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A table lays out rows in columns. The last column is as wide as the screen
// leaves room for; what does not fit is cut, and the cut shown by "…".
type table struct {
	header []string
	rows   [][]cell
	// most bounds the width of a column, which is narrower still where the
	// screen is; 0 = as wide as its widest cell, always.
	most []int
	// least is how wide a column is at least, so that a table that is shown
	// again and again stands still; nil = no wider than its cells.
	least []int
}

// The widths that columns keep as long as they can: the last one its room to
// say something, the bounded ones a few characters.
const (
	roomForLast = 24
	leastWidth  = 6
)

// A cell is one line of text, and how it is coloured.
type cell struct {
	text   string
	colour colour
}

// A colour is the parameter of an SGR sequence; "" is none.
type colour string

// The colours in use. They are of the 16 that every theme sets.
const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "1;33"
	blue   colour = "34"
)

// paint returns text in a colour, on a screen that shows them.
func (s screen) paint(c colour, text string) string {
	if !s.colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// gap separates columns.
const gap = 2

// write renders the table. No line is wider than the screen.
func (t *table) write(w io.Writer, s screen) error {
	last := len(t.header) - 1
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = columns(h)
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(row[i].text))
		}
		if t.least != nil {
			widths[i] = max(widths[i], t.least[i])
		}
		if t.most[i] > 0 {
			widths[i] = min(widths[i], max(t.most[i], columns(h)))
		}
	}
	if s.width > 0 {
		t.squeeze(widths, s.width)
	}

	var b strings.Builder
	line := func(cells []cell) {
		for i, c := range cells {
			text := fit(c.text, widths[i])
			b.WriteString(s.paint(c.colour, text))
			if i < last {
				b.WriteString(strings.Repeat(" ", widths[i]-columns(text)+gap))
			}
		}
		b.WriteByte('\n')
	}
	header := make([]cell, len(t.header))
	for i, h := range t.header {
		header[i] = cell{text: h, colour: bold}
	}
	line(header)
	for _, row := range t.rows {
		line(row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// squeeze makes the widths fit a screen: it narrows the bounded columns, the
// widest first, until the last one has room, and then the last one.
func (t *table) squeeze(widths []int, screen int) {
	last := len(widths) - 1
	left := screen
	for _, w := range widths[:last] {
		left -= w + gap
	}
	for want := min(widths[last], roomForLast); left < want; left++ {
		widest := -1
		for i := range last {
			if t.most[i] > 0 && widths[i] > leastWidth && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	widths[last] = min(widths[last], max(left, 1))
}

// fit cuts text to n columns.
func fit(text string, n int) string {
	if columns(text) <= n {
		return text
	}
	used := 0
	for i, r := range text {
		w := runeColumns(r)
		if used+w > n-1 {
			return text[:i] + "…"
		}
		used += w
	}
	return text
}

// columns returns how many columns of a terminal text takes.
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

// runeColumns follows Unicode Standard Annex #11: wide characters take two
// columns, combining ones none.
func runeColumns(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
