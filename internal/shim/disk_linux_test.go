package shim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jobd/internal/jobs"
	"jobd/internal/shim"
)

// smallDisk mounts a file system of so many bytes for a test. It returns "" to
// one who has no right to mount: then
// TestOutputThatCannotBeWrittenIsDroppedAndCounted and the recorder's own tests
// are what remains.
func smallDisk(t testing.TB, size int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "shimd")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("shim-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size)); err != nil {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
		return ""
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskDropsOutputAndCountsItAndLosesNoEnd(t *testing.T) {
	disk := smallDisk(t, 4<<20)
	if disk == "" {
		return
	}
	r := newRig(t, func(o *shim.Options) { o.BundleDir = filepath.Join(disk, "bundles") })
	r.dir = filepath.Join(disk, "bundles")
	id, p := r.start(`seq -f %015.0f 0 999999; while ! test -e go; do sleep 0.01; done; seq -f %015.0f 1000000 1009999; exit 3`)
	// The job gets through all of it though the disk is full.
	eventually(t, "dropping", func() bool {
		size, err := r.Output(context.Background(), id)
		return err == nil && size.Dropped > 1<<20 && size.Total >= 16_000_000-1<<20
	})
	if size, err := r.Output(context.Background(), id); err != nil || r.onDisk(id) > 4<<20 || size.Total > 16_000_000 {
		t.Errorf("%+v, %v", size, err)
	}
	// Somebody makes room: what comes from then on is kept again.
	head := filepath.Join(r.dir, id, "output", fmt.Sprintf("%020d", 0))
	if err := os.Truncate(head, 16_000); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 20*time.Second); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
	size, err := r.Output(context.Background(), id)
	if err != nil || size.Total != 16_160_000 || size.Dropped != size.Total-r.onDisk(id) {
		t.Errorf("%+v, %v; %d bytes on disk", size, err, r.onDisk(id))
	}
	for at := int64(0); at < size.Total; {
		c, err := r.ReadOutput(context.Background(), id, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		checkNumbered(t, c)
		if at = c.Next; len(c.Data) == 0 {
			break
		}
	}
}

func TestAFullDiskDoesNotKeepAJobFromBeingEnded(t *testing.T) {
	disk := smallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	r := newRig(t, func(o *shim.Options) { o.BundleDir = filepath.Join(disk, "bundles") })
	r.dir = filepath.Join(disk, "bundles")
	id, p := r.start("trap '' TERM; echo ready; while :; do sleep 0.1; done", short(50*time.Millisecond))
	eventually(t, "ready", func() bool { return r.output(id) == "ready\n" })
	fill := filepath.Join(disk, "fill")
	if err := exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4096").Run(); err == nil {
		t.Fatal("the disk cannot be filled")
	}
	r.stop(p, jobs.CauseTimeout)
	eventually(t, "the command has ended", func() bool { return !runs(p.PID()) })
	if rem, err := r.Inspect(context.Background(), id); err != nil || rem.StopAsked == "" || !rem.Held {
		t.Errorf("Inspect gave %+v, %v", rem, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if exit := r.wait(p, 10*time.Second); exit.Signal != int(unix.SIGKILL) || !exit.StopFirst {
		t.Errorf("%+v", exit)
	}
}
