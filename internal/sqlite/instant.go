package sqlite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"jobd/internal/jobs"
)

// instantText is an instant as it is stored: a zero one is NULL.
func instantText(t jobs.Instant) any {
	if t.IsZero() {
		return nil
	}
	b := make([]byte, 0, 112)
	b = t.Wall.UTC().AppendFormat(b, time.RFC3339Nano)
	b = strconv.AppendInt(append(b, ' '), int64(t.Run), 10)
	b = strconv.AppendInt(append(b, ' '), int64(t.Boot), 10)
	b = append(append(b, ' '), t.BootID...)
	return string(b)
}

// parseInstant reads back what instantText wrote.
func parseInstant(s string) (jobs.Instant, error) {
	wall, rest, ok := strings.Cut(s, " ")
	run, rest, ok2 := strings.Cut(rest, " ")
	boot, id, ok3 := strings.Cut(rest, " ")
	if !ok || !ok2 || !ok3 {
		return jobs.Instant{}, fmt.Errorf("%q is no instant", s)
	}
	w, err := time.Parse(time.RFC3339Nano, wall)
	if err != nil {
		return jobs.Instant{}, fmt.Errorf("instant %q: %w", s, err)
	}
	r, err := strconv.ParseInt(run, 10, 64)
	if err != nil {
		return jobs.Instant{}, fmt.Errorf("run clock of %q: %w", s, err)
	}
	b, err := strconv.ParseInt(boot, 10, 64)
	if err != nil {
		return jobs.Instant{}, fmt.Errorf("boot clock of %q: %w", s, err)
	}
	return jobs.Instant{Wall: w.UTC(), Run: time.Duration(r), Boot: time.Duration(b), BootID: id}, nil
}

// An instantColumn scans an instant; NULL is the zero one.
type instantColumn struct{ to *jobs.Instant }

// Scan implements sql.Scanner.
func (c instantColumn) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = jobs.Instant{}
		return nil
	case string:
		t, err := parseInstant(v)
		*c.to = t
		return err
	}
	return fmt.Errorf("an instant is stored as %T", v)
}
