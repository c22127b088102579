// Package e2e tests jobd with the real binaries only: mcp-stdio, jobd and
// jobd-shim as "make build" makes them, spoken to by raw lines, by the command
// line, and by a real Claude Code that a scripted model drives.
//
// Package rig builds the binaries and gives each test an installation of its
// own; package claudecode drives Claude Code without a network; command tap
// sits between Claude Code and mcp-stdio and writes down every message.
//
// The tests carry the build tag e2e, for they need tmux and Claude Code:
//
//	make e2e
//
// The rules on who may import whom are checked without the tag, by "make test".
package e2e
