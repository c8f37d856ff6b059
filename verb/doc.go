// Package verb is what a sandbox can ask of the host: the verbs that the user's
// config declares, and those that are built in and act on the workspace. Each
// is a caisson.Tool, so that a request is judged, asked about and recorded like
// any other call.
//
// What a request says becomes arguments of a program, never text of a shell,
// and only where the declaration has a place for it. What is not promised: that
// a declared program does only what its author thinks it does with them.
package verb
