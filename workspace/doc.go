// Package workspace makes and keeps workspaces: git worktrees that an agent may
// write without ever writing a git directory that the host's git opens. It is
// the only caller of git.
//
// An agent works against a shadow git directory. What it commits is fetched
// out of the box through a stream that git inside the box serves; the host
// looks at the objects, checks them, and moves exactly one branch by
// compare-and-set. The host's git never walks a tree that an agent can write,
// never opens a shadow, and never reads the configuration of the repository:
// it works on a view of the repository, a git directory of ours whose objects
// and references are the repository's and whose configuration is not.
//
// What this package does not promise: anything about the git that a person
// runs by hand in a tree that an agent writes.
package workspace
