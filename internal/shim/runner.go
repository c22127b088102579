package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// Options are what a Runner needs.
type Options struct {
	// BundleDir is the absolute path of the directory of all bundles. It is made
	// if it is not there; the directory above it must be.
	BundleDir string
	// ShimPath is the absolute path of the jobd-shim to start. Its directory,
	// links resolved, is also where a daemon runs from that a sweep spares.
	ShimPath string
	// StateDir is the absolute path of the directory of AliveFile and
	// StoppedFile. "" = shims watch no daemon.
	StateDir string
	// Environ is the whole environment of shims, and of the daemon that a shim
	// starts. Nothing of it reaches a job.
	Environ []string
	// Clock stamps what the daemon's end writes into bundles.
	Clock jobs.Clock
	// Log takes what no caller can be told; nil = nowhere.
	Log *slog.Logger
}

// A Runner starts shims and finds them again. It implements [jobs.Runner]. Its
// methods may be used at once by any number of goroutines.
type Runner struct {
	o   Options
	dir string // of the shim's binary, links resolved

	mu     sync.Mutex
	closed chan struct{} // closed by Close
	live   map[*Process]struct{}
	wg     sync.WaitGroup // one for each of live
}

var _ jobs.Runner = (*Runner)(nil)

// NewRunner returns a Runner, after having made BundleDir or checked that it
// belongs to this user and is closed to others. The caller closes it.
func NewRunner(o Options) (*Runner, error) {
	for what, path := range map[string]string{"bundle directory": o.BundleDir, "path of jobd-shim": o.ShimPath} {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("the %s %q is not an absolute path", what, path)
		}
	}
	if o.StateDir != "" && !filepath.IsAbs(o.StateDir) {
		return nil, fmt.Errorf("the state directory %q is not an absolute path", o.StateDir)
	}
	if o.Clock == nil {
		return nil, errors.New("a runner needs a clock")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := mkdir(o.BundleDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the directory of bundles: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(o.BundleDir, &st); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", o.BundleDir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("%s must be a directory of yours that is closed to others; remove it, or use: chmod 700", o.BundleDir)
	}
	h, err := openHandle(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("this system cannot wait for a process that is no child (Linux 5.3 or later can): %w", err)
	}
	h.close()
	r := &Runner{o: o, dir: filepath.Dir(o.ShimPath), closed: make(chan struct{}), live: map[*Process]struct{}{}}
	if resolved, err := filepath.EvalSymlinks(o.ShimPath); err == nil {
		r.dir = filepath.Dir(resolved)
	}
	return r, nil
}

// mkdir makes one directory of mode 0700, whatever the umask.
func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if fi, err := os.Lstat(dir); err == nil && fi.Mode() == fs.ModeDir|0o700 {
		return nil // as the umask left it
	}
	return os.Chmod(dir, 0o700)
}

// Close ends the waiting for processes and returns when it has. The processes
// go on, and so do their jobs.
func (r *Runner) Close() error {
	r.mu.Lock()
	if !r.isClosed() {
		close(r.closed)
	}
	for p := range r.live {
		p.handle.interrupt()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

func (r *Runner) isClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// bundle returns the bundle of a job.
func (r *Runner) bundle(id string) (bundle, error) {
	if err := checkID(id); err != nil {
		return "", err
	}
	return bundle(filepath.Join(r.o.BundleDir, id)), nil
}

// Prepare implements [jobs.Runner]. It refuses, by an error of kind
// [jobs.ErrInvalid], what no command can be given; an error of kind
// [jobs.ErrUnavailable] says that the bundle cannot be written now. Nothing is
// synced to disk.
func (r *Runner) Prepare(_ context.Context, id string, spec jobs.Spec, environ []string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if err := errors.Join(validate(spec), checkEnviron(environ)); err != nil {
		return err
	}
	raw, err := encode(&specRecord{Version: recordVersion, Created: fromInstant(r.o.Clock()), Spec: spec})
	if err != nil {
		return fmt.Errorf("encoding the spec of job %s: %w", id, err)
	}
	err = mkdir(string(b))
	if errors.Is(err, fs.ErrExist) {
		return &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("job %s has a bundle already", id), Err: err}
	}
	if err == nil {
		err = create(b.file(fileEnv), encodeEnviron(environ), os.O_EXCL, false, nil)
	}
	if err == nil {
		err = create(b.file(fileSpec), raw, os.O_EXCL, false, nil)
	}
	if err != nil {
		_ = os.RemoveAll(string(b))
		return &jobs.Error{Kind: jobs.ErrUnavailable, Message: fmt.Sprintf("the bundle of the job cannot be written: %v", err), Err: err}
	}
	return nil
}

// Discard implements [jobs.Runner]. It refuses, by an error of kind
// [jobs.ErrState], to remove the bundle of a shim that is alive.
func (r *Runner) Discard(_ context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	held, err := b.held()
	if err != nil {
		return err
	}
	if held {
		return &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("job %s is still held by its shim", id)}
	}
	if err := os.RemoveAll(string(b)); err != nil {
		return fmt.Errorf("removing the bundle of job %s: %w", id, err)
	}
	return nil
}

