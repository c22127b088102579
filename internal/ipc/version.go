package ipc

import "runtime/debug"

// version is set by the linker: -X jobd/internal/ipc.version=1.2.3.
var version string

// Version names the build of this program, for people. It decides nothing:
// [Protocol] does.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
