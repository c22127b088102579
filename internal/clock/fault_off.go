//go:build !fault

package clock

import "jobd/internal/jobs"

// disturbed is for programs that tests build with the tag "fault"; the clocks of
// others are the machine's.
func disturbed(now jobs.Clock) (jobs.Clock, error) { return now, nil }
