package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxReruns is how many times in a row a job is run again: it may itself be
// what brings the machine down.
const maxReruns = 3

// rerunKey begins the request keys of jobs that are run again; the number of
// the rerun and the id of the lost job follow.
const rerunKey = "rerun/"

// rerun runs a job again that a reboot interrupted, if its spec asks for it,
// and returns why with what came of that. The lost job must not be final yet:
// a daemon that is killed in between finds it again, and the request key, made
// of its id, lets the new job be made once only.
func (s *Supervisor) rerun(lost Job, why string) string {
	if s.again == nil || !lost.Spec.RerunInterrupted || lost.Stop != nil {
		return why
	}
	// Until then a bundle without a row is taken for an unfinished submission.
	select {
	case <-s.recovered:
	case <-s.life.Done():
		return why
	}
	n := 0
	if rest, ok := strings.CutPrefix(lost.Keys.Request, rerunKey); ok {
		if _, err := fmt.Sscanf(rest, "%d/", &n); err != nil {
			n = maxReruns // no key of ours
		}
	}
	if n >= maxReruns {
		return fmt.Sprintf("%s; it was run again %d times in a row and is not run once more", why, n)
	}
	for {
		sub, err := s.again(s.life, lost)
		var j Job
		if err == nil {
			sub.Request, sub.Key, sub.reruns = fmt.Sprintf("%s%d/%s", rerunKey, n+1, lost.ID), "", lost.ID
			j, _, err = s.Submit(s.life, sub)
		}
		switch {
		case err == nil:
			s.log.Info("running a job again", "job", lost.ID, "as", j.ID)
			return why + "; it was run again as job " + j.ID
		case !errors.Is(err, ErrUnavailable) || s.life.Err() != nil:
			s.log.Error("running a job again", "job", lost.ID, "err", err)
			return fmt.Sprintf("%s; it could not be run again: %v", why, err)
		}
		select {
		case <-time.After(retryEvery):
		case <-s.life.Done():
		}
	}
}
