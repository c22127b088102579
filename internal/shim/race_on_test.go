//go:build race

package shim_test

// raceEnabled: the binaries of the tests are built with the race detector too.
const raceEnabled = true
