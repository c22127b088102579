package ipc

import "golang.org/x/sys/unix"

// peerUID returns the user at the other end of a connected Unix socket
// (SO_PEERCRED, unix(7)).
func peerUID(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}
