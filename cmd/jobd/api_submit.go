package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"jobd/internal/ipc"
	"jobd/internal/jobs"
)

// ownNames are the variables that jobd itself sets for each job. The caller has
// left out what is not to be handed on.
var ownNames = []string{"JOBD_JOB_ID", "JOBD_SOCKET", "JOBD_HOME"}

// The bounds of what a job may be asked to be.
const (
	maxTimeout = 10 * 365 * 24 * time.Hour
	maxName    = 80
	maxKey     = 200
)

// Submit implements [ipc.Handler].
func (a *api) Submit(ctx context.Context, key string, r ipc.SubmitRequest) (ipc.SubmitReply, error) {
	if key == "" {
		return ipc.SubmitReply{}, &ipc.Error{Code: ipc.CodeInvalid, Message: "the request has no " + ipc.HeaderKey + " header", Hint: "send a random one, and the same again when the call is repeated"}
	}
	if r.Tool == "run_job" && !a.defaults.RunJob {
		return ipc.SubmitReply{}, &ipc.Error{Code: ipc.CodeRefused, Message: "run_job is switched off in jobd's config.yaml", Hint: "use a tool of a job file"}
	}
	sub, err := a.resolve(r)
	if err != nil {
		return ipc.SubmitReply{}, err
	}
	sub.Request = key
	if sub.Spec.Session, err = a.session(r.Client, r.Session); err != nil {
		return ipc.SubmitReply{}, err
	}
	j, joined, err := a.sup.Submit(ctx, sub)
	if err != nil {
		return ipc.SubmitReply{}, wireError(err)
	}
	return ipc.SubmitReply{Job: a.wireJob(ctx, &j), Joined: string(joined)}, nil
}

// submission checks a request and says what it means.
func (a *api) submission(r ipc.SubmitRequest) (jobs.Submission, error) {
	invalid := func(hint, format string, args ...any) (jobs.Submission, error) {
		return jobs.Submission{}, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	environ := splitEnviron(r.Environ)
	spec := jobs.Spec{
		Tool: r.Tool, Name: jobs.OneLine(r.Name, maxName), Argv: r.Argv, Dir: r.Dir, Project: r.Project, Shell: r.Shell, Interactive: r.Interactive,
		Args: r.Arguments, Umask: r.Umask & 0o777, NoFile: r.NoFile, NoFileMax: r.NoFileMax, OutputLimit: a.defaults.OutputLimit,
		Timeout: a.defaults.Timeout, QuestionTimeout: a.defaults.QuestionTimeout, AnswerWithin: a.defaults.AnswerWithin,
		OnTimeout: jobs.OnTimeoutFail, Unattended: a.defaults.Unattended, AnswerBy: jobs.AnswerByPerson, Group: r.Group,
	}
	switch {
	case r.Tool == "":
		return invalid("", "the request names no tool")
	case (r.Command == "") == (len(r.Argv) == 0):
		return invalid("send command for a shell text, or argv for a program and its arguments", "exactly one of command and argv is needed")
	case !filepath.IsAbs(r.Project):
		return invalid("", "the project %q is not an absolute path", r.Project)
	case len(r.Key) > maxKey || !utf8.ValidString(r.Key):
		return invalid("", "the idempotency key is longer than %d bytes or not UTF-8", maxKey)
	}
	for _, s := range append([]string{r.Command}, r.Argv...) {
		if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
			return invalid("no program can be given such an argument", "the command %q holds a NUL byte or is not UTF-8", s)
		}
	}
	if spec.Dir == "" {
		spec.Dir = r.Project
	}
	if !filepath.IsAbs(spec.Dir) {
		return invalid("give an absolute path", "the directory %q is not absolute", spec.Dir)
	}
	if err := checkDir(spec.Dir); err != nil {
		return jobs.Submission{}, err
	}
	if r.Command != "" {
		spec.Argv = []string{shell(environ), "-c", r.Command}
	} else if r.Argv[0] == "" {
		return invalid("", "the program's name is empty")
	}
	if spec.Name == "" {
		spec.Name = jobs.OneLine(cmpOr(r.Command, strings.Join(r.Argv, " ")), maxName)
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return invalid("", "env holds the name %q, or a value with a NUL byte, which no environment can", name)
		}
		spec.EnvNames = append(spec.EnvNames, name)
	}
	slices.Sort(spec.EnvNames)
	if r.TimeoutMS != nil {
		spec.Timeout = time.Duration(*r.TimeoutMS) * time.Millisecond
	}
	if r.QuestionTimeoutMS != nil {
		spec.QuestionTimeout = time.Duration(*r.QuestionTimeoutMS) * time.Millisecond
	}
	if spec.Timeout < 0 || spec.Timeout > maxTimeout || spec.QuestionTimeout <= 0 || spec.QuestionTimeout > maxTimeout {
		return invalid("a timeout of 0 means none; a question always has one", "the timeouts %s and %s cannot be used", spec.Timeout, spec.QuestionTimeout)
	}
	if err := policies(&spec, r); err != nil {
		return jobs.Submission{}, err
	}
	identity, err := identity(r, spec.Dir)
	if err != nil {
		return jobs.Submission{}, err
	}
	return jobs.Submission{
		Spec: spec, Identity: identity, Key: r.Key, Join: !r.Shell,
		Environ: func(id string) []string { return a.environ(id, environ, r.Env) },
	}, nil
}

