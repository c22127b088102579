package stdio

import "golang.org/x/sys/unix"

// dup2 makes to a copy of from, which children get. Some Linux ports have no
// dup2.
func dup2(from, to int) error { return unix.Dup3(from, to, 0) }
