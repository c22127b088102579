package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/clock"
	"jobd/internal/jobs"
)

const (
	// defaultGrace is the time between TERM and KILL where the spec does not say.
	defaultGrace = 10 * time.Second
	// drainFor is how long output is waited for after the command's end, where a
	// process that it left behind keeps the pipe open.
	drainFor = 200 * time.Millisecond
	// pipeSize is what the pipe is made to hold, and copySize what is read at
	// once.
	pipeSize = 256 << 10
	copySize = 128 << 10
)

// The descriptors that the daemon hands over, beside the standard ones. With the
// arguments of Main and the ready message they are fixed for ever: a daemon may
// start a shim of a newer version.
const (
	fdLock  = 3 // shim.lock, locked
	fdReady = 4 // the pipe for the ready message
)

// A readyMessage is what a shim tells the daemon that started it, as one JSON
// object, before it closes the pipe.
type readyMessage struct {
	PID        int    `json:"pid,omitempty"`
	NotStarted string `json:"not_started,omitempty"`
}

// A holder is the shim process. All of it is used by the main goroutine, which
// alone forks, reaps and signals: so a process id it signals by is never one
// that was reaped.
type holder struct {
	b     bundle
	dir   string // of the shim's own binary, links resolved
	clock jobs.Clock
	spec  jobs.Spec
	lock  *os.File // kept, since a file that is collected is closed
	ready *os.File

	reaper bool // orphans of the job become our children
	chld   chan os.Signal
	term   chan os.Signal

	main     int  // the command's process, 0 before and after its life
	children bool // whether the last wait saw any child
	exit     exitRecord

	stopping  bool // a stop was asked for
	signalled bool // and the command was alive when it was carried out
	killAt    time.Time
	alarm     <-chan time.Time // at killAt, and each second after

	out    *recorder
	pipe   *os.File      // its read end
	copied chan struct{} // closed when the copying is over

	revive  chan chan bool // requests of the watch to start a daemon
	started map[int]chan<- bool
	watch   *watch
}

// Main is the shim process, all of it but the tuning of the runtime. Arguments:
// the bundle, and the state directory of the daemon to watch, if any. It returns
// the process's exit code: 0 when the job is over and recorded, 2 when it was
// not started by a daemon.
func Main(args []string) int {
	h, err := newHolder(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jobd-shim:", err)
		return 2
	}
	if !h.launch() {
		h.tidy()
		return 0
	}
	h.run()
	h.drain()
	h.finish()
	h.tidy()
	return 0
}

// complain writes to the bundle's shim.log.
func complain(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "jobd-shim: "+format+"\n", a...)
}

// newHolder makes this process a shim: it owns nothing but what it was handed,
// handles its signals, and has said in shim.lock which process it is.
func newHolder(args []string) (*holder, error) {
	if len(args) < 1 || len(args) > 2 || !filepath.IsAbs(args[0]) {
		return nil, errors.New("this program holds a job of jobd and is started by it only; see jobd --help")
	}
	h := &holder{b: bundle(args[0]), started: map[int]chan<- bool{}, revive: make(chan chan bool)}
	h.lock = os.NewFile(fdLock, fileLock)
	if err := h.isLock(); err != nil {
		return nil, err
	}
	if err := adopt(); err != nil {
		return nil, fmt.Errorf("closing inherited descriptors: %w", err)
	}
	h.ready = os.NewFile(fdReady, "ready")
	syscall.Umask(0o077)

	h.chld, h.term = make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(h.chld, unix.SIGCHLD)
	signal.Notify(h.term, unix.SIGTERM)
	// Not signal.Ignore: that would be inherited by the command. What is caught
	// is set back to its default by exec, even where this process was started
	// with it ignored.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGPIPE, unix.SIGALRM, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)

	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the shim's own directory: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		exe = resolved
	}
	h.dir = filepath.Dir(exe)
	if h.clock, err = clock.New(); err != nil {
		return nil, err
	}
	h.reaper = becomeReaper()
	if len(args) == 2 && args[1] != "" {
		h.watch = &watch{dir: args[1], revive: h.revive}
	}
	return h, h.sign()
}

