package frontend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

// maxMessage bounds the text of a question, in characters.
const maxMessage = 2_000

// open returns the questions of a job that still need the person: those whose
// page the person agreed to open work on without being shown again.
func open(job ipc.Job) []ipc.Question {
	if job.State != stateWaiting {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(job.Questions), func(q ipc.Question) bool { return q.Consented })
}

// askable returns a job's open questions as this client is asked them. It is nil
// if there is one whose mode the client lacks: all are answered elsewhere then.
// Those past the number of keys that Claude Code takes are left out.
func askable(job ipc.Job, c *mcptasks.Client) mcptasks.InputRequests {
	requests := mcptasks.InputRequests{}
	for _, q := range open(job) {
		if q.Hidden {
			continue
		}
		r := inputRequest(job, q)
		if !c.Allows(r) {
			return nil
		}
		requests[q.Key] = r
	}
	if len(requests) == 0 {
		return nil
	}
	return requests
}

// inputRequest is a question as MCP elicitation asks it.
func inputRequest(job ipc.Job, q ipc.Question) mcptasks.InputRequest {
	message, _ := head(clean(q.Message), maxMessage)
	if q.Fault != "" {
		message = "The last answer was not taken: " + oneLine(q.Fault, 500) + "\n" + message
	}
	if q.Mode == ipc.ModeURL {
		return mcptasks.URL(message, q.URL, job.ID+"-"+q.Key)
	}
	return mcptasks.Form(message, q.Schema)
}

// give hands one answer to the daemon. A key that is not open, or no longer, is
// no error. noAnswer reports that the person closed the question without one.
func (f *Frontend) give(ctx context.Context, job, key string, response mcptasks.InputResponse) (noAnswer bool, err error) {
	e, err := response.Elicitation()
	if err != nil {
		return false, nil // not an answer; the question stays open
	}
	switch e.Action {
	case mcptasks.Accept, mcptasks.Decline:
		_, err = f.daemon.Answer(ctx, ipc.AnswerRequest{Job: job, Question: key, Action: string(e.Action), Content: e.Content, By: "form"})
		if err != nil && !passing(err) && code(err) != ipc.CodeInternal {
			err = nil
		}
		return false, err
	case mcptasks.Cancel:
		return true, nil
	}
	return false, nil
}

// noAnswer is what follows when a question was closed without an answer. The
// question stays open for an answer from elsewhere, unless nobody can see it.
func (f *Frontend) noAnswer(ctx context.Context, job string) error {
	if !f.caller.Headless {
		return nil
	}
	_, err := f.daemon.Cancel(ctx, ipc.CancelRequest{ID: job, Headless: true, Unanswered: true,
		Reason: "it asked a question in a session without a screen, where nobody can answer"})
	return err
}

// whereToAnswer says what a job waits for and how the person answers it.
func (f *Frontend) whereToAnswer(job ipc.Job, c *mcptasks.Client) string {
	var b strings.Builder
	asks := open(job)
	if len(asks) == 0 {
		return "It waits for a value to be entered on the page that the person agreed to open."
	}
	for _, q := range asks {
		fmt.Fprintf(&b, "It asks the person: %s (%s left).\n", quoted(q.Message, 500), span(time.Duration(q.LeftMS)*time.Millisecond))
	}
	fmt.Fprintf(&b, "The person answers in a shell: jobd answer %s", short(job.ID))
	if f.modelMayAnswer(job, c) {
		fmt.Fprintf(&b, "\nOr, with the answer that the person gave you: answer_job {\"job_id\":%q,\"content\":{…}}", short(job.ID))
	}
	b.WriteString("\nDo not answer for the person; tell them what is asked.")
	return b.String()
}

// modelMayAnswer reports whether answer_job is of use: the job lets anyone
// answer, or the person has no form to answer in.
func (f *Frontend) modelMayAnswer(job ipc.Job, c *mcptasks.Client) bool {
	return job.AnswerBy == answerByAnyone || !f.showsForms(c)
}

// showsForms reports whether the person is to be asked in the client, or would
// be if there were a screen.
func (f *Frontend) showsForms(c *mcptasks.Client) bool { return c.Form || f.caller.Headless }

const answerByAnyone = "anyone"
