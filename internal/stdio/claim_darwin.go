package stdio

import "golang.org/x/sys/unix"

// dup2 makes to a copy of from, which children get.
func dup2(from, to int) error { return unix.Dup2(from, to) }
