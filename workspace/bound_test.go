package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// The main checkout may be in any state. Origin: reading of peers.
func TestCase_K06(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"detached":  "switch -q --detach",
		"rebasing":  "!rebase -q elsewhere",
		"merging":   "!merge -q elsewhere",
		"bisecting": "bisect start",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			ws := wd.create(workspace.CreateSpec{Base: "main"})
			for _, branch := range []string{"elsewhere", "main"} {
				if branch == "elsewhere" {
					wd.git("switch", "-q", "-c", branch)
				} else {
					wd.git("switch", "-q", branch)
				}
				wd.write(filepath.Join(wd.repo, "a.txt"), branch+"\n")
				wd.git("commit", "-qam", branch)
			}
			line, fails := strings.CutPrefix(lines, "!")
			if out, err := wd.tryGit(wd.repo, strings.Fields(line)...); (err != nil) != fails {
				t.Fatalf("git %s: %v %s", line, err, out)
			}
			before := wd.git("status", "--porcelain=v2", "--branch")
			box := newBox(t, ws)
			inside(t, box, "echo x >x; git add x; git commit -q -m inside; echo later >y")
			if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved {
				t.Fatalf("%+v", got)
			}
			if _, err := wd.w.Snapshot(t.Context(), ws, box, "r6", 1); err != nil {
				t.Fatal(err)
			}
			if got := wd.diff(ws, box, workspace.DiffOptions{Stat: true}); !strings.Contains(got, " y ") {
				t.Fatalf("%q", got)
			}
			if _, err := wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "elsewhere"}); err != nil {
				t.Fatal(err)
			}
			if after := wd.git("status", "--porcelain=v2", "--branch"); after != before {
				t.Fatalf("the main checkout was changed:\n%s\n%s", before, after)
			}
		})
	}
}

// What a person does with git's own commands is no forgery: it holds, or it is
// told where things are now.
func TestCheckAfterGitWorktree(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r1"})
	wd.git("worktree", "unlock", ws.Path)
	wd.must(wd.w.Check(t.Context(), ws))
	wd.git("worktree", "lock", "--reason", "mine", ws.Path)
	wd.must(wd.w.Check(t.Context(), ws))
	wd.git("pack-refs", "--all")
	wd.git("gc", "-q")
	wd.must(wd.w.Check(t.Context(), ws))

	moved := filepath.Join(wd.home, "moved")
	wd.git("worktree", "move", "-f", "-f", ws.Path, moved)
	err := wd.w.Check(t.Context(), ws)
	wd.lost(err, "tree")
	if e := caisson.AsError(err); e.Detail["found"] != moved || !strings.Contains(e.HintText(), "git worktree move") {
		t.Fatalf("it is not told where it is: %v %s", e.Detail, e.HintText())
	}
	wd.git("worktree", "move", "-f", "-f", moved, ws.Path)
	wd.must(wd.w.Check(t.Context(), ws))

	wd.write(filepath.Join(ws.Path, ".git"), "gitdir: /nowhere\n")
	wd.lost(wd.w.Check(t.Context(), ws), "pointer")
	wd.git("worktree", "repair")
	wd.must(wd.w.Check(t.Context(), ws))

	// Newer git writes pointers relative where the person wants it so.
	relative := func(from, to string) string {
		name, err := filepath.Rel(from, to)
		wd.must(err)
		return name + "\n"
	}
	wd.write(filepath.Join(ws.Path, ".git"), "gitdir: "+relative(ws.Path, ws.Binding.AdminDir))
	wd.write(filepath.Join(ws.Binding.AdminDir, "gitdir"), relative(ws.Binding.AdminDir, filepath.Join(ws.Path, ".git")))
	wd.must(wd.w.Check(t.Context(), ws))

	wd.git("branch", "-m", ws.Branch, "renamed")
	err = wd.w.Check(t.Context(), ws)
	wd.lost(err, "branch")
	if !strings.Contains(err.Error(), "renamed") {
		t.Fatal(err)
	}
	wd.git("branch", "-m", "renamed", ws.Branch)
	wd.must(wd.w.Check(t.Context(), ws))
}

// Check runs no program: not even git has to be there.
func TestCheckStartsNothing(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	without := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Git: "/nowhere/git"})
	wd.must(without.Check(t.Context(), ws))
	if _, err := without.Log(t.Context(), ws, 0); caisson.CodeOf(err) != caisson.CodeGitMissing {
		t.Fatalf("there is a git after all: %v", err)
	}
}

// A record of an earlier version has no numbers of what is lent.
func TestCheckOfOldRecord(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	b := &ws.Binding
	b.ObjectsDevice, b.ObjectsInode, b.ShadowDevice, b.ShadowInode = 0, 0, 0, 0
	wd.must(wd.w.Check(t.Context(), ws))
	wd.importOK(ws, newBox(t, ws), workspace.ImportOptions{})
}

// An index that has a second name elsewhere is not written through it.
func TestIndexIsLinkedElsewhere(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	index, second := filepath.Join(ws.Binding.AdminDir, "index"), filepath.Join(wd.home, "second")
	wd.must(os.Link(index, second))
	before, err := os.ReadFile(second)
	wd.must(err)
	box := newBox(t, ws)
	inside(t, box, "echo x >x; git add x; git commit -q -m inside")
	if got := wd.importOK(ws, box, workspace.ImportOptions{}); !got.Moved || got.IndexKept != "" {
		t.Fatalf("%+v", got)
	}
	if after, err := os.ReadFile(second); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("it was written: %v", err)
	}
}