// isLock checks that what was handed over is the bundle's lock file.
func (h *holder) isLock() error {
	var have, want unix.Stat_t
	if unix.Fstat(fdLock, &have) != nil || unix.Lstat(h.b.file(fileLock), &want) != nil ||
		have.Dev != want.Dev || have.Ino != want.Ino {
		return fmt.Errorf("descriptor %d is not the lock of %s; this program is started by jobd only", fdLock, h.b)
	}
	return nil
}

// sign writes into the lock file which process this is. From here on a daemon
// can attach, so signals are handled by now.
func (h *holder) sign() error {
	self, err := readProc(os.Getpid())
	if err != nil {
		return fmt.Errorf("reading this process's start time: %w", err)
	}
	raw, err := encode(&shimRecord{Version: recordVersion, PID: self.pid, Start: self.start, BootID: h.clock().BootID})
	if err != nil {
		return err
	}
	if _, err := h.lock.WriteAt(raw, 0); err != nil {
		// On a full disk the job can run all the same; a later daemon cannot
		// attach to it, but sees that it lives.
		complain("writing %s: %v", h.b.file(fileLock), err)
	}
	return nil
}

// adopt closes every inherited descriptor but the two that were handed over, and
// makes those close-on-exec. The descriptors of the Go runtime are known by
// being close-on-exec already, which none is that was inherited.
func adopt() error {
	d, err := os.Open(selfDescriptors)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case err != nil || flags&unix.FD_CLOEXEC != 0:
		case fd == fdLock || fd == fdReady:
			unix.CloseOnExec(fd)
		default:
			_ = unix.Close(fd)
		}
	}
	return nil
}

// launch starts the command, or records why it did not start. It reports
// whether it runs.
func (h *holder) launch() bool {
	var rec specRecord
	if err := h.b.readRecord(fileSpec, &rec); err != nil {
		return h.notStarted(err, false)
	}
	h.spec = rec.Spec
	environ, err := h.b.readEnviron()
	if err != nil {
		return h.notStarted(err, false)
	}
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return h.notStarted(err, false)
	}
	defer stdin.Close()
	pipe, output, err := os.Pipe()
	if err != nil {
		return h.notStarted(fmt.Errorf("making the pipe for its output: %w", err), false)
	}
	defer output.Close()
	enlargePipe(int(output.Fd()))
	// As every command expects it. The read end stays non-blocking, for the
	// poller.
	if err := unix.SetNonblock(int(output.Fd()), false); err != nil {
		return h.notStarted(fmt.Errorf("making the pipe for its output: %w", err), false)
	}

	// The intent, durable with the names that lead to it.
	err = h.b.writeRecord(fileLaunch, &launchRecord{Version: recordVersion, At: fromInstant(h.clock())}, true)
	if err == nil {
		err = syncDir(filepath.Dir(string(h.b)))
	}
	if err != nil {
		return h.notStarted(fmt.Errorf("recording the launch: %w", err), false)
	}
	if h.b.exists(fileStop) {
		return h.notStarted(errors.New("it was stopped before it was started"), true)
	}
	c := command{argv: h.spec.Argv, dir: h.spec.Dir, environ: environ, umask: h.spec.Umask, soft: h.spec.NoFile, hard: h.spec.NoFileMax}
	pid, err := c.start(stdin, output)
	if err != nil {
		return h.notStarted(err, false)
	}
	at := h.clock()
	h.main, h.pipe = pid, pipe
	h.forget()
	if err := h.b.writeRecord(fileStarted, &startedRecord{Version: recordVersion, PID: pid, At: fromInstant(at)}, false); err != nil {
		complain("recording the start: %v", err)
	}
	h.tell(readyMessage{PID: pid})
	h.out = newRecorder(h.b.file(dirOutput), h.spec.OutputLimit)
	h.copied = make(chan struct{})
	go copyOutput(h.out, h.pipe, h.copied)
	go syncSpec(h.b)
	if h.watch != nil {
		go h.watch.run()
	}
	return true
}

