package main

import (
	"context"
	"fmt"
	"time"

	"jobd/internal/ipc"
	"jobd/internal/jobs"
)

// Ask implements [ipc.Handler].
func (a *api) Ask(ctx context.Context, r ipc.AskRequest) (ipc.Answer, error) {
	switch jobs.OnTimeout(r.OnTimeout) {
	case "", jobs.OnTimeoutFail, jobs.OnTimeoutDefault, jobs.OnTimeoutContinue:
	default:
		return ipc.Answer{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("on_timeout cannot be %q", r.OnTimeout), Hint: "use fail, default or continue"}
	}
	if r.TimeoutMS < 0 || r.TimeoutMS > maxTimeout.Milliseconds() {
		return ipc.Answer{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("a question cannot have a deadline of %d ms", r.TimeoutMS)}
	}
	_, err := a.sup.Ask(ctx, r.Job, jobs.Ask{ID: r.ID, Key: r.Key, Message: r.Message, Schema: r.Schema, Secret: r.Secret,
		Timeout: time.Duration(r.TimeoutMS) * time.Millisecond, OnTimeout: jobs.OnTimeout(r.OnTimeout)})
	if err != nil {
		return ipc.Answer{}, wireError(err)
	}
	// Also where the question is closed: its asker may have to wait for the end
	// of the job.
	return a.await(ctx, r.Job, r.ID, r.WaitMS)
}

// Await implements [ipc.Handler].
func (a *api) Await(ctx context.Context, r ipc.AwaitRequest) (ipc.Answer, error) {
	if r.Withdraw {
		if err := a.sup.Withdraw(ctx, r.Job, r.ID); err != nil {
			return ipc.Answer{}, wireError(err)
		}
	}
	if r.Received {
		if err := a.sup.Received(ctx, r.Job, r.ID); err != nil {
			return ipc.Answer{}, wireError(err)
		}
	}
	return a.await(ctx, r.Job, r.ID, r.WaitMS)
}

// await waits for a question's answer, no longer than for its longest deadline.
func (a *api) await(ctx context.Context, job, id string, ms int64) (ipc.Answer, error) {
	wait := time.Duration(min(max(ms, 0), maxTimeout.Milliseconds())) * time.Millisecond
	o, err := a.sup.Await(ctx, job, id, wait)
	if err != nil {
		return ipc.Answer{}, wireError(err)
	}
	return ipc.Answer{State: string(o.State), Content: o.Content, By: o.By}, nil
}

// Answer implements [ipc.Handler].
func (a *api) Answer(ctx context.Context, r ipc.AnswerRequest) (ipc.AnswerReply, error) {
	j, err := a.find(ctx, r.Job, false)
	if err != nil {
		return ipc.AnswerReply{}, wireError(err)
	}
	reply := jobs.Reply{Question: r.Question, Content: r.Content, By: r.By, Model: r.Model}
	switch r.Action {
	case "accept":
	case "decline":
		reply.Decline = true
	case "cancel":
		return ipc.AnswerReply{Fault: "cancel is no answer; the question stays open"}, nil
	default:
		return ipc.AnswerReply{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("there is no action %q", r.Action), Hint: "use accept or decline"}
	}
	if r.Secret && !reply.Decline {
		taken, fault, err := a.sup.AnswerSecret(ctx, j.ID, reply)
		if err != nil {
			return ipc.AnswerReply{}, wireError(err)
		}
		if !taken && fault == "" {
			fault = "the question is closed already, or takes no secret"
		}
		return ipc.AnswerReply{Taken: taken, Fault: fault}, nil
	}
	taken, fault, err := a.sup.Answer(ctx, j.ID, reply)
	if err != nil {
		return ipc.AnswerReply{}, wireError(err)
	}
	return ipc.AnswerReply{Taken: taken, Fault: fault}, nil
}
