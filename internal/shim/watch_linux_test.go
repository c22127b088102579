package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// waitBlocked waits until a thread of this process is blocked on a lock.
func waitBlocked(t *testing.T) {
	t.Helper()
	blocked := regexp.MustCompile(fmt.Sprintf(`-> FLOCK +ADVISORY +READ +%d `, os.Getpid()))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		if blocked.Match(raw) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not watch")
		}
	}
}

func TestAHandOverIsNoDeath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	hold := func() *os.File {
		t.Helper()
		f, err := HoldAlive(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	revive := make(chan chan bool)
	waiting, look := make(chan bool), make(chan bool)
	w := &watch{dir: dir, revive: revive, spread: func() time.Duration {
		waiting <- true
		<-look
		return 0
	}}
	old := hold()
	ended := make(chan bool)
	go func() {
		w.run()
		close(ended)
	}()
	for range 3 {
		waitBlocked(t)
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		<-waiting // it knows that the lock fell free, and has given it back
		old = hold()
		look <- true
	}
	waitBlocked(t)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	<-waiting
	look <- true
	select {
	case reply := <-revive: // the fourth time nobody followed, and only then
		old = hold()
		reply <- true
		waitBlocked(t)
	case <-waiting:
		t.Fatal("it waits again, and nobody lives")
	}
	// Without the directory there is nothing to watch, and it ends.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		select {
		case <-waiting:
			look <- true
		case <-ended:
			done = true
		}
	}
}
