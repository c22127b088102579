package jobfile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity changes when the file is written to, replaced or given away.
func identity(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime().String()
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim, st.Mode, st.Uid)
}
