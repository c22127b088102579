// Package frontend is the MCP face of jobd: the tools and resources that a
// client sees, the results it is given, and what happens where a client cannot
// do what the Tasks extension asks of it. It owns no job and keeps nothing on
// disk; all it knows of jobs it asks of the daemon, by package ipc.
//
// One [Frontend] serves one connection. A call takes this way: package
// mcptasks decodes it, a tool's handler checks the arguments, [Frontend]
// submits the job under a request key, waits for as long as this client may be
// kept waiting, and answers with the result, a handle or a question. What the
// client asks of its tasks later goes through store.go.
package frontend
