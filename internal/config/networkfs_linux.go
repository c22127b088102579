package config

import "golang.org/x/sys/unix"

// networkFS returns the kind of network file system that path is on, "" for a
// local one.
func networkFS(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", err
	}
	return networkKind(uint32(st.Type)), nil
}

// networkKind names the file systems by their magic numbers (statfs(2)).
func networkKind(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "SMB"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	}
	return ""
}
