package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"jobd/internal/caller"
	"jobd/internal/config"
	"jobd/internal/jobfile"
)

// newValidateCommand returns "jobd validate".
func newValidateCommand(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check job files",
		Long: `Checks job files and shows what is wrong with them, where, and how to mend it.
Without FILE: this project's .jobd/jobs.yaml and the files of the user. A name
that two jobs have is a fault; that a project's file is not trusted is none.`,
		Example: `  jobd validate
  jobd validate .jobd/jobs.yaml && jobd trust`,
		RunE: func(_ *cobra.Command, args []string) error { return validate(c, args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with files and faults")
	return cmd
}

// checkedFile is a job file as "validate --json" prints it.
type checkedFile struct {
	Path   string      `json:"path"`
	Jobs   []string    `json:"jobs"`
	Faults []fileFault `json:"faults"`
	faults []jobfile.Fault
}

type fileFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1; 0 = not about a place
	Column  int    `json:"column"` // in characters, from 1
	Job     string `json:"job,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func validate(c *cli, paths []string, asJSON bool) error {
	p, err := config.Find()
	if err != nil {
		return err
	}
	catalog := newCatalog(p)
	var files []*checkedFile
	if len(paths) > 0 {
		for _, path := range paths {
			files = append(files, checkFile(path, catalog.Rules))
		}
	} else if files, err = checkPlaces(c, catalog); err != nil {
		return err
	}
	clashes(files)
	faults := 0
	for _, f := range files {
		faults += len(f.faults)
		for _, x := range f.faults {
			f.Faults = append(f.Faults, fileFault{x.File, x.Line, x.Column, x.Job, x.Message, x.Hint})
		}
	}
	if asJSON {
		err = printJSON(c.out, struct {
			OK    bool           `json:"ok"`
			Files []*checkedFile `json:"files"`
		}{faults == 0, files})
	} else {
		err = printChecked(c, files)
	}
	if err == nil && faults > 0 {
		err = withCode(exitError, nil)
	}
	return err
}

// checkPlaces checks the files that a session in this directory has.
func checkPlaces(c *cli, catalog *jobfile.Catalog) ([]*checkedFile, error) {
	files := []*checkedFile{}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the working directory: %w", err)
	}
	project := caller.Project(c.getenv("CLAUDE_PROJECT_DIR"), dir)
	data, _, err := jobfile.ReadProject(project)
	switch path := jobfile.ProjectPath(project); {
	case err == nil:
		files = append(files, checked(jobfile.Parse(path, data, catalog.Rules)))
	case !errors.Is(err, fs.ErrNotExist):
		files = append(files, unreadable(path, err))
	}
	paths, faults := catalog.UserFiles()
	if len(faults) > 0 {
		files = append(files, &checkedFile{Path: catalog.UserDir, Jobs: []string{}, faults: faults})
	}
	for _, path := range paths {
		files = append(files, checked(catalog.ParseUser(path)))
	}
	return files, nil
}

// checkFile checks one file that was named, wherever it lies.
func checkFile(path string, rules jobfile.Rules) *checkedFile {
	f, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		if path, err = filepath.Abs(path); err != nil {
			return unreadable(path, err)
		}
		return unreadable(path, errors.New("it is a directory; name a file in it"))
	}
	data, err := readAtMost(f, jobfile.MaxFile)
	if err != nil {
		return unreadable(path, err)
	}
	return checked(jobfile.Parse(path, data, rules))
}

func checked(f *jobfile.File) *checkedFile {
	out := &checkedFile{Path: f.Name, Jobs: []string{}, faults: f.Faults}
	for _, j := range f.Jobs {
		out.Jobs = append(out.Jobs, j.Name)
	}
	return out
}

func unreadable(path string, err error) *checkedFile {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &checkedFile{Path: path, Jobs: []string{}, faults: []jobfile.Fault{{File: path, Message: "the file cannot be read: " + err.Error()}}}
}

// clashes marks names that an earlier file has.
func clashes(files []*checkedFile) {
	first := map[string]string{}
	for _, f := range files {
		for _, name := range f.Jobs {
			if before, ok := first[name]; ok {
				f.faults = append(f.faults, jobfile.Fault{File: f.Path, Job: name, Message: fmt.Sprintf("the job %q is not used, because %s has one of this name", name, before), Hint: "rename one of them"})
				continue
			}
			first[name] = f.Path
		}
	}
}

func printChecked(c *cli, files []*checkedFile) error {
	if len(files) == 0 {
		_, err := fmt.Fprintf(c.out, "there are no job files here; a project's is %s\n", jobfile.ProjectFile)
		return err
	}
	for _, f := range files {
		for _, x := range f.faults {
			if _, err := fmt.Fprint(c.out, x.Text()); err != nil {
				return err
			}
		}
		var err error
		if len(f.faults) == 0 {
			_, err = fmt.Fprintf(c.out, "%s: good, %s\n", safeLine(f.Path), count(len(f.Jobs), "job"))
		} else {
			_, err = fmt.Fprintf(c.out, "%s: %s, %s usable\n", safeLine(f.Path), count(len(f.faults), "fault"), count(len(f.Jobs), "job"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
