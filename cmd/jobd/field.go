package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// fieldHelp documents the syntax of --field to users.
const fieldHelp = `A field is NAME:TYPE, with attributes after commas:

  --field confirm:boolean
  --field 'env:choice,enum=staging|production,default=staging'
  --field 'env:choice,enum=eu=Europe|us=United States,title=Where to?'
  --field 'checks:choices,enum=unit|e2e|lint,min=1'
  --field 'count:integer,title=How many?,min=1,max=10,default=3'
  --field 'mail:string,format=email,description=Where the report goes'
  --field 'note?:string,max=200'           may be left empty
  --field 'why:string,title="Why, exactly?"'

Types: string, integer, number, boolean, choice (one of enum), choices (any of
enum). A name followed by ? need not be answered. Attributes: title,
description, default, enum (values parted by |, each with a title after = if it
needs one), min and max (of a number, of a text's length, of the number of
choices), format (email, uri, date, date-time), pattern. A value that holds a
comma is put in double quotes; \" and \\ stand for " and \ in them.`

var fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// parseFieldFlag reads the value of a --field flag.
func parseFieldFlag(text string) (field, error) {
	if !utf8.ValidString(text) {
		return field{}, fmt.Errorf("%q is not UTF-8 text", text)
	}
	parts, err := splitAttributes(text)
	if err != nil {
		return field{}, fmt.Errorf("%q: %w", text, err)
	}
	name, kind, ok := strings.Cut(parts[0], ":")
	f := field{name: strings.TrimSpace(name), required: true}
	if before, optional := strings.CutSuffix(f.name, "?"); optional {
		f.name, f.required = before, false
	}
	if !ok {
		return field{}, fmt.Errorf("%q has no type; write it as NAME:TYPE, for example %s:boolean", text, strings.TrimSpace(name))
	}
	if !fieldName.MatchString(f.name) {
		return field{}, fmt.Errorf("%q is no name for a field; it starts with a letter, and letters, digits, _, . and - may follow", f.name)
	}
	fault := func(format string, args ...any) error {
		return fmt.Errorf("the field %q: %w", f.name, fmt.Errorf(format, args...))
	}
	switch kind = strings.TrimSpace(kind); kind {
	case "bool":
		f.kind = kindBoolean
	case "int":
		f.kind = kindInteger
	case "text":
		f.kind = kindString
	case "enum":
		f.kind = kindChoice
	case string(kindString), string(kindInteger), string(kindNumber), string(kindBoolean), string(kindChoice), string(kindChoices):
		f.kind = fieldKind(kind)
	default:
		return field{}, fault("there is no type %q; use string, integer, number, boolean, choice or choices", kind)
	}

	var def *string
	seen := make(map[string]bool)
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return field{}, fault("%q is no attribute; write NAME=VALUE, and put a value that holds a comma in double quotes", part)
		}
		if seen[name] {
			return field{}, fault("the attribute %s is there twice", name)
		}
		seen[name] = true
		if err := f.setAttribute(name, value, &def); err != nil {
			return field{}, fault("%w", err)
		}
	}
	switch chosen := f.kind == kindChoice || f.kind == kindChoices; {
	case f.kind == kindString && len(f.choices) > 0:
		f.kind = kindChoice
	case chosen && len(f.choices) == 0:
		return field{}, fault("a choice needs its values: enum=one|two")
	case !chosen && len(f.choices) > 0:
		return field{}, fault("a %s has no enum; make it a choice", f.kind)
	}
	if err := f.checkBounds(); err != nil {
		return field{}, fault("%w", err)
	}
	if def != nil {
		value, err := f.convert(*def)
		if err != nil {
			return field{}, fault("its default: %w", err)
		}
		f.def = value
	}
	return f, nil
}

var attributes = []string{"title", "description", "default", "enum", "min", "max", "format", "pattern"}

func (f *field) setAttribute(name, value string, def **string) error {
	switch name {
	case "title":
		f.title = value
	case "description":
		f.description = value
	case "default":
		*def = &value
	case "format":
		f.format = value
	case "pattern":
		f.pattern = value
	case "enum":
		for part := range strings.SplitSeq(value, "|") {
			v, title, _ := strings.Cut(part, "=")
			f.choices = append(f.choices, choice{value: v, title: title})
		}
	case "min", "max":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || n != n {
			return fmt.Errorf("its %s is %q, which is no number", name, value)
		}
		if name == "min" {
			f.min = &n
		} else {
			f.max = &n
		}
	default:
		near := slices.MinFunc(attributes, func(a, b string) int {
			return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
		})
		if levenshtein.ComputeDistance(name, near) <= 2 {
			return fmt.Errorf("there is no attribute %q; did you mean %s?", name, near)
		}
		return fmt.Errorf("there is no attribute %q; the attributes are %s", name, strings.Join(attributes, ", "))
	}
	return nil
}

// checkBounds refuses bounds that nothing can keep, and attributes that mean
// nothing for the kind of field. What is left is for package form to check.
func (f *field) checkBounds() error {
	counts := f.kind == kindString || f.kind == kindChoices
	switch {
	case (f.format != "" || f.pattern != "") && f.kind != kindString:
		return fmt.Errorf("only text has a format or a pattern, and this is of type %s", f.kind)
	case (f.min != nil || f.max != nil) && (f.kind == kindBoolean || f.kind == kindChoice):
		return fmt.Errorf("a %s has no min or max", f.kind)
	case f.min != nil && f.max != nil && *f.min > *f.max:
		return fmt.Errorf("its min %s is greater than its max %s", number(*f.min), number(*f.max))
	}
	for _, bound := range []*float64{f.min, f.max} {
		if counts && bound != nil && (*bound < 0 || *bound > 1e6 || *bound != math.Trunc(*bound)) {
			return fmt.Errorf("its bound %s counts something, so it must be a whole number from 0 to 1000000", number(*bound))
		}
	}
	seen := make(map[string]bool)
	for _, c := range f.choices {
		if c.value == "" || seen[c.value] {
			return fmt.Errorf("the choice %q is empty or there twice", c.value)
		}
		seen[c.value] = true
	}
	return nil
}

// splitAttributes splits text at the commas that are not in double quotes, and
// takes the quotes away.
func splitAttributes(text string) ([]string, error) {
	var parts []string
	var part strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			part.WriteByte(text[i])
		case c == ',' && !quoted:
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	if quoted {
		return nil, errors.New("a double quote is not closed")
	}
	return append(parts, part.String()), nil
}
