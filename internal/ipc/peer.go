package ipc

import (
	"fmt"
	"net"
	"syscall"
)

// checkPeer refuses a connection whose other end is not this user's. The
// permissions of the directory keep others out already; this holds where they
// were loosened, or where somebody else made the directory first. Root is no
// exception: it can become the user.
func checkPeer(c net.Conn, uid int) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a connection of type %T has no peer to check", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return fmt.Errorf("looking at the peer: %w", err)
	}
	var peer int
	var perr error
	if err := raw.Control(func(fd uintptr) { peer, perr = peerUID(int(fd)) }); err != nil {
		return fmt.Errorf("looking at the peer: %w", err)
	}
	if perr != nil {
		return fmt.Errorf("looking at the peer: %w", perr)
	}
	if peer != uid {
		return fmt.Errorf("the other end belongs to user %d, not to %d", peer, uid)
	}
	return nil
}
