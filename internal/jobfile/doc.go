// Package jobfile reads job files: YAML files that declare commands as tools.
//
// [Parse] reads the bytes of one file. What is wrong in it is told as a
// [Fault], with line and column, and costs the job that it is in, never the
// others: a file that is no YAML at all costs that file. [Job.Bind] checks the
// arguments of a call and makes of them what the command is given: whole
// elements of its argument list, variables, and a file; nothing is ever put
// into the text of a shell.
//
// A [Catalog] finds the files of a project and of the user, and knows which of
// them may be used: a project's file needs the person's trust ([Trust]), which
// holds for the bytes that were seen and no others; a user's file must be
// closed to other users.
//
// The keys of a job are described once, in keys.go: the parser, the schema for
// editors ([Schema]) and the reference in docs/job-files.md are all made of it.
package jobfile
