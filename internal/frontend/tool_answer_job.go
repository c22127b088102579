package frontend

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const toolAnswerJob = "answer_job"

var answerJobParams = []param{
	jobIDParam,
	{name: "question", kind: aString, example: `"q1"`,
		about: "The question's key. Default: the only open one."},
	{name: "action", kind: aString, enum: []string{"accept", "decline"}, example: `"accept"`,
		about: "accept with content, or decline. Default: accept."},
	{name: "content", kind: anObject, example: `{"confirm": true}`,
		about: "The person's answer, one value per field of the question."},
}

// answerJobTool passes on the answer of a person who has no form to give it in.
func (f *Frontend) answerJobTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolAnswerJob, Title: "Answer a job's question",
			Description: "Pass on the person's answer to a question that a background job asks. Ask the person first; never make up the answer.",
			InputSchema: schemaOf(answerJobParams),
			Annotations: &mcp.ToolAnnotations{Title: "Answer a job's question", DestructiveHint: yes(), OpenWorldHint: no()},
		},
		support: mcptasks.TaskForbidden,
		handle:  f.answerJob,
	}
}

func (f *Frontend) answerJob(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	a := struct {
		ID       string          `json:"job_id"`
		Question string          `json:"question"`
		Action   string          `json:"action"`
		Content  json.RawMessage `json:"content"`
	}{Action: "accept"}
	if err := decode(toolAnswerJob, answerJobParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	if a.Action == "accept" && a.Content == nil {
		return mcptasks.Result(toolError(`answer_job needs the person's answer as content, like {"content": {"confirm": true}}; or send {"action": "decline"}.`)), nil
	}
	reply, err := f.daemon.Answer(ctx, ipc.AnswerRequest{Job: a.ID, Question: a.Question, Action: a.Action, Content: a.Content,
		By: "tool", Model: f.showsForms(call.Client)})
	if err != nil {
		return mcptasks.Result(toolError(jobError(err, a.ID))), nil
	}
	if !reply.Taken {
		return mcptasks.Result(toolError("The answer was not taken: " + clean(reply.Fault) + fmt.Sprintf("\nNext: get_job {\"job_id\":%q} shows what the job asks now.", short(a.ID)))), nil
	}
	return mcptasks.Result(&mcp.CallToolResult{Content: []mcp.Content{text("The answer was given to the job.")}}), nil
}
