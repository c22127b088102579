package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
)

// errClosed is why a wait ended that was not about the process.
var errClosed = errors.New("the runner was closed")

// A Process is a shim that is followed. It implements [jobs.Process].
type Process struct {
	r      *Runner
	b      bundle
	shim   int  // its process id
	child  bool // of this process, so it must be reaped
	handle *handle
	pid    atomic.Int64 // of the command, 0 = not known yet

	stop sync.Mutex // one writer of the stop record

	// done is closed when the shim is gone or the runner closed; exit and err are
	// written before.
	done chan struct{}
	exit jobs.Exit
	err  error
}

var _ jobs.Process = (*Process)(nil)

// follow begins to wait for a shim. The same for one that was started here and
// one that was found: there is one goroutine, parked in the poller, and no
// thread.
func (r *Runner) follow(b bundle, shim int, child bool) (*Process, error) {
	h, err := openHandle(shim)
	if err != nil {
		return nil, err
	}
	p := &Process{r: r, b: b, shim: shim, child: child, handle: h, done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed() {
		h.close()
		p.err = errClosed
		close(p.done)
		return p, nil
	}
	r.live[p] = struct{}{}
	r.wg.Add(1)
	go p.await()
	return p, nil
}

// followChild is follow for a shim that was started here. It must not fail,
// since the command may run by now: a want of descriptors or memory passes.
func (r *Runner) followChild(b bundle, shim int) *Process {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		p, err := r.follow(b, shim, true)
		if err == nil {
			return p
		}
		r.o.Log.Error("following a shim, trying again", "job", b.id(), "err", err)
		time.Sleep(wait)
	}
}

// await waits for the end of the shim and reads its last word.
func (p *Process) await() {
	defer p.r.wg.Done()
	err := p.handle.await()
	if err != nil {
		p.err = errClosed
	} else {
		if p.child {
			p.reap()
		}
		p.exit, p.err = p.lastWord()
	}
	p.r.mu.Lock()
	delete(p.r.live, p)
	p.r.mu.Unlock()
	p.handle.close()
	close(p.done)
}

// reap takes the exit status of a child that has ended; it says nothing that
// the records do not say.
func (p *Process) reap() {
	for {
		_, err := syscall.Wait4(p.shim, nil, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// lastWord returns the exit record of a shim that is gone. The lock stays the
// truth: the kernel frees it as the process ends, so this sees it held only if
// a fault let another process inherit it, and then the job is not over.
func (p *Process) lastWord() (jobs.Exit, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		held, err := p.b.held()
		if err == nil && !held {
			break
		}
		if wait == time.Second/2 || wait == time.Second {
			p.r.o.Log.Warn("the shim is gone and its lock is not free", "job", p.b.id(), "err", err)
		}
		select {
		case <-time.After(wait):
		case <-p.r.closed:
			return jobs.Exit{}, errClosed
		}
	}
	var rec exitRecord
	err := p.b.readRecord(fileExit, &rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return jobs.Exit{}, fmt.Errorf("the shim of job %s left no record of the end: %w", p.b.id(), jobs.ErrNotFound)
	case err != nil:
		return jobs.Exit{}, err
	}
	return rec.exit(), nil
}

// PID implements [jobs.Process].
func (p *Process) PID() int {
	if p.pid.Load() == 0 {
		// It was found in the middle of its launch.
		var rec startedRecord
		if p.b.readRecord(fileStarted, &rec) == nil {
			p.pid.Store(int64(rec.PID))
		}
	}
	return int(p.pid.Load())
}

// Stop implements [jobs.Process]. The first cause stays. For a shim that is
// gone it does nothing: Wait tells how the job ended. An error of kind
// [jobs.ErrUnavailable] says that the wish could not be recorded and nothing was
// signalled.
func (p *Process) Stop(_ context.Context, cause jobs.Cause) error {
	p.stop.Lock()
	defer p.stop.Unlock()
	select {
	case <-p.done:
		if !errors.Is(p.err, errClosed) {
			return nil
		}
	default:
	}
	rec := stopRecord{Version: recordVersion, Cause: cause, At: fromInstant(p.r.o.Clock())}
	if err := rec.check(); err != nil {
		return &jobs.Error{Kind: jobs.ErrInvalid, Message: fmt.Sprintf("job %s cannot be stopped: %v", p.b.id(), err), Err: err}
	}
	if !p.b.exists(fileStop) {
		err := p.b.writeRecord(fileStop, &rec, true)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			// A full disk must not keep anybody from ending the job that fills it.
			// A file without content needs no room, and its being there is all that
			// the shim looks at.
			err = create(p.b.file(fileStop), nil, os.O_EXCL, true, nil)
		}
		if err != nil {
			return &jobs.Error{Kind: jobs.ErrUnavailable, Message: fmt.Sprintf("the stop of job %s cannot be recorded: %v", p.b.id(), err), Err: err}
		}
	}
	if err := p.handle.signal(unix.SIGTERM); err != nil {
		select {
		case <-p.done: // it ended meanwhile
			return nil
		default:
			return fmt.Errorf("signalling the shim of job %s: %w", p.b.id(), err)
		}
	}
	return nil
}

// Wait implements [jobs.Process].
func (p *Process) Wait(ctx context.Context) (jobs.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	default:
	}
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return jobs.Exit{}, fmt.Errorf("waiting for job %s: %w", p.b.id(), ctx.Err())
	}
}
