// Package mask hides files of a workspace from what runs in a box of Linux
// namespaces: an empty file or directory that cannot be read is mounted over
// each that matches a pattern, in the mount namespace of the box alone. On the
// host nothing is made and nothing changes.
//
// What is promised: when Renew has returned without an error, no path of the
// workspace that matched a pattern before it was called can be read inside, by
// whatever program, at that name; a link that matches has what it leads to
// masked, where that is in the workspace. The work is bounded by what changed:
// directories are watched, and are all read again only where the kernel has no
// watches left. Where more matches, or there is more to look through, than the
// bounds say, Renew fails, and nothing must run then.
//
// Fixed is for boxes that can be given no mount once they run, container engines'
// for one: what matches when the box is made is masked by its maker, and once
// there is more, Renew fails.
//
// What is not promised: a file that is put there while a command runs can be
// read by that command until the next Renew. Neither can a second name of the
// same file that does not match (a hard link), what a program has open already,
// or what is committed to git, be hidden by masking a name. A link that matches
// can be removed inside, and what it led to is not hidden in the next box then:
// the pattern should name the file. So can a directory that a pattern names be
// renamed, and what is in it then matches no more in the next box; a pattern that
// names the file wherever it is, as **/name does, finds it. Names, and that
// something is there, can be seen. What is called .git is never hidden itself; a
// directory that may not be looked through is hidden as a whole.
package mask
