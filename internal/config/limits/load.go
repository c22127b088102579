package limits

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds the size of a config.yaml; a larger one is no configuration.
const maxFile = 1 << 20

// Load reads the limits from the file at path. A file that is not there gives
// the defaults. What is wrong in it is told as "file:line:column: sentence",
// one line for each fault.
func Load(path string) (Limits, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Limits{}, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Limits{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(data) > maxFile {
		return Limits{}, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return Parse(path, data)
}

// Parse reads the limits from data. name stands for the file in errors.
func Parse(name string, data []byte) (Limits, error) {
	l := Default()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) {
			return Limits{}, fault(name, at.GetToken(), "%s", at.GetMessage())
		}
		return Limits{}, fmt.Errorf("%s: %w", name, err)
	}
	var faults []error
	documents := 0
	for _, doc := range file.Docs {
		body := doc.Body
		if body == nil || body.Type() == ast.NullType || body.Type() == ast.CommentType {
			continue
		}
		if documents++; documents > 1 {
			faults = append(faults, fault(name, body.GetToken(), "a second document; everything belongs into one"))
			break
		}
		entries, ok := mapping(body)
		if !ok {
			return Limits{}, fault(name, body.GetToken(), "this is no list of settings; write them as \"timeout: 24h\", one a line")
		}
		seen := map[string]bool{}
		for _, e := range entries {
			key := e.Key.GetToken()
			if seen[key.Value] {
				faults = append(faults, fault(name, key, "%s is set twice", key.Value))
				continue
			}
			seen[key.Value] = true
			set, ok := settings[key.Value]
			if !ok {
				faults = append(faults, fault(name, key, "unknown setting %q%s", key.Value, suggest(key.Value)))
				continue
			}
			if err := set(&l, e.Value); err != nil {
				faults = append(faults, fault(name, e.Value.GetToken(), "%s: %v", key.Value, err))
			}
		}
	}
	if len(faults) > 0 {
		return Limits{}, errors.Join(faults...)
	}
	return l, nil
}

func fault(name string, at *token.Token, format string, args ...any) error {
	line, column := 1, 1
	if at != nil && at.Position != nil {
		line, column = at.Position.Line, at.Position.Column
	}
	return fmt.Errorf("%s:%d:%d: %s", name, line, column, fmt.Sprintf(format, args...))
}

func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// settings are the keys of the file and how each takes its value.
var settings = map[string]func(*Limits, ast.Node) error{
	"timeout": func(l *Limits, n ast.Node) error {
		return duration(n, &l.Timeout, 0, math.MaxInt64)
	},
	"question_timeout": func(l *Limits, n ast.Node) error {
		return duration(n, &l.QuestionTimeout, time.Second, math.MaxInt64)
	},
	"answer_within": func(l *Limits, n ast.Node) error {
		return duration(n, &l.AnswerWithin, 0, 30*time.Second)
	},
	"retention": func(l *Limits, n ast.Node) error {
		return duration(n, &l.Retention, time.Minute, math.MaxInt64)
	},
	"max_running": func(l *Limits, n ast.Node) error {
		text, err := scalar(n)
		if err != nil {
			return err
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > 10000 {
			return fmt.Errorf("%q is no number from 1 to 10000", text)
		}
		l.MaxRunning = v
		return nil
	},
	"output_limit": func(l *Limits, n ast.Node) error {
		text, err := scalar(n)
		if err != nil {
			return err
		}
		v, err := ParseSize(text)
		if err != nil {
			return err
		}
		if v < 64<<10 {
			return fmt.Errorf("%q is less than 64KiB", text)
		}
		l.OutputLimit = v
		return nil
	},
	"notify": func(l *Limits, n ast.Node) error {
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return errors.New(`it must be a list of arguments, such as ["notify-send", "jobd"]`)
		}
		argv := make([]string, 0, len(list.Values))
		for _, v := range list.Values {
			text, err := scalar(v)
			if err != nil {
				return err
			}
			argv = append(argv, text)
		}
		if len(argv) > 0 && argv[0] == "" {
			return errors.New("the command is empty")
		}
		l.Notify = argv
		return nil
	},
	"unattended": func(l *Limits, n ast.Node) error {
		text, err := scalar(n)
		if err != nil {
			return err
		}
		if text != "cancel" && text != "wait" {
			return fmt.Errorf(`%q is neither "cancel" nor "wait"`, text)
		}
		l.Unattended = text
		return nil
	},
	"run_job": func(l *Limits, n ast.Node) error {
		text, err := scalar(n)
		if err != nil {
			return err
		}
		switch strings.ToLower(text) {
		case "on", "true", "yes":
			l.RunJob = true
		case "off", "false", "no":
			l.RunJob = false
		default:
			return fmt.Errorf(`%q is neither "on" nor "off"`, text)
		}
		return nil
	},
}

// scalar returns the text of a single value, as it is written.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.NullNode:
		return "", errors.New("the value is missing")
	}
	return "", errors.New("it must be a single value")
}

func duration(n ast.Node, into *time.Duration, least, most time.Duration) error {
	text, err := scalar(n)
	if err != nil {
		return err
	}
	d, err := ParseDuration(text)
	if err != nil {
		return err
	}
	if d < least {
		return fmt.Errorf("%q is less than %v", text, least)
	}
	if d > most {
		return fmt.Errorf("%q is more than %v", text, most)
	}
	*into = d
	return nil
}

// ParseDuration reads a span of time that is not negative: what
// [time.ParseDuration] reads, with "d" for 24 hours before it ("30d",
// "1d12h"). A bare 0 needs no unit.
func ParseDuration(text string) (time.Duration, error) {
	bad := func(why string) (time.Duration, error) {
		return 0, fmt.Errorf("%q %s; write a number with a unit, such as 90s, 15m, 24h or 30d", text, why)
	}
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "", text
	}
	var sum float64
	if found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0) {
			return bad("is no span of time")
		}
		sum = n * float64(24*time.Hour)
	}
	if rest != "" || !found {
		if _, err := strconv.ParseFloat(rest, 64); err == nil && rest != "0" {
			return bad("lacks a unit")
		}
		d, err := time.ParseDuration(rest)
		if err != nil || strings.HasPrefix(rest, "+") {
			return bad("is no span of time")
		}
		if d < 0 {
			return bad("is negative")
		}
		if !found {
			return d, nil
		}
		sum += float64(d)
	}
	if sum >= math.MaxInt64 {
		return bad("is too long")
	}
	return time.Duration(sum), nil
}

// units are the suffixes of sizes; those without "i" are powers of ten.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ParseSize reads a number of bytes, such as 65536, 64MiB, 64M (the same) or
// 64MB (64 million).
func ParseSize(text string) (int64, error) {
	digits := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if digits < 0 {
		digits = len(text)
	}
	n, err := strconv.ParseFloat(text[:digits], 64)
	unit, ok := units[strings.ToLower(strings.TrimSpace(text[digits:]))]
	if err != nil || !ok || n*float64(unit) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is no size; write a number of bytes, or one with a unit, such as 64MiB or 1GiB", text)
	}
	return int64(n * float64(unit)), nil
}

// suggest names the setting that key was likely meant to be, else all of them.
func suggest(key string) string {
	names := make([]string, 0, len(settings))
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names)
	best, least := "", 4
	for _, name := range names {
		if d := levenshtein.ComputeDistance(strings.ToLower(strings.ReplaceAll(key, "-", "_")), name); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; there are " + strings.Join(names, ", ")
}
