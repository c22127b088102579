package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"jobd/internal/config"
	"jobd/internal/form"
	"jobd/internal/ipc"
	"jobd/internal/jobfile"
	"jobd/internal/jobs"
)

// toolsPoll is how often the job files are looked at while somebody waits for a
// change. Nobody waits, nothing is looked at.
const toolsPoll = time.Second

// maxToolFaults is how many faults of files a reply holds.
const maxToolFaults = 50

// Tools that a job file cannot declare: jobd's own, and the name that jobs of
// the shell go by.
var builtinTools = []string{"run_job", "list_jobs", "get_job", "read_job_output", "cancel_job", "answer_job", toolShell}

const (
	toolRunJob = "run_job"
	toolShell  = "shell"
)

// newCatalog returns the job files of these places.
func newCatalog(p config.Places) *jobfile.Catalog {
	return &jobfile.Catalog{
		UserDir: p.JobFiles,
		Trust:   trustOf(p),
		Rules:   jobfile.Rules{Forms: form.Forms{}, Reserved: builtinTools},
	}
}

// trustOf returns the list of trusted project files.
func trustOf(p config.Places) jobfile.Trust {
	return jobfile.Trust{Path: filepath.Join(p.StateDir, "trust.json")}
}

// Tools implements [ipc.Handler].
func (a *api) Tools(ctx context.Context, r ipc.ToolsRequest) (ipc.ToolsReply, error) {
	if r.Project != "" && !filepath.IsAbs(r.Project) {
		return ipc.ToolsReply{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("the project %q is not an absolute path", r.Project)}
	}
	set := a.files.Load(r.Project)
	reply := a.toolsReply(set)
	if r.WaitMS <= 0 || r.Version != reply.Version {
		return reply, nil
	}
	over := time.NewTimer(time.Duration(r.WaitMS) * time.Millisecond)
	defer over.Stop()
	look := time.NewTicker(toolsPoll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return reply, ctx.Err()
		case <-over.C:
			return reply, nil
		case <-look.C:
		}
		now := a.files.Peek(r.Project)
		if now == set {
			continue
		}
		set, reply = now, a.toolsReply(now)
		if reply.Version != r.Version {
			return reply, nil
		}
	}
}

// toolsReply converts a set of jobs for the wire. Its version is that of all
// that the reply says.
func (a *api) toolsReply(set *jobfile.Set) ipc.ToolsReply {
	reply := ipc.ToolsReply{RunJob: a.defaults.RunJob, Tools: make([]ipc.Tool, 0, len(set.Jobs))}
	for _, j := range set.Jobs {
		t := ipc.Tool{Name: j.Name, Title: j.Title, Description: j.Description, InputSchema: j.InputSchema, Annotations: j.Annotations, Task: j.Task, AskFirst: j.AskFirst}
		if j.AnswerBy == jobs.AnswerByAnyone {
			t.AnswerBy = string(j.AnswerBy)
		}
		reply.Tools = append(reply.Tools, t)
	}
	for _, f := range set.Faults[:min(len(set.Faults), maxToolFaults)] {
		reply.Faults = append(reply.Faults, f.Sentence())
	}
	b, err := json.Marshal(reply)
	if err != nil {
		a.log.Error("writing the list of tools", "err", err) // every part of it was JSON before
	}
	sum := sha256.Sum256(b)
	reply.Version = hex.EncodeToString(sum[:16])
	return reply
}

// resolve says what a request means: a command of its own, or a job file's.
func (a *api) resolve(r ipc.SubmitRequest) (jobs.Submission, error) {
	if r.Tool == "" || slices.Contains(builtinTools, r.Tool) {
		return a.submission(r)
	}
	if !filepath.IsAbs(r.Project) {
		return jobs.Submission{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("the project %q is not an absolute path", r.Project)}
	}
	if r.Command != "" || len(r.Argv) > 0 || len(r.Env) > 0 || r.Dir != "" {
		return jobs.Submission{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("%s takes its command, directory and env from its job file", r.Tool), Hint: "send arguments only"}
	}
	// Not what was listed but what the files say now: a file that has changed
	// since it was trusted runs nothing.
	job, err := a.files.Load(r.Project).Job(r.Tool)
	if err != nil {
		return jobs.Submission{}, wireError(err)
	}
	call, err := job.Bind(r.Arguments, r.Answers)
	if err != nil {
		return jobs.Submission{}, wireError(err)
	}
	return a.toolSubmission(r, job, call)
}

