package workspace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson"
)

// loss is a part of a binding that does not hold.
type loss struct {
	part        string
	says        string
	want, found string
	hint        string
}

func (l *loss) of(ws caisson.Workspace) error {
	e := caisson.Errorf(caisson.CodeWorkspaceBindingLost, "workspace %s: %s", ws.Name, l.says).With("part", l.part)
	if l.want != "" {
		e = e.With("want", l.want).With("found", printable(l.found))
	}
	if l.hint != "" {
		e = e.WithHint("%s Nothing was followed or changed.", l.hint)
	}
	return e
}

// Check compares what a workspace is bound to with the disk, without starting
// a process and without following anything that is found: the repository, the
// worktree's directory, the pointers between them, the branch, and what a box
// is lent. CodeWorkspaceBindingLost, with the part that differs in detail
// "part", and where it can be said in a line what it should be and is in "want"
// and "found". The state of the main checkout is no part of it.
func (w *Workspaces) Check(_ context.Context, ws caisson.Workspace) error {
	if isClone(ws) {
		return firstLoss(ws, repositoryLost, treeLost, w.cloneLost, lentLost)
	}
	return firstLoss(ws, repositoryLost, treeLost, pointerLost, recordLost, branchLost, shadowLost, lentLost)
}

// checkRepository is Check for what only reads objects and references of the
// repository: its tree may be in any state.
func (w *Workspaces) checkRepository(_ context.Context, ws caisson.Workspace) error {
	return firstLoss(ws, repositoryLost)
}

func firstLoss(ws caisson.Workspace, parts ...func(caisson.Workspace) *loss) error {
	for _, lost := range parts {
		if l := lost(ws); l != nil {
			return l.of(ws)
		}
	}
	return nil
}

// repositoryLost looks whether it is the repository that the workspace was made
// in. Numbers of directories are used again; the reference that keeps the base
// bears the workspace's id.
func repositoryLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	if dev, ino, err := directoryID(b.CommonDir); err != nil || dev != b.Device || ino != b.Inode {
		return &loss{part: "repository", says: "its repository is not where it was, or is another"}
	}
	name := pin(ws.ID, "base")
	if kept := refAsData(b.CommonDir, name); kept != ws.Base {
		return &loss{
			part: "base", says: "its repository does not keep its base, as " + name + " did", want: ws.Base, found: kept,
			hint: "If it is the right repository, `git update-ref " + name + " " + ws.Base + "` mends it.",
		}
	}
	return nil
}

// treeLost looks at the tree's directory. A move by the person is told, and not
// followed: who could write the record could name any directory there.
func treeLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	if is(ws.Path, b.TreeDevice, b.TreeInode) {
		return nil
	}
	l := &loss{part: "tree", says: "its directory is gone, or is another"}
	if back, err := pointer(filepath.Join(b.AdminDir, "gitdir"), ""); err == nil && b.AdminDir != "" {
		to := filepath.Dir(absolute(back, b.AdminDir))
		if to != ws.Path && is(to, b.TreeDevice, b.TreeInode) {
			l.says, l.want, l.found = "its directory was moved to "+printable(to), ws.Path, to
			l.hint = "`git worktree move -f -f` brings it back."
		}
	}
	return l
}

func pointerLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	to, err := pointer(filepath.Join(ws.Path, ".git"), "gitdir: ")
	if err == nil && absolute(to, ws.Path) == b.AdminDir {
		return nil
	}
	return &loss{
		part: "pointer", says: "the .git file in its tree was changed", want: b.AdminDir, found: to,
		hint: "`git worktree repair` writes it again, if its record in the repository is right.",
	}
}

// recordLost looks at the worktree's record in the repository.
func recordLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	worktrees := filepath.Dir(b.AdminDir)
	if worktrees != filepath.Join(b.CommonDir, "worktrees") {
		return &loss{part: "admin", says: "its record in the repository is elsewhere", want: filepath.Join(b.CommonDir, "worktrees"), found: worktrees}
	}
	for _, dir := range []string{worktrees, b.AdminDir} {
		if _, _, err := directoryID(dir); err != nil {
			return &loss{part: "admin", says: "its record in the repository is gone"}
		}
	}
	// A person may lock or unlock it for reasons of their own.
	why, err := readInside(b.AdminDir, "locked", 4096)
	if err == nil && bytes.HasPrefix(why, []byte("caisson: workspace ")) && !bytes.Contains(why, []byte("("+string(ws.ID)+")")) {
		return &loss{part: "admin", says: "its record in the repository is of another workspace", want: string(ws.ID), found: string(why)}
	}
	back, err := pointer(filepath.Join(b.AdminDir, "gitdir"), "")
	if err != nil || absolute(back, b.AdminDir) != filepath.Join(ws.Path, ".git") {
		return &loss{
			part: "back-pointer", says: "its record in the repository names another tree", want: filepath.Join(ws.Path, ".git"), found: back,
			hint: "`git worktree repair " + ws.Path + "` writes it again, if that is the right tree.",
		}
	}
	common, err := pointer(filepath.Join(b.AdminDir, "commondir"), "")
	if err != nil || absolute(common, b.AdminDir) != b.CommonDir {
		return &loss{part: "common", says: "its record in the repository names another repository", want: "../..", found: common}
	}
	return nil
}