// copyOutput copies until the end of the pipe or its deadline, and then closes
// done.
func copyOutput(to io.Writer, from io.Reader, done chan<- struct{}) {
	defer close(done)
	buf := make([]byte, copySize)
	for {
		n, err := from.Read(buf)
		_, _ = to.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// forget removes the environment, and with it its secrets.
func (h *holder) forget() {
	if err := os.Remove(h.b.file(fileEnv)); err != nil && !errors.Is(err, os.ErrNotExist) {
		complain("removing the environment: %v", err)
	}
}

// tell sends the ready message. A daemon that is gone is no reason to stop.
func (h *holder) tell(m readyMessage) {
	if raw, err := json.Marshal(m); err == nil {
		_, _ = h.ready.Write(append(raw, '\n'))
	}
	_ = h.ready.Close()
}

// notStarted records that nothing ran, and why.
func (h *holder) notStarted(why error, stopFirst bool) bool {
	exit := exitRecord{Version: recordVersion, NotStarted: why.Error(), Code: -1, StopFirst: stopFirst, At: fromInstant(h.clock())}
	if err := h.b.writeRecord(fileExit, &exit, true); err != nil {
		complain("recording that nothing was started (%v): %v", why, err)
		// Without the record, the intent must not stand either: it would say that
		// the command may have run. This needs no room on the disk.
		_ = os.Remove(h.b.file(fileLaunch))
		_ = syncDir(string(h.b))
	}
	h.forget()
	h.tell(readyMessage{NotStarted: why.Error()})
	return false
}

// run holds the job until its command was reaped.
func (h *holder) run() {
	for h.main != 0 {
		h.event(nil)
	}
}

// event waits for one event and handles it. timeout may be nil.
func (h *holder) event(timeout <-chan time.Time) {
	var copied <-chan struct{}
	if h.main == 0 {
		copied = h.copied
	}
	select {
	case <-h.chld:
		h.reap()
	case <-h.term:
		h.terminate()
	case <-h.alarm:
		h.kill()
	case reply := <-h.revive:
		h.startDaemon(reply)
	case <-copied:
		h.copied = nil
	case <-timeout:
	}
}

// reap takes the exit status of every child that has ended.
func (h *holder) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // ECHILD
			h.children = false
			return
		case pid == 0:
			h.children = true
			return
		}
		if pid == h.main {
			h.main = 0
			h.exit = exitOf(status)
			h.exit.StopFirst = h.signalled
			h.exit.At = fromInstant(h.clock())
			// What is drained from now on is bounded. It fails only for a file that
			// is not pollable, which a pipe is.
			_ = h.pipe.SetReadDeadline(time.Now().Add(drainFor))
		}
		if reply := h.started[pid]; reply != nil {
			delete(h.started, pid)
			reply <- status.Exited() && status.ExitStatus() == 0
		}
	}
}

// terminate handles a SIGTERM to this process.
func (h *holder) terminate() {
	h.reap() // a command that ended before the signal ended by itself
	if h.main == 0 || h.stopping {
		return
	}
	if h.b.exists(fileStop) {
		h.stopping, h.signalled = true, true
		grace := h.spec.Grace
		if grace <= 0 {
			grace = defaultGrace
		}
		h.killAt = time.Now().Add(grace)
		h.alarm = time.After(grace)
	}
	h.signalGroup(unix.SIGTERM)
	h.signalGroup(unix.SIGCONT) // one that is stopped gets to handle it
}

// signalGroup signals the command's group, and the command itself if it has
// left that. The command was not reaped, so both ids are its own.
func (h *holder) signalGroup(sig unix.Signal) {
	_ = unix.Kill(-h.main, sig)
	if group, err := unix.Getpgid(h.main); err == nil && group != h.main {
		_ = unix.Kill(h.main, sig)
	}
}

// kill ends the command and everything below it once the grace is over. Until
// they are gone it is done again each second.
func (h *holder) kill() {
	h.alarm = nil
	h.reap()
	if h.main == 0 {
		return
	}
	h.signalGroup(unix.SIGKILL)
	k := killing{hunt: h.hunt(), killAt: h.killAt}
	if _, err := k.round(time.Now()); err != nil {
		complain("ending the job: %v", err)
	}
	h.alarm = time.After(time.Second)
}

