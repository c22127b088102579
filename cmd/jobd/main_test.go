package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"jobd/internal/shim"
)

// testBin is the directory of the programs under test: this test binary under
// the names of jobd and jobd-shim, so that they carry its race detector.
var testBin string

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "jobd":
		main()
	case "jobd-shim":
		os.Exit(shim.Main(os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "jobd-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err == nil {
		err = errors.Join(copyFile(exe, filepath.Join(dir, "jobd")), copyFile(exe, filepath.Join(dir, "jobd-shim")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Some tests run the programs as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	testBin = dir
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// copyFile links where it can.
func copyFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
