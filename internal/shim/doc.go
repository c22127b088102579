// Package shim is both ends of a shim, the small process that holds one running
// job: the process itself ([Main], all of cmd/jobd-shim), and [Runner], the
// jobs.Runner by which the daemon starts shims and finds them again.
//
// The two ends share no connection, only a directory, the bundle, and signals.
// So either may be killed, replaced by another version or be absent, and the
// other goes on.
//
// Its one invariant: a job's shim lives exactly as long as the lock on
// shim.lock is held, and it outlives every process of its job. The daemon takes
// the lock and hands it over as an inherited descriptor, so there is no moment
// at which a job may run and the lock is free.
//
// # The bundle
//
// Bundles are directories of mode 0700, their files 0600, whatever the umask.
//
//	spec.json     what to run, and when the job was created; written by Prepare
//	env           the command's whole environment; unlinked once it is launched
//	shim.lock     held = the shim lives; inside, which process it is
//	launch.json   written just before exec: from here on the command may have run
//	started.json  the command's process id and when it started
//	stop          the cause of a stop that was asked for; empty if the disk was
//	              full, which reads as a cancel
//	exit.json     the shim's last word: how the command ended
//	output/       what the command printed, see below
//	shim.log      the shim's own complaints; unlinked at a regular end if empty
//
// Records are JSON with a version. They are written to a temporary name and
// renamed, so that a reader sees all or nothing of one. launch.json, stop and
// exit.json are on disk, names included, before anything follows from them;
// Prepare syncs nothing, since a job that was not launched does not survive a
// reboot anyway.
//
// # Output
//
// Standard output and standard error are one pipe, which the shim copies into
// the files of output/. Each is named by the offset of its first byte in the
// whole output, in 20 decimal digits, so bytes that were not kept are exactly
// the gaps between files. A quarter of the limit keeps the head, the rest the
// tail, in files that are deleted as newer ones need their place. When bytes
// cannot be written (disk full or failing) they are dropped and counted, and a
// file of the right name is begun each second until it works again.
// After exit.json was written, output of processes that the command left behind
// is read but not kept. Output is not synced: a power failure can take the
// end of it, as with any log file.
//
// # Signals to a shim
//
// SIGTERM with the file stop in the bundle ends the job: SIGTERM to the
// command's group, the grace of the spec, SIGKILL, and then every descendant
// until none is left. SIGTERM without it (a logout, a person) is handed on to
// the group, and the command's own end decides. Other signals that would end a
// process are ignored.
//
// # The daemon's life
//
// A daemon holds alive.lock in the state directory by [HoldAlive]. Each shim
// blocks on it in shared mode. A shim that gets it gives it back at once, waits
// 0 to 2 s at random, and unless the lock is taken again or the file "stopped"
// is there, runs its sibling "jobd start". It blocks on the lock again only
// after it has seen it taken, so a new daemon finds it free; until then it looks
// every few seconds.
package shim
