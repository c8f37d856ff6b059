package caisson

import "time"

// Workspace is a git worktree on one branch, with the record of what it is
// bound to. The binding is compared with the disk before anything is done to it.
type Workspace struct {
	ID      WorkspaceID `json:"id"`
	Name    string      `json:"name"`               // unique in its repository; the run's id by default
	Path    string      `json:"path"`               // of the tree, absolute
	Branch  string      `json:"branch"`             // short name: "caisson/r7k2"
	Base    string      `json:"base"`               // commit it started from, full hexadecimal
	BaseRef string      `json:"base_ref,omitempty"` // branch it started from
	Run     RunID       `json:"run,omitempty"`      // that made it
	By      string      `json:"by"`
	Created time.Time   `json:"created"`
	Removed bool        `json:"removed,omitempty"`
	Binding Binding     `json:"binding"`
	Shadow  string      `json:"shadow"` // shadow git directory, absolute
	Cover   string      `json:"cover"`  // file shown in place of Path/.git
	Home    string      `json:"home"`
	Objects []string    `json:"objects"` // object directories borrowed read-only, also those of submodules and of Git LFS
	// Submodules of the base; their trees are the workspace's own, and shown
	// inside only.
	Submodules []Submodule `json:"submodules,omitempty"`
}

// Submodule is a submodule of a workspace's base.
type Submodule struct {
	Name       string `json:"name"`
	Path       string `json:"path"`                 // in the tree
	Commit     string `json:"commit"`               // that the base records
	Tree       string `json:"tree"`                 // on the host, shown inside at Path; of a nested one, in that of the one it is in
	GitDir     string `json:"git_dir,omitempty"`    // inside, in the shadow; "" where Empty is set
	Repository string `json:"repository,omitempty"` // outside, whose objects it borrows; "" where Empty is set
	Nested     bool   `json:"nested,omitempty"`     // in the tree of another one
	Empty      string `json:"empty,omitempty"`      // why nothing is in it, in a clause
}

// Binding is what a workspace is bound to.
type Binding struct {
	CommonDir  string `json:"common_dir"` // absolute, links resolved
	Device     uint64 `json:"device"`     // of CommonDir
	Inode      uint64 `json:"inode"`      // of CommonDir
	RootCommit string `json:"root_commit"`
	AdminDir   string `json:"admin_dir"` // CommonDir/worktrees/<n>
	Branch     string `json:"branch"`
	TreeDevice uint64 `json:"tree_device"` // of the worktree's directory
	TreeInode  uint64 `json:"tree_inode"`
}

// Digest returns the binding's digest, which is part of every call's.
func (b Binding) Digest() Digest {
	raw, err := CanonicalOf(b)
	if err != nil { // a struct of strings and numbers always marshals
		panic(err)
	}
	return DigestOf(raw)
}
