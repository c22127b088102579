package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/jobfile"
)

// newTrustCommand returns "jobd trust".
func newTrustCommand(c *cli) *cobra.Command {
	var revoke, list, asJSON bool
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "Trust a project's job file, as it is now",
		Long: `Trusts the job file of a project (.jobd/jobs.yaml in DIR, by default the project
of this directory), so that its jobs are offered as tools. Read it first: its
commands run as you, without a further question of jobd.

The trust holds for the bytes that the file has now. Once it changes, by you, by
a pull or by a model, it is not used until it is trusted again. The scripts that
its commands call are not looked at.

It is the person's word, so it is refused to Claude Code and to jobs. Your own
job files, in jobd's configuration, need no trust.`,
		Example: `  jobd trust            # this project's file
  jobd trust --list     # what is trusted, and what has changed since
  jobd trust --revoke   # take it back`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := config.Find()
			if err != nil {
				return err
			}
			switch {
			case list && (revoke || len(args) > 0):
				return usagef(cmd, "--list goes with no directory and not with --revoke")
			case list:
				return listTrusted(c, trustOf(p), asJSON)
			}
			project, err := projectNamed(c, args)
			if err != nil {
				return err
			}
			if revoke {
				return revokeTrust(c, trustOf(p), project, asJSON)
			}
			if c.getenv("CLAUDECODE") != "" || c.getenv(config.EnvJob) != "" {
				return fmt.Errorf("a job file is trusted by a person, not by Claude Code or a job; look at %s and run in a terminal of your own: jobd trust %s",
					jobfile.ProjectPath(project), project)
			}
			if err := p.Ensure(); err != nil {
				return err
			}
			return trust(c, newCatalog(p), project, asJSON)
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "take the trust back")
	cmd.Flags().BoolVar(&list, "list", false, "list what is trusted")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// projectNamed returns the project that the command line means: a directory,
// or the job file in it.
func projectNamed(c *cli, args []string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	if len(args) == 0 {
		return caller.Project(c.getenv("CLAUDE_PROJECT_DIR"), dir), nil
	}
	path, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	for _, end := range []string{"/" + jobfile.ProjectFile, "/" + filepath.Dir(jobfile.ProjectFile)} {
		if project, ok := strings.CutSuffix(path, end); ok && project != "" {
			path = project
			break
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding the project: %w", err)
	}
	return caller.Real(path), nil
}

// trustedFile is a file as "trust --json" prints it.
type trustedFile struct {
	Path   string    `json:"path"`
	Sum    string    `json:"sha256"`
	At     time.Time `json:"at"`
	State  string    `json:"state"` // trusted, changed, missing
	Jobs   []string  `json:"jobs,omitempty"`
	Faults []string  `json:"faults,omitempty"`
}

func trust(c *cli, catalog *jobfile.Catalog, project string, asJSON bool) error {
	path := jobfile.ProjectPath(project)
	data, sum, err := jobfile.ReadProject(project)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no job file %s", path)
	}
	if err != nil {
		return fmt.Errorf("the job file %s cannot be used: %w", path, err)
	}
	// What is shown, hashed and trusted are the same bytes.
	file := jobfile.Parse(path, data, catalog.Rules)
	entry := jobfile.Trusted{Path: path, Sum: sum, At: c.now().UTC().Truncate(time.Second)}
	if err := catalog.Trust.Add(entry); err != nil {
		return err
	}
	out := trustedFile{Path: path, Sum: sum, At: entry.At, State: "trusted"}
	for _, j := range file.Jobs {
		out.Jobs = append(out.Jobs, j.Name)
	}
	for _, f := range file.Faults {
		out.Faults = append(out.Faults, f.Sentence())
	}
	if asJSON {
		return printJSON(c.out, out)
	}
	fmt.Fprintf(c.out, "%s is trusted as it is now (SHA-256 %s). It offers:\n", safeLine(path), sum[:16])
	for _, j := range file.Jobs {
		command := strings.Join(j.Argv, " ")
		if j.Run != "" {
			command = j.Run
		}
		fmt.Fprintf(c.out, "  %-20s %s\n", j.Name, safeLine(firstLine(command)))
	}
	if len(file.Jobs) == 0 {
		fmt.Fprintln(c.out, "  nothing")
	}
	for _, f := range file.Faults {
		fmt.Fprint(c.err, f.Text())
	}
	return nil
}

// firstLine returns the first line of a script that says something, and a mark
// if there are more.
func firstLine(text string) string {
	text = strings.TrimSpace(text)
	line, rest, _ := strings.Cut(text, "\n")
	if rest != "" {
		line += " …"
	}
	return line
}

func revokeTrust(c *cli, t jobfile.Trust, project string, asJSON bool) error {
	path := jobfile.ProjectPath(project)
	there := false
	_, err := os.Stat(t.Path)
	if err == nil {
		there, err = t.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if asJSON {
		return printJSON(c.out, struct {
			Path    string `json:"path"`
			Revoked bool   `json:"revoked"`
		}{path, there})
	}
	if !there {
		_, err = fmt.Fprintf(c.out, "%s was not trusted\n", safeLine(path))
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is no longer trusted; jobs that run go on\n", safeLine(path))
	return err
}

func listTrusted(c *cli, t jobfile.Trust, asJSON bool) error {
	list, err := t.List()
	if err != nil {
		return err
	}
	out := make([]trustedFile, 0, len(list))
	for _, e := range list {
		f := trustedFile{Path: e.Path, Sum: e.Sum, At: e.At, State: "trusted"}
		_, sum, err := jobfile.ReadProject(strings.TrimSuffix(e.Path, "/"+jobfile.ProjectFile))
		if err != nil {
			f.State = "missing"
		} else if sum != e.Sum {
			f.State = "changed"
		}
		out = append(out, f)
	}
	if asJSON {
		return printJSON(c.out, out)
	}
	for _, f := range out {
		note := ""
		switch f.State {
		case "missing":
			note = "  (cannot be read now)"
		case "changed":
			note = "  (has changed since, and is not used)"
		}
		if _, err := fmt.Fprintf(c.out, "%s  %s  %s%s\n", f.At.Local().Format(time.DateTime), f.Sum[:min(16, len(f.Sum))], safeLine(f.Path), note); err != nil {
			return err
		}
	}
	return nil
}

// readAtMost reads one byte more than most at most, so that who reads sees that
// it is too much.
func readAtMost(r io.Reader, most int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, most+1))
}