func branchLost(ws caisson.Workspace) *loss {
	head, err := pointer(filepath.Join(ws.Binding.AdminDir, "HEAD"), "ref: refs/heads/")
	if err == nil && head == ws.Binding.Branch && head == ws.Branch {
		return nil
	}
	l := &loss{part: "branch", says: "its tree is not on branch " + ws.Branch + " any more", want: ws.Branch, found: head}
	if head != "" {
		l.says += ", but on " + printable(head)
		l.hint = "If it was renamed, `git branch -m` names it as it was."
	}
	return l
}

// shadowLost looks at what is shown inside in place of the repository's git
// directory. What is in the shadow is the agent's; the directory is not.
func shadowLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	private := filepath.Dir(ws.Shadow)
	if inTree(ws) {
		return nil // opened only from the tree
	}
	if filepath.Base(private) != string(ws.ID) || filepath.Dir(ws.Cover) != private || filepath.Dir(ws.Home) != private {
		return &loss{part: "shadow", says: "its git directory inside is another workspace's"}
	}
	for _, dir := range []string{private, ws.Shadow, ws.Home} {
		if _, _, err := directoryID(dir); err != nil {
			return &loss{part: "shadow", says: "its git directory inside, or its home, is gone, or is no directory"}
		}
	}
	if b.ShadowInode != 0 && !is(ws.Shadow, b.ShadowDevice, b.ShadowInode) {
		return &loss{part: "shadow", says: "its git directory inside is another"}
	}
	if to, err := pointer(ws.Cover, "gitdir: "); err != nil || to != ws.Shadow {
		return &loss{part: "cover", says: "the file that covers .git inside was changed", want: ws.Shadow, found: to}
	}
	return nil
}

// lentLost looks at the directories of objects that a box is lent. One that is
// gone is lent to nobody, and told by git inside.
func lentLost(ws caisson.Workspace) *loss {
	b := ws.Binding
	for i, dir := range ws.Objects {
		if _, err := os.Lstat(dir); i > 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, _, err := directoryID(dir); err != nil || i == 0 && b.ObjectsInode != 0 && !is(dir, b.ObjectsDevice, b.ObjectsInode) {
			return &loss{part: "objects", says: "the objects that it borrows are gone, or are another's", want: dir}
		}
	}
	return nil
}

// inTree tells whether the git directory that is used inside is in the tree,
// where an agent may put anything in its place.
func inTree(ws caisson.Workspace) bool {
	return strings.HasPrefix(ws.Shadow, ws.Path+"/")
}

// boundTree opens a workspace's tree: the very directory that it is bound to,
// whatever stands at its path a moment later.
func boundTree(ws caisson.Workspace) (*os.Root, error) {
	return openBound(ws, ws.Path, ws.Binding.TreeDevice, ws.Binding.TreeInode, "tree")
}

// boundShadow opens the git directory that is used inside.
func boundShadow(ws caisson.Workspace) (*os.Root, error) {
	if !inTree(ws) {
		return openBound(ws, ws.Shadow, ws.Binding.ShadowDevice, ws.Binding.ShadowInode, "shadow")
	}
	tree, err := boundTree(ws)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	name := strings.TrimPrefix(ws.Shadow, ws.Path+"/")
	info, err := tree.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fs.ErrInvalid
	}
	var root *os.Root
	if err == nil {
		root, err = tree.OpenRoot(name) // a link that came since leads nowhere but into the tree
	}
	if err != nil {
		return nil, (&loss{part: "shadow", says: "its git directory inside is gone, or is no directory of its tree"}).of(ws)
	}
	return root, nil
}

func openBound(ws caisson.Workspace, path string, device, inode uint64, part string) (*os.Root, error) {
	lost := (&loss{part: part, says: "the directory " + path + " is gone, or is another"}).of(ws)
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, lost
	}
	info, err := root.Stat(".")
	if err == nil && inode != 0 {
		if dev, ino, ok := idOf(info); !ok || dev != device || ino != inode {
			err = lost
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// absolute is the place that a pointer names, which git writes absolute or, where
// the person wants so, from where the pointer is. Links are not followed.
func absolute(to, from string) string {
	if filepath.IsAbs(to) || to == "" {
		return to
	}
	return filepath.Join(from, to)
}

// is tells whether path is that directory.
func is(path string, device, inode uint64) bool {
	dev, ino, err := directoryID(path)
	return err == nil && dev == device && ino == inode
}

// directoryID returns device and inode of a directory that is not a link.
func directoryID(path string) (device, inode uint64, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	device, inode, ok := idOf(info)
	if !ok {
		return 0, 0, syscall.ENOTDIR
	}
	return device, inode, nil
}

func idOf(info fs.FileInfo) (device, inode uint64, directory bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, 0, false
	}
	return uint64(stat.Dev), stat.Ino, true //nolint:unconvert // narrower on other systems
}

// maxPacked bounds the list of references of a repository that is read.
const maxPacked = 512 << 20

// refAsData returns what a reference of a repository holds, read without git; ""
// where there is none.
func refAsData(common, name string) string {
	if id, err := pointer(filepath.Join(common, name), ""); err == nil {
		return id
	}
	packed, err := readInside(common, "packed-refs", maxPacked)
	if err != nil {
		return ""
	}
	at := bytes.Index(packed, []byte(" "+name+"\n"))
	if at < 0 {
		return ""
	}
	start := bytes.LastIndexByte(packed[:at], '\n') + 1
	return string(packed[start:at])
}