// hunt says which processes are the job's.
func (h *holder) hunt() hunt {
	q := hunt{self: os.Getpid(), root: os.Getpid(), dir: h.dir}
	if !h.reaper {
		q.session = os.Getpid() // the shim leads it
	}
	if !h.reaper || h.stopping {
		q.mark = markName + "=" + h.b.id()
	}
	return q
}

// drain waits until the output is copied, or the time for that is over.
func (h *holder) drain() {
	for h.copied != nil {
		h.event(nil)
	}
	h.out.close()
	total, kept := h.out.size()
	h.exit.OutputTotal, h.exit.OutputDropped = total, total-kept
	// What is left behind must neither block on a full pipe nor be killed by a
	// closed one.
	go func() {
		_ = h.pipe.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, h.pipe)
	}()
}

// finish records the end and ends what the command left behind, until both are
// done.
func (h *holder) finish() {
	recorded := h.record()
	retry := time.Now().Add(retryAfter)
	killAt := time.Now().Add(leftoverGrace)
	if h.killAt.After(killAt) {
		killAt = h.killAt // a stop's grace is for the whole job
	}
	k := killing{hunt: h.hunt(), killAt: killAt}
	gone := false
	for n := 0; ; n++ {
		if h.reap(); !gone {
			gone = h.gone(&k)
		}
		if !recorded && !time.Now().Before(retry) {
			recorded = h.record()
			retry = time.Now().Add(retryAfter)
		}
		if gone && recorded {
			return
		}
		wait := pause(n)
		if gone {
			wait = time.Until(retry)
		}
		for next := time.After(wait); next != nil; {
			select {
			case <-next:
				next = nil
			case <-h.chld:
				if h.reap(); h.reaper && !h.children {
					next = nil
				}
			case <-h.term: // it is ending
			case reply := <-h.revive:
				h.startDaemon(reply)
			}
		}
	}
}

// gone reports whether no process of the job is left, after having signalled
// those that are.
func (h *holder) gone(k *killing) bool {
	if h.reaper && !h.children && k.hunt.mark == "" {
		return true // known without a look at the process table
	}
	left, err := k.round(time.Now())
	if err != nil {
		complain("ending what is left: %v", err)
		return left // given up, or the table cannot be read: try again
	}
	return !left
}

// syncSpec makes the record durable that a damaged database is rebuilt from.
// Prepare does not, and here nobody waits for it.
func syncSpec(b bundle) {
	f, err := os.Open(b.file(fileSpec))
	if err == nil {
		err = f.Sync()
		_ = f.Close()
	}
	if err != nil {
		complain("syncing the spec: %v", err)
	}
}

// record writes exit.json. It reports whether that is on disk.
func (h *holder) record() bool {
	if err := h.b.writeRecord(fileExit, &h.exit, true); err != nil {
		complain("recording the end, trying again: %v", err)
		return false
	}
	return true
}

// startDaemon runs the sibling jobd start. The answer is sent when it has
// ended.
func (h *holder) startDaemon(reply chan<- bool) {
	pid, err := h.spawnDaemon()
	if err != nil {
		complain("starting jobd: %v", err)
		reply <- false
		return
	}
	h.started[pid] = reply
}

// spawnDaemon runs jobd start with this process's own environment, which is the
// one the daemon gave it for this. It leads a session, so no sweep takes it for
// a part of the job.
func (h *holder) spawnDaemon() (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	fd := null.Fd()
	return syscall.ForkExec(filepath.Join(h.dir, "jobd"), []string{"jobd", "start", "--unless-stopped"}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{fd, fd, fd}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// tidy removes the log if there is nothing in it, and sees that there is a
// daemon to read what was recorded.
func (h *holder) tidy() {
	if fi, err := os.Stderr.Stat(); err == nil && fi.Size() == 0 && fi.Mode().IsRegular() {
		_ = os.Remove(h.b.file(fileLog))
	}
	if h.watch != nil && h.watch.missing() {
		if _, err := h.spawnDaemon(); err != nil {
			complain("starting jobd: %v", err)
		}
	}
}
