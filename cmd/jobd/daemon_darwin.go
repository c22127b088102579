package main

import (
	"context"

	"golang.org/x/sys/unix"
)

// redirect makes descriptor to another name of from.
func redirect(from, to int) error { return unix.Dup2(from, to) }

// closeOnExec keeps the descriptors that this process was given, beyond the
// standard three, from the processes that it starts. A program that starts us
// without care must not have its pipes held open by a daemon.
func closeOnExec() { closeOnExecEach("/dev/fd") }

// watchRemovals watches nothing here; the daemon looks by itself from time to
// time.
func watchRemovals(ctx context.Context, _ string, _ []string, _ chan<- struct{}) error {
	<-ctx.Done()
	return nil
}
