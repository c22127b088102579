package jobs

import "slices"

// A Reader is who reads, or ends, a job.
type Reader struct {
	// Sessions are the conversations that the reader's process is in and was in:
	// it goes on following the jobs of those that it left.
	Sessions []string
	// Shell: a person's shell, which owns the jobs of all shells.
	Shell bool
}

// owns reports whether the job is the reader's own: only then its result, once
// read, has reached whom it is for.
func (r Reader) owns(j *Job) bool {
	if j.Spec.Shell {
		return r.Shell
	}
	return j.Spec.Session != "" && slices.Contains(r.Sessions, j.Spec.Session)
}
