package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"jobd/internal/jobs"
)

// A Catalog knows the jobs of the job files of every project and of the user.
// Its methods may be called from any goroutine.
type Catalog struct {
	// UserDir is the directory of the user's job files, "" = there is none.
	UserDir string
	// Trust is the list of trusted project files.
	Trust Trust
	// Rules are what files are held to.
	Rules Rules

	mu     sync.Mutex
	parsed map[string]parsed // by path
	seen   map[string]seen   // by project
}

// parsed is a file whose bytes were read before.
type parsed struct {
	sum  string
	file *File
}

// seen is a set and what its files looked like before they were read.
type seen struct {
	look string
	set  *Set
}

// maxKept bounds how many files, and projects, are remembered.
const maxKept = 256

// A Set are the jobs that a project can use. It is not changed once made.
type Set struct {
	// Jobs are in the order of their names.
	Jobs []*Job
	// Faults are what is wrong with the files.
	Faults []Fault
	// closed is the fault of a project file that is not trusted, nil if it is.
	closed *Fault
}

// Load reads the files as they are now. project is an absolute real path. What
// cannot be read is among the faults.
func (c *Catalog) Load(project string) *Set {
	// The look is taken first: a change while the files are read is then seen
	// the next time.
	look := c.look(project)
	set := c.load(project)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil || len(c.seen) >= maxKept {
		c.seen = map[string]seen{}
	}
	c.seen[project] = seen{look, set}
	return set
}

// Peek returns what Load would, and reads no file again that looks as it did:
// by identity, size, times, owner and mode. A change that leaves all these
// alone, twice within the clock's tick, is missed until the next one.
func (c *Catalog) Peek(project string) *Set {
	look := c.look(project)
	c.mu.Lock()
	known, ok := c.seen[project]
	c.mu.Unlock()
	if ok && known.look == look {
		return known.set
	}
	return c.Load(project)
}

