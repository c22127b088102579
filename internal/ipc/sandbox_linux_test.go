package ipc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidUnixSockets makes the kernel refuse every Unix socket to this process
// and all that it starts, as Claude Code's sandbox does (seccomp(2)).
func forbidUnixSockets() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // the low half of args[0]
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_UNIX},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

func TestASandboxWithoutUnixSocketsIsNamed(t *testing.T) {
	dir := room(t)
	path := filepath.Join(dir, "s")
	serve(t, path, &script{})
	runs, exe := program(t, dir, "exit 0")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestHelperAsksFromASandbox$", "-test.v")
	cmd.Env = []string{"IPC_TEST_SANDBOX=" + path, "IPC_TEST_EXE=" + exe, "IPC_TEST_LOCK=" + filepath.Join(dir, "start.lock")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"operation not permitted", "sandbox", path, "allowUnixSockets", "/private" + path} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the error lacks %q: %s", want, out)
		}
	}
	if runs() != 0 {
		t.Error("a start was tried")
	}
}

// TestHelperAsksFromASandbox is the other process of the test above.
func TestHelperAsksFromASandbox(t *testing.T) {
	path := os.Getenv("IPC_TEST_SANDBOX")
	if path == "" {
		return
	}
	if err := forbidUnixSockets(); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Socket: path, Executable: os.Getenv("IPC_TEST_EXE"), StartLock: os.Getenv("IPC_TEST_LOCK")})
	defer c.Close()
	_, err := c.List(soon(t), ListRequest{})
	fmt.Println(err)
}