// Start implements [jobs.Runner]. A job that was launched before is refused by
// an error of kind [jobs.ErrState]: nothing runs twice. ctx is looked at before
// the shim is started only, since afterwards nobody could say whether the
// command runs.
func (r *Runner) Start(ctx context.Context, id string) (jobs.Process, error) {
	b, err := r.bundle(id)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting job %s: %w", id, err)
	}
	if !b.exists(fileSpec) {
		return nil, &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("job %s has no bundle", id)}
	}
	lock, err := b.take()
	if err != nil {
		return nil, fmt.Errorf("starting job %s: %w", id, err)
	}
	if b.exists(fileLaunch) || b.exists(fileExit) {
		lock.Close()
		return nil, &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("job %s was launched before", id)}
	}
	pid, ready, err := r.spawn(b, lock)
	lock.Close() // from the fork on, the shim holds it
	if err != nil {
		return nil, fmt.Errorf("starting the shim %s: %w", r.o.ShimPath, err)
	}
	p := r.followChild(b, pid)
	// The shim speaks in any case, or ends.
	line, err := bufio.NewReader(ready).ReadBytes('\n')
	ready.Close()
	var m readyMessage
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	switch {
	case err != nil:
		return r.unready(p)
	case m.NotStarted != "":
		return nil, &jobs.Error{Kind: jobs.ErrInvalid, Message: m.NotStarted}
	}
	p.pid.Store(int64(m.PID))
	return p, nil
}

// spawn starts the shim. The process leads a session of its own, knows nothing
// of this one's terminal, directory and environment, and holds the lock.
func (r *Runner) spawn(b bundle, lock *os.File) (pid int, ready *os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(b.file(fileLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer tell.Close()
	pid, err = syscall.ForkExec(r.o.ShimPath, []string{"jobd-shim", string(b), r.o.StateDir}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   r.o.Environ,
		Files: []uintptr{null.Fd(), null.Fd(), log.Fd(), lock.Fd(), tell.Fd()}, // see fdLock, fdReady
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ready.Close()
		return 0, nil, err
	}
	return pid, ready, nil
}

// unready decides about a shim that ended without a word. Only where it had
// come to the launch may something have run.
func (r *Runner) unready(p *Process) (jobs.Process, error) {
	<-p.done
	if p.err == nil && p.exit.NotStarted != "" {
		return nil, &jobs.Error{Kind: jobs.ErrInvalid, Message: p.exit.NotStarted}
	}
	if p.err == nil || errors.Is(p.err, errClosed) || p.b.exists(fileLaunch) {
		return p, nil
	}
	said, _ := load(p.b.file(fileLog), 4<<10)
	return nil, fmt.Errorf("the shim of job %s ended before the launch; it said: %q", p.b.id(), said)
}

// Attach implements [jobs.Runner].
func (r *Runner) Attach(ctx context.Context, id string) (jobs.Process, error) {
	b, err := r.bundle(id)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		held, err := b.held()
		if err != nil {
			return nil, err
		}
		if !held {
			return nil, &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("the shim of job %s is gone", id)}
		}
		p, err := r.attach(b)
		if err == nil {
			return p, nil
		}
		// A shim that has just been started has not said yet which process it is,
		// and one that has just ended is about to give up the lock.
		if wait >= 100*time.Millisecond {
			return nil, fmt.Errorf("attaching to job %s: %w", id, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("attaching to job %s: %w", id, ctx.Err())
		}
	}
}

// attach follows the shim that shim.lock names. The caller has seen the lock
// held, which proves that a shim lives; the start time and another look at the
// lock prove that it is this process.
func (r *Runner) attach(b bundle) (*Process, error) {
	var rec shimRecord
	if err := b.readRecord(fileLock, &rec); err != nil {
		return nil, err
	}
	p, err := r.follow(b, rec.PID, false)
	if err != nil {
		return nil, err
	}
	now, err := readProc(rec.PID)
	if err == nil && (now.start != rec.Start || rec.BootID != r.o.Clock().BootID) {
		err = fmt.Errorf("process %d is not the shim that %s names", rec.PID, b.file(fileLock))
	}
	if err == nil {
		var held bool
		if held, err = b.held(); err == nil && !held {
			err = errors.New("the shim has just ended")
		}
	}
	if err != nil {
		p.handle.interrupt()
		<-p.done
		return nil, err
	}
	var started startedRecord
	if b.readRecord(fileStarted, &started) == nil {
		p.pid.Store(int64(started.PID))
	}
	return p, nil
}

// Inspect implements [jobs.Runner]. A bundle that is not there gives an error
// of kind [jobs.ErrNotFound]. A record that is damaged or of a newer version
// gives an error that names the file, beside what the others tell.
func (r *Runner) Inspect(_ context.Context, id string) (jobs.Remains, error) {
	b, err := r.bundle(id)
	if err != nil {
		return jobs.Remains{}, err
	}
	if _, err := os.Lstat(string(b)); errors.Is(err, fs.ErrNotExist) {
		return jobs.Remains{}, &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("job %s has no bundle in %s", id, r.o.BundleDir), Err: err}
	}
	var rem jobs.Remains
	var errs []error
	// The lock first: once it is free, the records stay as they are.
	held, err := b.held()
	errs = append(errs, err)
	rem.Held = held || err != nil // unknown is not dead
	read := func(name string, rec record) bool {
		err := b.readRecord(name, rec)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return err == nil
	}
	rem.Launched = b.exists(fileLaunch)
	var launch launchRecord
	read(fileLaunch, &launch)
	var started startedRecord
	if read(fileStarted, &started) {
		rem.PID, rem.Started = started.PID, started.At.instant()
	}
	var exit exitRecord
	if read(fileExit, &exit) {
		e := exit.exit()
		rem.Exit = &e
	}
	var stop stopRecord
	if fi, err := os.Lstat(b.file(fileStop)); err == nil && fi.Size() == 0 {
		rem.StopAsked = jobs.CauseCancel // see Process.Stop
	} else if read(fileStop, &stop) {
		rem.StopAsked = stop.Cause
	}
	_, err = b.readEnviron()
	rem.EnvIntact = err == nil
	return rem, errors.Join(errs...)
}

