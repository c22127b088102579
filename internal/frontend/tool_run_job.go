package frontend

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"jobd/internal/ipc"
	"jobd/internal/mcptasks"
)

const toolRunJob = "run_job"

var runJobParams = []param{
	{name: "command", kind: aString, example: `"make test"`,
		about: "Shell text, run by bash -c (sh -c without bash). Either this or argv."},
	{name: "argv", kind: aStringList, example: `["go", "test", "./..."]`,
		about: "The command as whole arguments, without a shell. Either this or command."},
	{name: "cwd", kind: aString, example: `"server"`,
		about: "Working directory; relative to the project. Default: the project."},
	{name: "name", kind: aString, example: `"integration tests"`,
		about: "A short name for people."},
	{name: "env", kind: aStringMap, example: `{"CI": "1"}`,
		about: "Variables on top of this server's environment."},
	{name: "timeout_seconds", kind: anInteger, min: 0, max: maxSeconds, example: `3600`,
		about: "Longest run time; 0 = none. Default: a day."},
	{name: "question_timeout_seconds", kind: anInteger, min: 1, max: maxSeconds, example: `1800`,
		about: "How long a question of the job may stay open. Default: an hour."},
	{name: "idempotency_key", kind: aString, example: `"release-1.4"`,
		about: "One job per key in this project: the same key gives the same job, also after it ended. A fresh key runs an identical command anew."},
}

// maxSeconds bounds timeouts to a year, far from any overflow.
const maxSeconds = 365 * 24 * 3600

// runJobTool is the tool that runs any command.
func (f *Frontend) runJobTool() builtin {
	return builtin{
		tool: &mcp.Tool{
			Name: toolRunJob, Title: "Run a job",
			Description: "Run a long command in the background as a durable job: build, test suite, deployment, research, import, anything over a minute. " +
				"It outlives this session; the result comes back by itself. Not for quick commands.",
			InputSchema: schemaOf(runJobParams),
			Annotations: &mcp.ToolAnnotations{Title: "Run a job", DestructiveHint: yes(), OpenWorldHint: yes()},
		},
		support: mcptasks.TaskOptional,
		handle:  f.runJob,
	}
}

func (f *Frontend) runJob(ctx context.Context, call *mcptasks.Call) (mcptasks.Answer, error) {
	var a struct {
		Command string            `json:"command"`
		Argv    []string          `json:"argv"`
		Cwd     string            `json:"cwd"`
		Name    string            `json:"name"`
		Env     map[string]string `json:"env"`
		Timeout *int64            `json:"timeout_seconds"`
		Asks    *int64            `json:"question_timeout_seconds"`
		Key     string            `json:"idempotency_key"`
	}
	if err := decode(toolRunJob, runJobParams, call.Arguments, &a); err != nil {
		return mcptasks.Result(toolError(err.Error())), nil
	}
	refuse := func(format string, args ...any) (mcptasks.Answer, error) {
		return mcptasks.Result(toolError(wrong(format, args...).Error())), nil
	}
	switch blank := strings.TrimSpace(a.Command) == ""; {
	case blank && a.Argv == nil:
		return refuse(`run_job needs what to run: send {"command": "make test"} for shell text, or {"argv": ["go", "test", "./..."]} for a program with its arguments.`)
	case !blank && a.Argv != nil:
		return refuse("run_job got both command and argv; send one: command for shell text, argv for a program with its arguments.")
	case a.Argv != nil && a.Argv[0] == "":
		return refuse(`The first element of argv is empty; it must name the program, like ["go", "test"].`)
	}
	dir, err := f.directory(a.Cwd)
	if err != nil {
		return refuse("%s", err)
	}
	r := f.submission(toolRunJob)
	r.Name, r.Argv, r.Dir, r.Env, r.Key = a.Name, a.Argv, dir, a.Env, a.Key
	if a.Argv == nil {
		r.Command = a.Command
	}
	r.TimeoutMS, r.QuestionTimeoutMS = milliseconds(a.Timeout), milliseconds(a.Asks)
	return f.run(ctx, call, wanted{request: r, support: mcptasks.TaskOptional})
}

// submission is what all jobs of this front end have in common.
func (f *Frontend) submission(tool string) ipc.SubmitRequest {
	c := f.caller
	r := ipc.SubmitRequest{Tool: tool, Project: c.Project, Session: c.Session, Client: c.Client,
		Environ: c.Environ, Umask: c.Umask, Interactive: !c.Headless}
	if c.NoFile != nil {
		r.NoFile, r.NoFileMax = c.NoFile()
	}
	return r
}

// directory resolves the argument cwd. What is wrong with it is said before a
// job is made of it.
func (f *Frontend) directory(cwd string) (string, error) {
	switch {
	case cwd == "":
		return f.caller.Project, nil
	case cwd == "~" || strings.HasPrefix(cwd, "~/"):
		return "", wrong("The directory %s begins with ~, which only a shell expands; send the absolute path, like %q.", quoted(cwd, 200), filepath.Join(home(), strings.TrimPrefix(cwd, "~")))
	case strings.HasPrefix(cwd, "~"):
		return "", wrong("The directory %s begins with ~, which only a shell expands; send the absolute path.", quoted(cwd, 200))
	}
	dir := cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(f.caller.Project, dir)
	}
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return "", wrong("The directory %s does not exist; create it first, or leave cwd out to run in the project %s.", quoted(dir, 400), f.caller.Project)
	case err != nil:
		return "", wrong("The directory %s cannot be used: %v.", quoted(dir, 400), err)
	case !info.IsDir():
		return "", wrong("%s is not a directory; cwd must name one.", quoted(dir, 400))
	}
	return filepath.Clean(dir), nil
}

// home is the directory that ~ stands for, for a sentence.
func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	return "/home/you"
}

// milliseconds keeps nil, which means the default.
func milliseconds(seconds *int64) *int64 {
	if seconds == nil {
		return nil
	}
	ms := *seconds * 1000
	return &ms
}

func yes() *bool { b := true; return &b }

func no() *bool { b := false; return &b }
