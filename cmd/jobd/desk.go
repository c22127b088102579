package main

import (
	"context"
	"encoding/json"
	"errors"
	"unicode/utf8"

	forms "jobd/internal/form"
	"jobd/internal/jobs"
	"jobd/internal/notify"
	"jobd/internal/page"
)

// desk is the supervisor as the page for secrets sees it.
type desk struct{ sup *jobs.Supervisor }

var _ page.Desk = desk{}

// Question implements [page.Desk].
func (d desk) Question(ctx context.Context, job, ask string) (page.Question, bool) {
	j, q, err := d.sup.OpenSecret(ctx, job, ask)
	if err != nil {
		return page.Question{}, false
	}
	_, title, description := forms.OnlyField(q.Schema)
	return page.Question{Job: j.ID, Name: j.Spec.Name, Project: j.Spec.Project, Message: q.Message, Title: title, Description: description,
		Left: q.Left(d.sup.Now())}, true
}

// Answer implements [page.Desk].
func (d desk) Answer(ctx context.Context, job, ask, value string) (string, error) {
	if value == "" || !utf8.ValidString(value) {
		return "A value is needed; to say no, press Decline.", nil
	}
	_, q, err := d.sup.OpenSecret(ctx, job, ask)
	if err != nil {
		return "", err
	}
	name, _, _ := forms.OnlyField(q.Schema)
	content, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return "", err
	}
	taken, fault, err := d.sup.AnswerSecret(ctx, job, jobs.Reply{Question: ask, Content: content})
	if err == nil && !taken && fault == "" {
		err = errors.New("the question is closed")
	}
	return fault, err
}

// Decline implements [page.Desk].
func (d desk) Decline(ctx context.Context, job, ask string) error {
	_, _, err := d.sup.Answer(ctx, job, jobs.Reply{Question: ask, Decline: true, By: "page"})
	return err
}

// tell makes a notification of the supervisor's news.
func tell(n *notify.Notifier) func(jobs.Notice) {
	return func(news jobs.Notice) {
		j := news.Job
		notice := notify.Notice{Event: "finished", Job: j.ID, Name: jobs.OneLine(j.Spec.Name, 100), State: string(j.State()), Project: jobs.OneLine(j.Spec.Project, 500),
			Message: jobs.OneLine(j.Reason, 200), Command: "jobd result " + shortID(j.ID)}
		if q := news.Question; q != nil {
			notice.Event, notice.Message, notice.Command = "question", jobs.OneLine(q.Message, 200), "jobd answer "+shortID(j.ID)
		}
		n.Tell(notice)
	}
}