// Sweep implements [jobs.Runner]. It refuses, by an error of kind
// [jobs.ErrState], while the shim is alive, for then that does it. Processes
// get SIGTERM, and after two seconds SIGKILL. Of a job of another boot nothing
// can be left. Processes that left the session, cleared their environment and
// whose parents are gone cannot be told from others and are not found.
func (r *Runner) Sweep(ctx context.Context, id string) (int, error) {
	b, err := r.bundle(id)
	if err != nil {
		return 0, err
	}
	held, err := b.held()
	if err != nil {
		return 0, err
	}
	if held {
		return 0, &jobs.Error{Kind: jobs.ErrState, Message: fmt.Sprintf("job %s is still held by its shim", id)}
	}
	q := hunt{self: os.Getpid(), mark: markName + "=" + id, dir: r.dir}
	var rec shimRecord
	switch err := b.readRecord(fileLock, &rec); {
	case err != nil: // it never came to run, or its record is damaged: the mark is left
	case rec.BootID != r.o.Clock().BootID:
		return 0, nil
	default:
		// The shim led the session of its job. As long as a process is in it, the
		// kernel gives its number to no other process; so if there is another with
		// that number now, nobody is left in the session.
		if now, err := readProc(rec.PID); err != nil || now.start == rec.Start {
			q.session = rec.PID
		}
	}
	k := killing{hunt: q, killAt: time.Now().Add(leftoverGrace)}
	for n := 0; ; n++ {
		left, err := k.round(time.Now())
		if err != nil {
			return len(k.count), fmt.Errorf("ending what is left of job %s: %w", id, err)
		}
		if !left {
			return len(k.count), nil
		}
		select {
		case <-time.After(pause(n)):
		case <-ctx.Done():
			return len(k.count), fmt.Errorf("ending what is left of job %s: %w", id, ctx.Err())
		}
	}
}

// Bundles implements [jobs.Runner].
func (r *Runner) Bundles(context.Context) ([]string, error) {
	entries, err := os.ReadDir(r.o.BundleDir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of bundles: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && checkID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Spec implements [jobs.Runner]. Its error wraps [jobs.ErrNotFound] where there
// is no spec.
func (r *Runner) Spec(_ context.Context, id string) (jobs.Spec, error) {
	rec, err := r.spec(id)
	return rec.Spec, err
}

// Created returns when a job was prepared, which was just before its row was
// stored. Errors are those of Spec.
func (r *Runner) Created(_ context.Context, id string) (jobs.Instant, error) {
	rec, err := r.spec(id)
	return rec.Created.instant(), err
}

func (r *Runner) spec(id string) (specRecord, error) {
	b, err := r.bundle(id)
	if err != nil {
		return specRecord{}, err
	}
	var rec specRecord
	err = b.readRecord(fileSpec, &rec)
	if errors.Is(err, fs.ErrNotExist) {
		return specRecord{}, &jobs.Error{Kind: jobs.ErrNotFound, Message: fmt.Sprintf("job %s has no %s", id, fileSpec), Err: err}
	}
	if err != nil {
		return specRecord{}, err
	}
	return rec, nil
}
