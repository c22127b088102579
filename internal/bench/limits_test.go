//go:build bench

package bench

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// limits measures what no program of this kind can be faster than.
func (b *bench) limits(t *testing.T) {
	dir := b.scratch(t)
	var fsyncs, forks, round sample

	sync, done := fsyncer(t, dir)
	for range n(1000) {
		fsyncs.timed(sync)
	}
	done()
	for range n(500) {
		forks.timed(func() { forkExec(t) })
	}
	ping, done := pinger(t, dir)
	for range n(20000) {
		round.timed(ping)
	}
	done()

	b.page.limit = limit{fsync: fsyncs, fork: forks}
	b.page.table("limits", []string{"limit", "p50", "p99", "a second"},
		row("append 4 KiB, fsync", fsyncs), row("fork, exec and wait for `true`", forks), row("200 bytes over a Unix socket and back", round))
}

// row shows a sample of things that were done one after the other.
func row(what string, s sample) []string {
	return []string{what, show(s.p50()), show(s.p99()), rate(1 / s.p50().Seconds())}
}

// fsyncer returns a function that appends a page to a file and waits until it
// is on disk.
func fsyncer(t testing.TB, dir string) (sync, done func()) {
	f, err := os.CreateTemp(dir, "fsync")
	must(t, err)
	page := make([]byte, 4096)
	return func() {
			_, err := f.Write(page)
			must(t, err)
			must(t, f.Sync())
		}, func() {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
}

// forkExec runs true and waits for it, by the system calls alone.
func forkExec(t testing.TB) {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	must(t, err)
	_, err = syscall.Wait4(pid, nil, 0, nil)
	must(t, err)
}

// pinger returns a function that sends 200 bytes over a socket and waits for
// them to come back.
func pinger(t testing.TB, dir string) (ping, done func()) {
	l, err := net.Listen("unix", dir+"/echo.sock")
	must(t, err)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			_ = c.Close()
		}
	}()
	c, err := net.Dial("unix", l.Addr().String())
	must(t, err)
	message := make([]byte, 200)
	return func() {
			_, err := c.Write(message)
			must(t, err)
			_, err = io.ReadFull(c, message)
			must(t, err)
		}, func() {
			_ = c.Close()
			_ = l.Close()
		}
}
