package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jobd/internal/jobs"
)

// A site is a project and a configuration.
type site struct {
	t       *testing.T
	project string
	catalog *Catalog
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, project: dir + "/project", catalog: &Catalog{UserDir: dir + "/config/jobs", Trust: Trust{dir + "/trust.json"}, Rules: rules}}
	for _, d := range []string{s.project + "/.jobd", s.catalog.UserDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) trust() {
	s.t.Helper()
	_, sum, err := ReadProject(s.project)
	if err == nil {
		err = s.catalog.Trust.Add(Trusted{Path: ProjectPath(s.project), Sum: sum, At: time.Unix(1e9, 0).UTC()})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func jobNames(set *Set) string {
	var names []string
	for _, j := range set.Jobs {
		names = append(names, j.Name+"@"+filepath.Base(j.File))
	}
	return strings.Join(names, " ")
}

func sentences(s *site, set *Set) string {
	var b strings.Builder
	for _, f := range set.Faults {
		b.WriteString(strings.ReplaceAll(f.Sentence(), filepath.Dir(s.project), "ROOT") + "\n")
	}
	return b.String()
}

func file1(name string) string { return "jobs:\n  " + name + ": {description: d, run: x}\n" }

func TestAProjectFileIsUsedWhileTrusted(t *testing.T) {
	s := newSite(t)
	path := ProjectPath(s.project)
	expect := func(step, names, faults string) {
		t.Helper()
		for _, load := range []func(string) *Set{s.catalog.Peek, s.catalog.Load} {
			set := load(s.project)
			if d := cmp.Diff([]string{names, faults}, []string{jobNames(set), sentences(s, set)}); d != "" {
				t.Errorf("%s: %s", step, d)
			}
			_, err := set.Job("deploy")
			switch {
			case names != "":
				if err != nil {
					t.Errorf("%s: %v", step, err)
				}
			case faults == "":
				if !errors.Is(err, jobs.ErrNotFound) {
					t.Errorf("%s: %v", step, err)
				}
			default:
				if !errors.Is(err, jobs.ErrRefused) || !strings.Contains(err.Error(), set.closed.Sentence()) {
					t.Errorf("%s: the call is refused with %v", step, err)
				}
			}
		}
	}
	expect("no file", "", "")
	s.write(path, file1("deploy"))
	expect("a new file", "", "ROOT/project/.jobd/jobs.yaml: the job file is not used, because nobody has trusted it yet; the person can look at it and then run, in a terminal: jobd trust ROOT/project\n")
	s.trust()
	expect("trusted", "deploy@jobs.yaml", "")
	s.write(path, file1("deploy")+"# changed\n")
	expect("changed", "", "ROOT/project/.jobd/jobs.yaml: the job file is not used, because it has changed since it was trusted; the person can look at it and then run, in a terminal: jobd trust ROOT/project\n")
	s.write(path, file1("deploy"))
	expect("changed back", "deploy@jobs.yaml", "")
	if there, err := s.catalog.Trust.Remove(path); err != nil || !there {
		t.Fatal(there, err)
	}
	expect("revoked", "", "ROOT/project/.jobd/jobs.yaml: the job file is not used, because nobody has trusted it yet; the person can look at it and then run, in a terminal: jobd trust ROOT/project\n")
	s.trust()
	if err := os.Chmod(s.catalog.Trust.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	expect("a list that anybody can write", "", "ROOT/project/.jobd/jobs.yaml: the job file is not used: the list of trusted job files ROOT/trust.json cannot be used: other users may write to it (mode 0666); take that from them with chmod go-w\n")
	s.write(s.catalog.Trust.Path, "{")
	if err := os.Chmod(s.catalog.Trust.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("a damaged list", "", "ROOT/project/.jobd/jobs.yaml: the job file is not used: the list of trusted job files ROOT/trust.json is damaged (unexpected end of JSON input); remove it and trust them again\n")
}

// Trust in one project is no trust in a copy of it.
func TestTrustIsForOnePath(t *testing.T) {
	s, o := newSite(t), newSite(t)
	s.write(ProjectPath(s.project), file1("a"))
	s.write(ProjectPath(o.project), file1("a"))
	s.trust()
	o.catalog.Trust = s.catalog.Trust
	if got := jobNames(o.catalog.Load(o.project)); got != "" {
		t.Errorf("got %s", got)
	}
}

func TestStrangeFilesInTheProject(t *testing.T) {
	for name, c := range map[string]struct {
		make func(s *site) error
		want string // "" = it is used
	}{
		"a link within the project": {func(s *site) error {
			s.write(s.project+"/other.yaml", file1("deploy"))
			return os.Symlink("../other.yaml", ProjectPath(s.project))
		}, ""},
		"a link out of it": {func(s *site) error {
			s.write(s.catalog.UserDir+"/../other.yaml", file1("deploy"))
			return os.Symlink(s.catalog.UserDir+"/../other.yaml", ProjectPath(s.project))
		}, "a link that leads out of the project"},
		"a directory out of it": {func(s *site) error {
			s.write(s.catalog.UserDir+"/jobs.yaml", file1("mine"))
			return errors.Join(os.Remove(s.project+"/.jobd"), os.Symlink(s.catalog.UserDir, s.project+"/.jobd"))
		}, "a link that leads out of the project"},
		"a pipe":      {func(s *site) error { return syscall.Mkfifo(ProjectPath(s.project), 0o600) }, "it is no regular file"},
		"a directory": {func(s *site) error { return os.Mkdir(ProjectPath(s.project), 0o700) }, "it is no regular file"},
		"a large file": {func(s *site) error {
			s.write(ProjectPath(s.project), strings.Repeat("#\n", MaxFile))
			return nil
		}, "it is larger than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if err := c.make(s); err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				s.trust()
			}
			set := s.catalog.Load(s.project)
			if c.want == "" && jobNames(set) != "deploy@jobs.yaml" {
				t.Errorf("got %s, %s", jobNames(set), sentences(s, set))
			}
			if c.want != "" && !strings.Contains(sentences(s, set), c.want) {
				t.Errorf("got %q, want %q", sentences(s, set), c.want)
			}
		})
	}
	// .jobd that is a file is no job file at all.
	s := newSite(t)
	if err := os.Remove(s.project + "/.jobd"); err != nil {
		t.Fatal(err)
	}
	s.write(s.project+"/.jobd", "x")
	if set := s.catalog.Load(s.project); len(set.Faults) > 0 {
		t.Error(sentences(s, set))
	}
}

func TestUserFilesNeedNoTrustButMustBeClosed(t *testing.T) {
	s := newSite(t)
	in := func(name string) string { return filepath.Join(s.catalog.UserDir, name) }
	s.write(in("b.yaml"), file1("both")+"  b: {description: d, run: x}\n")
	s.write(in("a.yaml"), file1("both"))
	s.write(in("old.yml"), file1("old"))
	s.write(in("README"), "x")
	s.write(in(".hidden.yaml"), "x")
	s.write(in("bad.yaml"), "jobs: [\n")
	s.write(in("open.yaml"), file1("open"))
	s.write(ProjectPath(s.project), file1("project"))
	s.trust()
	for path, mode := range map[string]os.FileMode{in("open.yaml"): 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	set := s.catalog.Load(s.project)
	if d := cmp.Diff("b@b.yaml both@a.yaml project@jobs.yaml", jobNames(set)); d != "" {
		t.Error(d)
	}
	want := `ROOT/config/jobs/old.yml: the file is not read; give it a name that ends with .yaml
ROOT/config/jobs/b.yaml:2:1: the job "both" is not used, because ROOT/config/jobs/a.yaml has one of this name; rename one of them
ROOT/config/jobs/bad.yaml:1:7: this is not YAML: sequence end token ']' not found (the line is: jobs: [)
ROOT/config/jobs/open.yaml: the job file cannot be used: other users may write to it (mode 0666); take that from them with chmod go-w
`
	if d := cmp.Diff(want, sentences(s, set)); d != "" {
		t.Error(d)
	}
	// The project's jobs come first on a clash.
	s.write(ProjectPath(s.project), file1("both"))
	s.trust()
	set = s.catalog.Load(s.project)
	if d := cmp.Diff("b@b.yaml both@jobs.yaml", jobNames(set)); d != "" {
		t.Error(d)
	}
	if got := sentences(s, set); !strings.Contains(got, `a.yaml:2:1: the job "both" is not used, because ROOT/project/.jobd/jobs.yaml has one of this name`) {
		t.Error(got)
	}
	// A directory that others can write to could hold anybody's files.
	for _, dir := range []string{s.catalog.UserDir, filepath.Dir(s.catalog.UserDir)} {
		if err := os.Chmod(dir, 0o770); err != nil {
			t.Fatal(err)
		}
		set = s.catalog.Load(s.project)
		if jobNames(set) != "both@jobs.yaml" || !strings.Contains(sentences(s, set), "the job files in it are not used: other users may write to it") {
			t.Errorf("%s: %s, %s", dir, jobNames(set), sentences(s, set))
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := ownedBy(4711, 1000, 0o600); err == nil || !strings.Contains(err.Error(), "it belongs to user 4711, not to you (1000)") {
		t.Errorf("a foreign file: %v", err)
	}
	if err := ownedBy(0, 1000, 0o444); err != nil {
		t.Errorf("root's file: %v", err)
	}
}

// Peek sees every change, whichever way a file is written.
func TestPeekSeesChanges(t *testing.T) {
	s := newSite(t)
	path := filepath.Join(s.catalog.UserDir, "a.yaml")
	last := s.catalog.Peek(s.project)
	if s.catalog.Peek(s.project) != last {
		t.Error("nothing has changed, and the files were read again")
	}
	for name, change := range map[string]func() error{
		"a new file": func() error { return os.WriteFile(path, []byte(file1("a")), 0o600) },
		"replaced": func() error {
			return errors.Join(os.WriteFile(path+".new", []byte(file1("b")), 0o600), os.Rename(path+".new", path))
		},
		"closed":  func() error { return os.Chmod(path, 0o644) },
		"a link":  func() error { return os.Symlink(path, filepath.Join(s.catalog.UserDir, "c.yaml")) },
		"trusted": func() error { return s.catalog.Trust.Add(Trusted{Path: "/x", Sum: "y"}) },
		"project": func() error { return os.WriteFile(ProjectPath(s.project), []byte("x"), 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		now := s.catalog.Peek(s.project)
		if now == last {
			t.Errorf("%s: it was not seen", name)
		}
		last = now
	}
}

func TestTrustKeepsWhatTwoWriteAtOnce(t *testing.T) {
	s := newSite(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := s.catalog.Trust.Add(Trusted{Path: "/p" + string(rune('a'+i)), Sum: "s"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := s.catalog.Trust.List()
	if err != nil || len(list) != 20 {
		t.Errorf("%d are left, %v", len(list), err)
	}
	info, err := os.Stat(s.catalog.Trust.Path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Remove(s.catalog.Trust.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", s.catalog.Trust.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.catalog.Trust.List(); err == nil {
		t.Error("a link in the place of the list is followed")
	}
}
