package form

import (
	"net/mail"
	"net/url"
	"time"
)

// checkFormat checks a string against one of the formats that elicitation
// allows; JSON Schema itself treats them as notes.
func checkFormat(name, format, s string) error {
	switch format {
	case "email":
		if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
			return invalid("the field %q needs an e-mail address, not %q", name, s)
		}
	case "uri":
		if u, err := url.Parse(s); err != nil || u.Scheme == "" {
			return invalid("the field %q needs a URL with its scheme, not %q", name, s)
		}
	case "date":
		if _, err := time.Parse(time.DateOnly, s); err != nil {
			return invalid("the field %q needs a date like 2026-11-29, not %q", name, s)
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339, s); err != nil {
			return invalid("the field %q needs a time like 2026-11-29T21:00:00Z, not %q", name, s)
		}
	}
	return nil
}
