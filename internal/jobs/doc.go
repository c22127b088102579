// Package jobs is the domain: what a job is, how it moves from state to state,
// and the supervisor that moves it.
//
// It imports the standard library only. The database and the processes are
// behind the interfaces [Store] and [Runner], the machine's clocks behind
// [Clock]; package sqlite, package shim and package clock implement them.
//
// Its one invariant: intent comes before effect. Whatever the supervisor is
// about to do to a process is in the store first, so a daemon that is killed
// at any moment is replaced by one that knows what may have happened.
package jobs