// toolSubmission makes a submission of a checked call of a job file's tool.
func (a *api) toolSubmission(r ipc.SubmitRequest, job *jobfile.Job, call *jobfile.Call) (jobs.Submission, error) {
	environ := withoutArguments(splitEnviron(r.Environ))
	cmd := r
	cmd.Environ = joinEnviron(environ)
	cmd.Argv = call.Argv(shell(environ))
	cmd.Dir = r.Project
	if job.Dir != "" {
		cmd.Dir = job.Dir
		if !filepath.IsAbs(cmd.Dir) {
			cmd.Dir = filepath.Join(r.Project, cmd.Dir)
		}
	}
	cmd.Env, cmd.Arguments, cmd.Answers = job.Env, call.Shown(), nil
	cmd.Name = cmpOr(r.Name, job.Name)
	cmd.Group = cmpOr(job.Group, r.Group)
	cmd.OnTimeout = cmpOr(string(job.OnTimeout), r.OnTimeout)
	cmd.Unattended = cmpOr(string(job.Unattended), r.Unattended)
	cmd.AnswerBy = cmpOr(string(job.AnswerBy), r.AnswerBy)
	if job.Timeout != nil {
		cmd.TimeoutMS = milliseconds(*job.Timeout)
	}
	if job.QuestionTimeout != nil {
		cmd.QuestionTimeoutMS = milliseconds(*job.QuestionTimeout)
	}
	sub, err := a.submission(cmd)
	if err != nil {
		return sub, err
	}
	if job.AnswerWithin != nil {
		sub.Spec.AnswerWithin = *job.AnswerWithin
	}
	if job.Grace != nil {
		sub.Spec.Grace = *job.Grace
	}
	sub.Spec.RerunInterrupted = job.RerunInterrupted
	sub.Join = sub.Join && !job.JoinOff
	// Two calls are the same by what was asked for, whatever command the file
	// makes of it.
	sub.Identity, err = identity(ipc.SubmitRequest{Tool: r.Tool, Project: r.Project, Arguments: call.Identity}, cmd.Dir)
	if err != nil {
		return sub, err
	}
	composed := sub.Environ
	sub.Environ = func(id string) []string {
		return append(append(composed(id), call.Environ()...), jobfile.FileVariable+"="+a.argumentsFile(id))
	}
	sub.Prepared = func(id string) error { return writeArguments(a.argumentsFile(id), call.Arguments) }
	if len(call.Missing) > 0 {
		sub.Refuse = &ipc.Error{
			Code:    ipc.CodeAnswers,
			Message: fmt.Sprintf("%s asks the person for %s before it starts", job.Name, strings.Join(call.Missing, ", ")),
			Hint:    "where no form can be shown, ask the person yourself and pass the values as arguments of these names: " + string(job.AskFirst),
		}
	}
	return sub, nil
}

// rerun makes a submission that runs a job again which a reboot interrupted:
// what the file says now, with the arguments of the old call. The environment
// of the old caller was on disk until the launch only, so the new job gets this
// daemon's.
func (a *api) rerun(_ context.Context, lost jobs.Job) (jobs.Submission, error) {
	arguments, err := os.ReadFile(a.argumentsFile(lost.ID))
	if err != nil {
		return jobs.Submission{}, fmt.Errorf("reading its arguments: %w", err)
	}
	job, err := a.files.Load(lost.Spec.Project).Job(lost.Spec.Tool)
	if err != nil {
		return jobs.Submission{}, err
	}
	if !job.RerunInterrupted {
		return jobs.Submission{}, errors.New("its job file no longer says rerun: if_interrupted")
	}
	r := ipc.SubmitRequest{
		Tool: lost.Spec.Tool, Name: lost.Spec.Name, Project: lost.Spec.Project, Session: lost.Spec.Session,
		Environ: joinEnviron(config.DaemonEnv(os.Environ())), Umask: lost.Spec.Umask, NoFile: lost.Spec.NoFile, NoFileMax: lost.Spec.NoFileMax,
		Shell: lost.Spec.Shell, Interactive: lost.Spec.Interactive,
	}
	if r.Arguments, r.Answers, err = job.Split(arguments); err != nil {
		return jobs.Submission{}, err
	}
	sub, err := a.resolve(r)
	sub.Spec.Session = lost.Spec.Session
	return sub, err
}

// argumentsFile is the file with a job's arguments.
func (a *api) argumentsFile(id string) string { return filepath.Join(a.bundles, id, "args.json") }

// writeArguments writes the arguments of a job into its bundle, durably.
func writeArguments(path string, arguments []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the arguments: %w", err)
	}
	_, err = f.Write(arguments)
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the arguments: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing the arguments: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("writing the arguments: %w", err)
	}
	return nil
}

// withoutArguments leaves out the arguments of a job that is the caller.
func withoutArguments(environ []string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return jobfile.IsArgument(name)
	})
}

// joinEnviron is the reverse of splitEnviron.
func joinEnviron(environ []string) []byte {
	var b []byte
	for _, kv := range environ {
		b = append(append(b, kv...), 0)
	}
	return b
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	if ms == 0 && d > 0 {
		ms = 1 // 0 means none
	}
	return &ms
}
