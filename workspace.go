package caisson

import "time"

// WorkspaceMode is the way in which a workspace is made, so that no git of the
// host opens a git directory that an agent writes.
type WorkspaceMode string

// Ways to make a workspace. The empty mode, of records that have none, is
// WorkspaceWorktree.
const (
	// WorkspaceWorktree is a worktree of the repository. Inside, its .git is
	// covered by a file that leads to a git directory of the sandbox's own.
	WorkspaceWorktree WorkspaceMode = "worktree"
	// WorkspaceClone is a tree whose .git is a git directory of its own, which
	// the agent writes; nothing has to be covered. The repository has the branch
	// and no record of the tree.
	WorkspaceClone WorkspaceMode = "clone"
)

// Workspace is a tree on one branch of a repository, a git worktree or a private
// clone, with the record of what it is bound to. The binding is compared with
// the disk before anything is done to it.
type Workspace struct {
	ID      WorkspaceID   `json:"id"`
	Name    string        `json:"name"` // unique in its repository; the run's id by default
	Mode    WorkspaceMode `json:"mode,omitempty"`
	Path    string        `json:"path"`               // of the tree, absolute
	Branch  string        `json:"branch"`             // short name: "caisson/r7k2"
	Base    string        `json:"base"`               // commit it started from, full hexadecimal
	BaseRef string        `json:"base_ref,omitempty"` // branch it started from
	// Settings is the commit that the repository's settings and workflows are read
	// at, where Base is not a person's choice. Empty: Base.
	Settings string    `json:"settings,omitempty"`
	Run      RunID     `json:"run,omitempty"` // that made it
	By       string    `json:"by"`
	Created  time.Time `json:"created"`
	Removed  bool      `json:"removed,omitempty"`
	Binding  Binding   `json:"binding"`
	Shadow   string    `json:"shadow"` // git directory that is used inside, absolute; of a clone Path/.git
	Cover    string    `json:"cover"`  // file shown in place of Path/.git; of a clone empty
	Home     string    `json:"home"`
	Objects  []string  `json:"objects"` // object directories borrowed read-only, also those of submodules and of Git LFS
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
	CommonDir  string `json:"common_dir"`            // absolute, links resolved
	Device     uint64 `json:"device"`                // of CommonDir
	Inode      uint64 `json:"inode"`                 // of CommonDir
	RootCommit string `json:"root_commit,omitempty"` // where it was recorded; what tells the repository from another is the reference that keeps the base
	AdminDir   string `json:"admin_dir"`             // CommonDir/worktrees/<n>; of a clone empty
	Branch     string `json:"branch"`
	TreeDevice uint64 `json:"tree_device"` // of the tree's directory
	TreeInode  uint64 `json:"tree_inode"`

	// Of the directory of objects that is lent first, and of the shadow. Zero
	// where they were not recorded; then they are not compared.
	ObjectsDevice uint64 `json:"objects_device,omitempty"`
	ObjectsInode  uint64 `json:"objects_inode,omitempty"`
	ShadowDevice  uint64 `json:"shadow_device,omitempty"`
	ShadowInode   uint64 `json:"shadow_inode,omitempty"`
}

// Digest returns the binding's digest, which is part of every call's.
func (b Binding) Digest() Digest {
	raw, err := CanonicalOf(b)
	if err != nil { // a struct of strings and numbers always marshals
		panic(err)
	}
	return DigestOf(raw)
}
