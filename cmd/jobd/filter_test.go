package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFilterMakesJobTextSafe(t *testing.T) {
	for _, tt := range []struct {
		name, in, plain, coloured string
	}{
		{"plain text", "héllo\tworld\n", "héllo\tworld\n", "héllo\tworld\n"},
		{"wide characters and emoji joined", "日本 👩‍💻", "日本 👩‍💻", "日本 👩‍💻"},
		{"colours", "\x1b[1;31mred\x1b[0m", "red", "\x1b[1;31mred\x1b[0m\x1b[0m"},
		{"palette and true colours", "\x1b[38;5;8ma\x1b[48;2;1;2;3mb\x1b[38:5:8mc", "abc", "\x1b[38;5;8ma\x1b[48;2;1;2;3mb\x1b[38:5:8mc\x1b[0m"},
		{"concealed text is shown", "\x1b[8mhidden", "hidden", "hidden"},
		{"concealment among colours", "\x1b[31;8mhidden", "hidden", "hidden"},
		{"cursor movement", "abc\x1b[2Jdef\x1b[10;10Hg", "abcdefg", "abcdefg"},
		{"window title", "\x1b]0;title\x07x", "^[]0;title^Gx", "^[]0;title^Gx"},
		{"device report", "\x1b[6n\x1bZ", "^[Z", "^[Z"},
		{"carriage return and newline", "a\r\nb\r\r\nc", "a\nb\nc", "a\nb\nc"},
		{"progress bar", "10%\r20%\rdone\n", "10%\n20%\ndone\n", "10%\n20%\ndone\n"},
		{"trailing carriage return", "a\r", "a\n", "a\n"},
		{"backspace, bell, NUL, DEL", "a\b\a\x00\x7f", "a^H^G^@^?", "a^H^G^@^?"},
		{"C1 as a character", "a\u009b31mb", "a<U+009B>31mb", "a<U+009B>31mb"},
		{"C1 as a byte", "a\x9b31mb", "a\ufffd31mb", "a\ufffd31mb"},
		{"direction override", "x\u202egnp.exe", "x<U+202E>gnp.exe", "x<U+202E>gnp.exe"},
		{"isolates and marks", "\u2066a\u2069\u200f", "<U+2066>a<U+2069><U+200F>", "<U+2066>a<U+2069><U+200F>"},
		{"hidden tags", "a\U000e0041", "a<U+E0041>", "a<U+E0041>"},
		{"zero width space", "a\u200bb\ufeff", "a<U+200B>b<U+FEFF>", "a<U+200B>b<U+FEFF>"},
		{"broken UTF-8", "a\xff\xc3(", "a\ufffd\ufffd(", "a\ufffd\ufffd("},
		{"cut UTF-8", "a\xe2\x82", "a\ufffd\ufffd", "a\ufffd\ufffd"},
		{"endless sequence", "\x1b[" + strings.Repeat("1;", 100) + "m", "^[[" + strings.Repeat("1;", 100) + "m", "^[[" + strings.Repeat("1;", 100) + "m"},
		{"cut sequence", "a\x1b[3", "a^[[3", "a^[[3"},
		{"lone escape", "a\x1b", "a^[", "a^["},
		{"broken sequence", "\x1b[3\x01m", "^[[3^Am", "^[[3^Am"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plain, coloured := filter{}, filter{colour: true}
			if got := string(plain.filter(nil, []byte(tt.in), true)); got != tt.plain {
				t.Errorf("without colours: got %q, want %q", got, tt.plain)
			}
			if got := string(coloured.filter(nil, []byte(tt.in), true)); got != tt.coloured {
				t.Errorf("with colours: got %q, want %q", got, tt.coloured)
			}
		})
	}
}

func TestSafeLineIsOneLine(t *testing.T) {
	if got, want := safeLine("a\nb\tc\x1b[31md\re"), "a b cd e"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSafeWriterPassesBytesWhereNoTerminalShowsThem(t *testing.T) {
	hostile := "a\x1b[31m\x00\xff\r"
	for _, tt := range []struct {
		name   string
		screen screen
		raw    bool
		want   string
	}{
		{"pipe", screen{}, false, hostile},
		{"terminal, raw", screen{terminal: true}, true, hostile},
		{"terminal", screen{terminal: true}, false, "a^@\ufffd\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			w := newSafeWriter(&b, tt.screen, tt.raw)
			for i := range len(hostile) {
				if _, err := w.Write([]byte{hostile[i]}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if b.String() != tt.want {
				t.Errorf("got %q, want %q", b.String(), tt.want)
			}
		})
	}
}

var sgr = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

func FuzzFilterNeverLetsAControlThrough(f *testing.F) {
	for _, seed := range []string{"", "plain\n", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\x1b\x1b[[m", "\r\r\n", "\u202e\u009b", "\xe2\x82", "\x1b[?25l", "\x1b[38;5m"} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		for _, colour := range []bool{false, true} {
			whole := filter{colour: colour}
			out := whole.filter(nil, in, true)

			rest := string(out)
			if colour {
				rest = sgr.ReplaceAllString(rest, "")
			}
			if !utf8.ValidString(rest) {
				t.Fatalf("%q gives %q, which is not UTF-8", in, out)
			}
			for _, r := range rest {
				if (r < 0x20 && r != '\n' && r != '\t') || (r >= 0x7f && r <= 0x9f) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) {
					t.Fatalf("%q gives %q, which holds %U", in, out, r)
				}
			}

			if len(in) > 0 {
				at := ((cut % len(in)) + len(in)) % len(in)
				parts := filter{colour: colour}
				pieces := parts.filter(nil, in[:at], false)
				pieces = parts.filter(pieces, in[at:], true)
				if !bytes.Equal(out, pieces) {
					t.Fatalf("%q in one piece gives %q, cut at %d %q", in, out, at, pieces)
				}
			}
		}
	})
}