func (c *Catalog) load(project string) *Set {
	s := &Set{}
	if f := c.project(project, s); f != nil {
		s.add(f)
	}
	for _, path := range c.userFiles(s) {
		s.add(c.ParseUser(path))
	}
	slices.SortFunc(s.Jobs, func(a, b *Job) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// project reads the project's file, and returns nil if it must not be used.
func (c *Catalog) project(project string, s *Set) *File {
	if project == "" {
		return nil
	}
	path := ProjectPath(project)
	data, sum, err := ReadProject(project)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		s.refuse(Fault{File: path, Message: "the job file cannot be used: " + err.Error()})
		return nil
	}
	trusted, err := c.Trust.Sum(path)
	switch {
	case err != nil:
		s.refuse(Fault{File: path, Message: "the job file is not used: " + err.Error()})
	case trusted == "":
		s.refuse(Fault{File: path, Message: "the job file is not used, because nobody has trusted it yet", Hint: trustHint(project)})
	case trusted != sum:
		s.refuse(Fault{File: path, Message: "the job file is not used, because it has changed since it was trusted", Hint: trustHint(project)})
	default:
		return c.parse(path, data, sum)
	}
	return nil
}

func (s *Set) refuse(f Fault) {
	s.closed = &f
	s.Faults = append(s.Faults, f)
}

func trustHint(project string) string {
	return fmt.Sprintf("the person can look at it and then run, in a terminal: jobd trust %s", quote(project))
}

// quote makes a path one word of a shell.
func quote(path string) string {
	if strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+@%", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// parse parses a file, or returns what it gave before: the result depends on
// the bytes alone.
func (c *Catalog) parse(path string, data []byte, sum string) *File {
	c.mu.Lock()
	known, ok := c.parsed[path]
	c.mu.Unlock()
	if ok && known.sum == sum {
		return known.file
	}
	f := Parse(path, data, c.Rules)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parsed == nil || len(c.parsed) >= maxKept {
		c.parsed = map[string]parsed{}
	}
	c.parsed[path] = parsed{sum, f}
	return f
}

// add takes over the jobs of a file. Those of files before it keep their names.
func (s *Set) add(f *File) {
	s.Faults = append(s.Faults, f.Faults...)
	for _, j := range f.Jobs {
		if i := slices.IndexFunc(s.Jobs, func(o *Job) bool { return o.Name == j.Name }); i >= 0 {
			s.Faults = append(s.Faults, Fault{File: f.Name, Line: j.Line, Column: 1, Job: j.Name, Hint: "rename one of them",
				Message: fmt.Sprintf("the job %q is not used, because %s has one of this name", j.Name, s.Jobs[i].File)})
			continue
		}
		s.Jobs = append(s.Jobs, j)
	}
}

// ParseUser reads one of the user's job files.
func (c *Catalog) ParseUser(path string) *File {
	data, err := readUser(path)
	if err != nil {
		return &File{Name: path, Faults: []Fault{{File: path, Message: "the job file cannot be used: " + err.Error()}}}
	}
	return c.parse(path, data, Sum(data))
}

// UserFiles returns the paths of the user's job files, and what is wrong with
// their directory.
func (c *Catalog) UserFiles() ([]string, []Fault) {
	s := &Set{}
	return c.userFiles(s), s.Faults
}

func (c *Catalog) userFiles(s *Set) []string {
	if c.UserDir == "" {
		return nil
	}
	refuse := func(path string, err error) []string {
		s.Faults = append(s.Faults, Fault{File: path, Message: "the job files in it are not used: " + plainPathError(err).Error()})
		return nil
	}
	entries, err := os.ReadDir(c.UserDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refuse(c.UserDir, err)
	}
	// Whoever can write to a directory can put another file in it, or another
	// directory in its place.
	for _, dir := range []string{c.UserDir, filepath.Dir(c.UserDir)} {
		info, err := os.Stat(dir)
		if err == nil {
			err = own(info)
		}
		if err != nil {
			return refuse(dir, err)
		}
	}
	var paths []string
	for _, e := range entries {
		path := filepath.Join(c.UserDir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case strings.HasSuffix(e.Name(), ".yaml"):
			paths = append(paths, path)
		case strings.HasSuffix(e.Name(), ".yml"):
			s.Faults = append(s.Faults, Fault{File: path, Message: "the file is not read", Hint: "give it a name that ends with .yaml"})
		}
	}
	return paths
}

// Job returns the job of this name. Its error is a sentence about why there is
// none: of kind [jobs.ErrRefused] while the project's file is not trusted, of
// kind [jobs.ErrInvalid] where the file is faulty, else [jobs.ErrNotFound].
func (s *Set) Job(name string) (*Job, error) {
	for _, j := range s.Jobs {
		if j.Name == name {
			return j, nil
		}
	}
	for _, f := range s.Faults {
		if f.Job == name {
			return nil, &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("the tool %s cannot be used: %s", name, f.Sentence())}
		}
	}
	if s.closed != nil {
		return nil, &jobs.Error{Kind: jobs.ErrRefused, Message: fmt.Sprintf("there is no tool %s: %s", visible(clip(name, 80)), s.closed.Sentence())}
	}
	return nil, &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("no job file of this project or of the user has a job %s", visible(clip(name, 80)))}
}

// look says what the files of a project look like from outside.
func (c *Catalog) look(project string) string {
	var b strings.Builder
	stat := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", path, plainPathError(err))
			return
		}
		fmt.Fprintf(&b, "%s: %s\n", path, identity(info))
	}
	if link, err := os.Readlink(ProjectPath(project)); err == nil {
		fmt.Fprintln(&b, link)
	}
	stat(filepath.Join(project, ".jobd"))
	stat(ProjectPath(project))
	stat(c.Trust.Path)
	if c.UserDir != "" {
		stat(filepath.Dir(c.UserDir))
		stat(c.UserDir)
		entries, _ := os.ReadDir(c.UserDir) // what is wrong with it shows above
		for _, e := range entries {
			stat(filepath.Join(c.UserDir, e.Name()))
		}
	}
	return b.String()
}
