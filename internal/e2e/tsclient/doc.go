// Package tsclient tests mcp-stdio with clients that others wrote: the official
// TypeScript client with its Tasks package, whose schemas are strict, by
// drive.mjs; and the Inspector's command lines. Each drives run_job, in the modern
// and in the older protocol, and tools of a job file that ask.
//
// The tests carry the build tag e2e, for they need the npm packages that .ci/run
// installs.
package tsclient
