// Package stdio is a transport for the official Go SDK of the Model Context
// Protocol over a pair of byte streams, one message a line, that no input can
// kill: whatever a client sends gets the error that JSON-RPC 2.0 and MCP
// prescribe, or is ignored where they say so, and the next request works.
//
//	in, out, err := stdio.Claim() // first of all: nothing but MCP reaches stdout
//	t := stdio.New(in, out, stdio.Options{})
//	err = t.Serve(ctx, server, nil)
package stdio
