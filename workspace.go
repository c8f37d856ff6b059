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
	Objects []string    `json:"objects"` // object directories borrowed read-only
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
