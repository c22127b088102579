package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// shortSpan puts a span of time in a few characters: "3s", "12m", "5h", "40d".
func shortSpan(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// longSpan puts a span of time in its two largest units: "1h 5m", "2m 3s",
// "350ms".
func longSpan(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd %dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// moment puts a time as RFC 3339 in the zone of now, and how long ago it was.
func moment(t, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.In(now.Location()).Format(time.RFC3339), shortSpan(now.Sub(t)))
}

// size puts a number of bytes in words.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return count(n, "byte")
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// count puts a number and a noun, in the plural where it needs one.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// shortIDs returns for each id its shortest prefix that is unique among them,
// of at least 8 characters.
func shortIDs(ids []string) map[string]string {
	short := make(map[string]string, len(ids))
	for n := 8; len(short) < len(ids); n++ {
		seen := make(map[string]int)
		for _, id := range ids {
			seen[id[:min(n, len(id))]]++
		}
		done := true
		for _, id := range ids {
			if _, ok := short[id]; ok {
				continue
			}
			prefix := id[:min(n, len(id))]
			if seen[prefix] == 1 || n >= len(id) {
				short[id] = prefix
			} else {
				done = false
			}
		}
		if done {
			break
		}
	}
	return short
}

// shortID returns the prefix by which messages name a single job.
func shortID(id string) string { return id[:min(8, len(id))] }

// signalNumber returns the number of a signal by name on this machine, 0 if it
// is not known.
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "signal "))
	return n
}

// A span is a flag's duration: what time.ParseDuration takes, and days and
// weeks.
type span struct {
	time.Duration
	set bool
}

// String implements pflag.Value.
func (s *span) String() string {
	if !s.set {
		return ""
	}
	return s.Duration.String()
}

// Type implements pflag.Value: it is what the help shows for the value.
func (s *span) Type() string { return "duration" }

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	if err != nil {
		return err
	}
	s.Duration, s.set = d, true
	return nil
}

// milliseconds returns the span for the wire, nil if it was not given.
func (s *span) milliseconds() *int64 {
	if !s.set {
		return nil
	}
	ms := s.Duration.Milliseconds()
	if ms == 0 && s.Duration > 0 {
		ms = 1
	}
	return &ms
}

var errSpan = errors.New("give a number and a unit, such as 90s, 30m, 24h or 7d; 0 means none")

// parseSpan reads a duration that is not negative.
func parseSpan(text string) (time.Duration, error) {
	unit := time.Duration(0)
	switch {
	case strings.HasSuffix(text, "d"):
		unit = 24 * time.Hour
	case strings.HasSuffix(text, "w"):
		unit = 7 * 24 * time.Hour
	}
	if unit != 0 {
		n, err := strconv.ParseFloat(text[:len(text)-1], 64)
		if err != nil || !(n >= 0 && n < 36500) {
			return 0, errSpan
		}
		return time.Duration(n * float64(unit)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errSpan
	}
	return d, nil
}

// millis is a duration of the wire.
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