// What is unlocked is the shadow that the workspace is bound to.
func TestUnlockOfAnotherShadow(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	other := filepath.Join(wd.home, "other")
	wd.write(filepath.Join(other, "index.lock"), "mine")
	wd.swap(ws.Shadow, func(path, _ string) error { return os.Symlink(other, path) })
	wd.lost(wd.w.Unlock(ws), "shadow")
	if !exists(filepath.Join(other, "index.lock")) {
		t.Fatal("a lock of another's was removed")
	}
}

// decoy makes a directory that looks like a workspace's tree and holds what
// nobody may see.
func (wd *world) decoy(ws caisson.Workspace) string {
	wd.t.Helper()
	decoy := ws.Path + ".decoy"
	pointer, err := os.ReadFile(filepath.Join(ws.Path, ".git"))
	wd.must(err)
	wd.write(filepath.Join(decoy, ".git"), string(pointer))
	wd.write(filepath.Join(decoy, "secret.txt"), "s3cret-content\n")
	wd.write(filepath.Join(decoy, "dep", ".git", "HEAD"), "ref: refs/heads/main\n")
	return decoy
}

// The tree is exchanged for another all the while: nothing is read from that, and
// nothing in it is changed.
func TestTreeIsExchangedMeanwhile(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	decoy := wd.decoy(ws)
	before := digestOf(t, decoy)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		swapped := false
		for ctx.Err() == nil || swapped {
			if err := unix.Renameat2(unix.AT_FDCWD, decoy, unix.AT_FDCWD, ws.Path, unix.RENAME_EXCHANGE); err != nil {
				ended <- err
				return
			}
			swapped = !swapped
		}
		ended <- nil
	}()
	okay, lost := 0, 0
	look := func(err error) {
		t.Helper()
		switch {
		case err == nil:
			okay++
		case caisson.CodeOf(err) == caisson.CodeWorkspaceBindingLost:
			lost++
		default:
			t.Error(err)
		}
	}
	for n := range 12 {
		inside(t, box, "echo x >>x; git add x; git commit -q -m inside")
		_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
		look(err)
		snap, err := wd.w.Snapshot(t.Context(), ws, box, "r6", n)
		look(err)
		if err == nil && strings.Contains(wd.git("ls-tree", "-r", "--name-only", snap.Commit), "secret") {
			t.Error("the other tree was kept")
		}
		var out bytes.Buffer
		look(wd.w.Diff(t.Context(), ws, box, workspace.DiffOptions{Out: &out}))
		if strings.Contains(out.String(), "s3cret") {
			t.Error("the other tree was shown")
		}
	}
	stop()
	wd.must(<-ended)
	t.Logf("%d went on, %d were told", okay, lost)
	if digestOf(t, decoy) != before {
		t.Error("the other tree was changed")
	}
	wd.must(wd.w.Check(t.Context(), ws))
}

// The tree is exchanged between the look at it and the opening of a box.
func TestTreeIsExchangedBeforeABoxIsOpened(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	decoy := wd.decoy(ws)
	before := digestOf(t, decoy)
	closed := 0
	w := workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Box: func(context.Context, caisson.Workspace) (workspace.OpenedBox, error) {
		err := unix.Renameat2(unix.AT_FDCWD, decoy, unix.AT_FDCWD, ws.Path, unix.RENAME_EXCHANGE)
		return closingBox{newBox(t, ws), &closed}, err
	}})
	var out bytes.Buffer
	wd.lost(w.Diff(t.Context(), ws, nil, workspace.DiffOptions{Out: &out}), "tree")
	if out.Len() > 0 || closed != 1 {
		t.Fatalf("%q, closed %d times", out.String(), closed)
	}
	if digestOf(t, ws.Path) != before { // where it is now
		t.Error("the other tree was changed")
	}
}

type closingBox struct {
	*box
	closed *int
}

func (b closingBox) Close() error {
	*b.closed++
	return nil // the test closes it
}

// Everything that is opened of a tree is opened in the directory that is bound.
func TestGitlinkIsLookedForInTheBoundTree(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{})
	box := newBox(t, ws)
	inside(t, box, "mkdir dep; git update-index --add --cacheinfo 160000,"+strings.Repeat("1", 40)+",dep; git commit -q -m 'a submodule'")
	decoy := wd.decoy(ws)
	before := digestOf(t, decoy)
	swap := swappingBox{box, func() {
		if err := unix.Renameat2(unix.AT_FDCWD, decoy, unix.AT_FDCWD, ws.Path, unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}}
	_, err := wd.w.Import(t.Context(), ws, swap, workspace.ImportOptions{})
	wd.lost(err, "tree")
	if digestOf(t, ws.Path) != before {
		t.Error("the other tree was changed")
	}
	if tip := wd.git("rev-parse", ws.Branch); tip != ws.Base {
		t.Error("the branch was moved")
	}
}

// swappingBox does something on the host when a program is started inside.
type swappingBox struct {
	*box
	swap func()
}

func (b swappingBox) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	b.swap()
	return b.box.Hold(ctx, cmd)
}

// A workspace whose private directory is a link is removed, and what the link
// leads to stays as it is.
func TestRemoveWithLinkedPrivateDirectory(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "")
	victim := filepath.Join(wd.home, "victim")
	wd.write(filepath.Join(victim, "git", "HEAD"), "mine\n")
	wd.must(os.Chmod(victim, 0o755))
	before := digestOf(t, victim)
	wd.swap(filepath.Dir(ws.Shadow), func(path, _ string) error { return os.Symlink(victim, path) })
	wd.remove(discard(t, wd.inspect(ws)))
	if exists(ws.Path) {
		t.Error("it was not removed")
	}
	wd.must(wd.w.Prune(t.Context(), ws.ID))
	if digestOf(t, victim) != before {
		t.Fatal("what the link leads to was changed")
	}
}
