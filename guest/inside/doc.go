// Package inside is the half of the guest that runs inside the boundary, as its
// first process: it holds, releases and ends commands, reaps what nobody else
// reaps, and reads and writes files of the workspace, for the host at the other
// end of one stream. When that stream ends it ends every process inside and returns.
//
// What is promised: that a command's whole tree is known and ended whatever it
// does (every command has a parent of its own that its orphans fall to, and
// that ends after all of them), that a command that floods or does not read
// holds up neither the guest nor another command, and that a path is resolved
// beneath the workspace alone.
//
// What is not promised: confinement, and that it works in a program built with
// the race detector, which cannot follow holders. The guest runs inside the boundary that
// the engine made, with no more rights than what it starts.
package inside