// policies takes over the words that choose a policy.
func policies(spec *jobs.Spec, r ipc.SubmitRequest) error {
	bad := func(field, value string, want ...any) error {
		return &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("%s cannot be %q", field, value), Hint: "use one of " + strings.Trim(fmt.Sprint(want...), "[]")}
	}
	switch v := jobs.OnTimeout(r.OnTimeout); v {
	case "":
	case jobs.OnTimeoutFail, jobs.OnTimeoutDefault, jobs.OnTimeoutContinue:
		spec.OnTimeout = v
	default:
		return bad("on_timeout", r.OnTimeout, "fail, default, continue")
	}
	switch v := jobs.AnswerBy(r.AnswerBy); v {
	case "":
	case jobs.AnswerByAnyone, jobs.AnswerByPerson:
		spec.AnswerBy = v
	default:
		return bad("answer_by", r.AnswerBy, "person, anyone")
	}
	switch v := jobs.Unattended(r.Unattended); v {
	case "":
	case jobs.UnattendedCancel, jobs.UnattendedWait:
		spec.Unattended = v
	default:
		return bad("unattended", r.Unattended, "wait, cancel")
	}
	return nil
}

// identity is what makes two calls the same: everything that was asked for, and
// nothing of who asked.
func identity(r ipc.SubmitRequest, dir string) ([]byte, error) {
	r.Dir = dir
	r.Session, r.Client, r.Key, r.Environ, r.Answers = "", "", "", nil, nil
	r.Umask, r.NoFile, r.NoFileMax, r.Shell, r.Interactive = 0, 0, 0, false, false
	if len(r.Arguments) > 0 {
		// Two spellings of the same JSON are the same arguments.
		var v any
		d := json.NewDecoder(bytes.NewReader(r.Arguments))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return nil, &ipc.Error{Code: ipc.CodeInvalid, Message: fmt.Sprintf("the arguments are not JSON: %v", err)}
		}
		r.Arguments, _ = json.Marshal(v)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing a call's identity: %w", err)
	}
	return b, nil
}

// environ composes the environment of a job.
func (a *api) environ(id string, caller []string, env map[string]string) []string {
	out := make([]string, 0, len(caller)+len(env)+4)
	path := ""
	for _, kv := range caller {
		name, value, _ := strings.Cut(kv, "=")
		if _, set := env[name]; set || slices.Contains(ownNames, name) {
			continue
		}
		if name == "PATH" {
			path = value
			continue
		}
		out = append(out, kv)
	}
	for name, value := range env {
		if name == "PATH" {
			path = value
		} else if !slices.Contains(ownNames, name) {
			out = append(out, name+"="+value)
		}
	}
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	out = append(out, "PATH="+a.binDir+string(os.PathListSeparator)+path, "JOBD_JOB_ID="+id, "JOBD_SOCKET="+a.socket)
	if a.home != "" {
		out = append(out, "JOBD_HOME="+a.home)
	}
	return out
}

// shell returns the shell that runs a command text: bash where the caller's
// PATH has one, else sh.
func shell(environ []string) string {
	for _, kv := range environ {
		path, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			if !filepath.IsAbs(dir) {
				continue
			}
			file := filepath.Join(dir, "bash")
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file
			}
		}
	}
	return "/bin/sh"
}

// splitEnviron splits NAME=VALUE pairs that each end with a NUL byte. Pairs
// without a name are left out.
func splitEnviron(b []byte) []string {
	var out []string
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if strings.IndexByte(kv, '=') > 0 {
			out = append(out, kv)
		}
	}
	return out
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
