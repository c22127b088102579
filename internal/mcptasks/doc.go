// Package mcptasks adds the Tasks extension of the Model Context Protocol
// (SEP-2663, revision 2026-07-28, extension id "io.modelcontextprotocol/tasks")
// to a server of the official Go SDK, and the multi round-trip of tools/call
// (SEP-2322) that belongs to it.
//
// It knows nothing of where tasks live: they are behind a [Store], which is
// asked for the snapshot that one client may see. A [Handler] of a tool answers
// a call with a result, with a handle to a task, or with questions:
//
//	ext := mcptasks.New(store, mcptasks.Options{})
//	opts := &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}}
//	ext.Declare(opts.Capabilities)
//	server := mcp.NewServer(impl, opts)
//	ext.Attach(server)
//	ext.AddTool(server, tool, mcptasks.TaskOptional, handler)
//	err := server.Run(ctx, ext.Wrap(transport))
//
// Whether a client takes tasks is looked up in each request, never in what it
// said before on the same connection: see [Client].
//
// [Extension.Wrap] gives what the SDK's middleware cannot: subscriptions to
// tasks, the exact parameters of requests, the moment a reply is written, and
// the experimental tasks of the 2025-11-25 revision for clients that initialize
// with it. Without it (the SDK's HTTP handler makes its own transports)
// everything else works.
package mcptasks
