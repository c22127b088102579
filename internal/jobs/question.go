package jobs

import (
	"encoding/json"
	"time"
)

// A QuestionState is where a question is in its life.
type QuestionState string

// The states of a question; all but the first are final.
const (
	QuestionOpen       QuestionState = "open"
	QuestionAnswered   QuestionState = "answered"   // accepted, with content
	QuestionDeclined   QuestionState = "declined"   // the person said no
	QuestionUnanswered QuestionState = "unanswered" // the deadline passed
	QuestionWithdrawn  QuestionState = "withdrawn"  // the asker or the job is gone
)

// A Question is one exchange with the person, asked by a running job.
type Question struct {
	// ID is made by the asker, unique within the job: it may ask again with it
	// and gets the same question.
	ID string
	// Key names the question to clients: q1, q2, …, or what the asker calls it.
	// It is new each time the question reopens after a bad answer, for a client
	// never shows a key twice.
	Key string
	// Number is the Key's number within the job, from 1; every key counts.
	Number int
	// Message is what the person is asked.
	Message string
	// Schema is a JSON Schema in the subset that MCP elicitation allows.
	Schema json.RawMessage
	// Secret: asked by a page on loopback; the answer is never stored.
	Secret bool
	// Fault says why the last answer was not taken; "" = none.
	Fault string
	// Consented: the person accepted to open a secret's page.
	Consented bool

	Asked     Instant
	Timeout   time.Duration
	OnTimeout OnTimeout

	State  QuestionState
	Closed Instant
	// Answer is the accepted content, nil for a secret.
	Answer json.RawMessage
	// By says who answered: "form", "shell", "tool", "page", "default".
	By string
}

// Left returns how long the question may stay open at the instant now; 0 or
// less means that its deadline has passed.
func (q *Question) Left(now Instant) time.Duration { return q.Timeout - now.Since(q.Asked) }

// Fatal returns the question that ended the job because nobody answered it, nil
// if none did.
func (j *Job) Fatal() *Question {
	if j.Stop == nil || j.Stop.Cause != CauseUnanswered {
		return nil
	}
	for i := range j.Questions {
		q := &j.Questions[i]
		if q.State == QuestionUnanswered && q.Closed.Boot == j.Stop.At.Boot && q.Closed.BootID == j.Stop.At.BootID {
			return q
		}
	}
	return nil
}

// withdraw closes every open question.
func (j *Job) withdraw(now Instant) {
	// Questions are shared with copies of the job: write to a new slice.
	questions := make([]Question, len(j.Questions))
	copy(questions, j.Questions)
	for i := range questions {
		if questions[i].State == QuestionOpen {
			questions[i].State, questions[i].Closed = QuestionWithdrawn, now
		}
	}
	j.Questions = questions
}

// A ResultKind is the form of the result that a job set for itself.
type ResultKind string

// The kinds of result.
const (
	ResultText  ResultKind = "text"  // UTF-8 text
	ResultJSON  ResultKind = "json"  // one JSON value
	ResultMCP   ResultKind = "mcp"   // a whole CallToolResult
	ResultError ResultKind = "error" // a protocol error: {"code":…, "message":…}
)
