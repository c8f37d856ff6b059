//go:build linux

package workspace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/workspace"
)

// Work that has something of every kind to lose.
const muchToLose = `set -e
printf '.env\n' >.gitignore; git add -A; git commit -qm unpushed
echo gone >gone; git add gone; git commit -qm logged; git reset -q --hard HEAD~1
echo a >>a.txt; git stash -q; git branch side; git tag -a v1 -m one
echo KEY=1 >.env; echo s >staged; git add staged; echo loose >loose; mkdir empty; ln -s nowhere link; chmod 750 sub`

// remover does what removerEnv says: a verb, a state directory and a file with
// a permit. It is killed where the environment says.
func remover() int {
	words := strings.Split(os.Getenv(removerEnv), "\n")
	ctx := context.Background()
	ledger, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(words[1], "ledger.db")})
	var permit workspace.Permit
	if err == nil {
		var raw []byte
		if raw, err = os.ReadFile(words[2]); err == nil {
			err = json.Unmarshal(raw, &permit)
		}
	}
	if err == nil {
		w := workspace.New(workspace.Options{StateDir: words[1], Ledger: ledger})
		id := permit.Inspection.Workspace.ID
		switch words[0] {
		case "remove":
			_, err = w.Remove(ctx, permit, "ada")
		case "restore":
			_, err = w.Restore(ctx, id)
		case "prune":
			err = w.Prune(ctx, id)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

const removerEnv = "CAISSON_TEST_REMOVER"

// killed runs a remover that is to be killed at the nth pass of a point. It
// tells whether it was.
func (wd *world) killed(verb string, permit workspace.Permit, point string, n int) bool {
	wd.t.Helper()
	raw, err := json.Marshal(permit)
	wd.must(err)
	path := filepath.Join(wd.home, "permit")
	wd.write(path, string(raw))
	cmd := exec.CommandContext(wd.t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOME="+wd.home, removerEnv+"="+strings.Join([]string{verb, wd.state, path}, "\n"), fault.Env+"="+fmt.Sprintf("%s=crash@%d", point, n))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return true
	}
	if err != nil {
		wd.t.Fatalf("%s: %v: %s", verb, err, out)
	}
	return false
}

// tidied brings to an end what a killed process had begun, and tells whether
// the workspace is in the trash.
func (wd *world) tidied(ws caisson.Workspace) bool {
	wd.t.Helper()
	wd.must(wd.open().Tidy(wd.t.Context()))
	if n := residue(wd.t.(*testing.T), wd); n > 0 {
		wd.t.Errorf("%d things are left", n)
	}
	recorded, err := wd.store.Workspace(wd.t.Context(), ws.ID)
	wd.must(err)
	list, err := wd.w.Trash("")
	wd.must(err)
	if in := len(list) == 1; in != recorded.Removed || in == exists(ws.Path) {
		wd.t.Fatalf("recorded as removed: %v; in the trash: %v; at its place: %v", recorded.Removed, in, exists(ws.Path))
	}
	return recorded.Removed
}

// A remover is killed at each of its steps, and at each of its writes. What it
// had begun goes back or on, and nothing is lost.
func TestKilledRemover(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, muchToLose)
	wd.inspect(ws) // imports
	before := wd.everything(ws)
	back, on := 0, 0
	for _, point := range []string{"workspace.trash.step", "atomicfile.place.before", "atomicfile.place.after"} {
		for n := 1; ; n++ {
			permit := discard(t, wd.inspect(ws))
			if !wd.killed("remove", permit, point, n) {
				if n < 3 {
					t.Fatalf("%s was passed %d times", point, n-1)
				}
				wd.restore(ws)
				break
			}
			if wd.tidied(ws) {
				on++
				ws = wd.restore(ws)
			} else {
				back++
			}
			if diff := cmp.Diff(before, wd.everything(ws)); diff != "" {
				t.Fatalf("killed at %s %d: %s", point, n, diff)
			}
		}
	}
	if back < 5 || on < 5 {
		t.Errorf("it went back %d times and on %d times", back, on)
	}
}

// discarded removes a workspace with all that it has. What a process that was
// killed had started may live for a moment more, and nothing is removed under it.
func (wd *world) discarded(t *testing.T, ws caisson.Workspace) workspace.Permit {
	t.Helper()
	for n := 1; ; n++ {
		permit := discard(t, wd.inspect(ws))
		_, err := wd.w.Remove(t.Context(), permit, "ada")
		if err == nil {
			return permit
		}
		if caisson.CodeOf(err) != caisson.CodeWorkspaceDirty || n == 10 {
			t.Fatal(err)
		}
	}
}

func TestKilledRestorer(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, muchToLose)
	wd.inspect(ws)
	before := wd.everything(ws)
	for _, point := range []string{"workspace.trash.step", "atomicfile.place.before"} {
		for n := 1; ; n++ {
			permit := wd.discarded(t, ws)
			killed := wd.killed("restore", permit, point, n)
			if wd.tidied(ws) {
				ws = wd.restore(ws)
			}
			if diff := cmp.Diff(before, wd.everything(ws)); diff != "" {
				t.Fatalf("killed at %s %d: %s", point, n, diff)
			}
			if !killed {
				if n < 2 {
					t.Fatalf("%s was never passed", point)
				}
				break
			}
		}
	}
}

func TestKilledPruner(t *testing.T) {
	t.Parallel()
	for n, killed := 1, true; killed; n++ {
		wd, ws := trashWorld(t, "")
		permit := discard(t, wd.inspect(ws))
		wd.remove(permit)
		killed = wd.killed("prune", permit, "workspace.trash.step", n)
		at := filepath.Join(wd.state, "trash", string(ws.ID))
		if exists(filepath.Join(at, "note")) && !exists(at+".lock") {
			t.Errorf("killed at %d: there is something to prune, and no lock", n)
		}
		wd.must(wd.open().Tidy(t.Context()))
		wd.wantGone(ws)
		if !killed && n < 5 {
			t.Fatalf("it passed %d steps", n-1)
		}
	}
}

// wantGone checks that nothing is left of a workspace.
func (wd *world) wantGone(ws caisson.Workspace) {
	wd.t.Helper()
	if refs := wd.git("for-each-ref", "refs/caisson"); refs != "" {
		wd.t.Errorf("references are left: %s", refs)
	}
	for _, path := range []string{ws.Path, filepath.Dir(ws.Home), ws.Binding.AdminDir, filepath.Join(wd.state, "trash", string(ws.ID)), filepath.Join(wd.state, "trash", string(ws.ID)+".lock")} {
		if exists(path) {
			wd.t.Errorf("%s is left", path)
		}
	}
	if list, err := wd.w.Trash(""); err != nil || len(list) > 0 {
		wd.t.Errorf("in the trash: %v, %v", list, err)
	}
	if _, err := wd.w.Restore(wd.t.Context(), ws.ID); caisson.CodeOf(err) != caisson.CodeNotFound {
		wd.t.Errorf("restore: %v", err)
	}
}

// The disk is full at each step of a removal and of a restore.
func TestTrashOnFullDisk(t *testing.T) {
	wd, ws := trashWorld(t, muchToLose)
	wd.inspect(ws)
	before := wd.everything(ws)
	for _, point := range []string{"workspace.trash.step", "atomicfile.sync"} {
		for n, failed := int64(1), true; failed; n++ {
			permit := discard(t, wd.inspect(ws))
			disarm := fault.Arm(point, fault.ENOSPC, n)
			_, err := wd.w.Remove(t.Context(), permit, "ada")
			if failed = err != nil; failed {
				wantCode(t, err, caisson.CodeDiskFull)
			} else {
				_, err = wd.w.Restore(t.Context(), ws.ID) // passes the rest of the points
				if failed = err != nil; failed {
					wantCode(t, err, caisson.CodeDiskFull)
				}
			}
			disarm()
			if wd.tidied(ws) {
				ws = wd.restore(ws)
			}
			if diff := cmp.Diff(before, wd.everything(ws)); diff != "" {
				t.Fatalf("full at %s %d: %s", point, n, diff)
			}
		}
	}
}

// The trash, and then the repository, are on other file systems.
func TestTrashElsewhere(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, muchToLose)
	if os.Getuid() != 0 {
		t.Skip("needs root to make a file system")
	}
	wd.inspect(ws)
	before := wd.everything(ws)
	at := filepath.Join(wd.state, "trash")
	wd.must(os.MkdirAll(at, 0o700))
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() { wd.must(syscall.Unmount(at, 0)) })
	permit := discard(t, wd.inspect(ws))
	wd.remove(permit)
	if exists(ws.Path) || exists(filepath.Join(at, string(ws.ID), "tree")) {
		t.Fatal("it is not beside its place")
	}
	if diff := cmp.Diff(before, wd.everything(wd.restore(ws))); diff != "" {
		t.Error(diff)
	}
	for n := 1; n <= 9; n++ {
		permit := discard(t, wd.inspect(ws))
		if wd.killed("remove", permit, "workspace.trash.step", n) == false {
			t.Fatal("it was not killed")
		}
		if wd.tidied(ws) {
			ws = wd.restore(ws)
		}
		if diff := cmp.Diff(before, wd.everything(ws)); diff != "" {
			t.Fatalf("killed at %d: %s", n, diff)
		}
	}
	wd.remove(discard(t, wd.inspect(ws)))
	wd.must(wd.w.Prune(t.Context(), ws.ID))
	wd.wantGone(ws)
}

// A restorer was killed when the branch was there again and its log was not.
// What somebody did with the branch since stays in the log.
func TestRestoreLogOfBranchThatIsThere(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "git commit -q --allow-empty -m one; git commit -q --amend --allow-empty -m other; git reset -q --hard HEAD~1")
	permit := discard(t, wd.inspect(ws))
	path := filepath.Join(wd.repo, ".git", "logs", "refs", "heads", ws.Branch)
	before, err := os.ReadFile(path)
	wd.must(err)
	trashed := wd.remove(permit)
	if !trashed.BranchDeleted || len(before) == 0 {
		t.Fatalf("the branch is deleted: %v; its log: %q", trashed.BranchDeleted, before)
	}
	branch := "refs/heads/" + ws.Branch
	wd.git("update-ref", "--create-reflog", "-m", "caisson: restore workspace "+ws.Name, branch, trashed.Tip)
	other := wd.git("commit-tree", "-m", "x", "HEAD^{tree}")
	wd.git("update-ref", "-m", "there", branch, other)
	wd.git("update-ref", "-m", "back", branch, trashed.Tip)
	wd.restore(ws)
	after, err := os.ReadFile(path)
	wd.must(err)
	since, is := strings.CutPrefix(string(after), string(before))
	if lines := strings.Split(since, "\n"); !is || len(lines) != 3 || !strings.HasSuffix(lines[0], "\tthere") || !strings.HasSuffix(lines[1], "\tback") {
		t.Errorf("was:\n%sis:\n%s", before, after)
	}
}

// A worktree's record that names its tree from where it is goes with it, and
// comes back.
func TestRemoveWithRelativePointer(t *testing.T) {
	t.Parallel()
	wd, ws := trashWorld(t, "")
	admin := ws.Binding.AdminDir
	to, err := filepath.Rel(admin, filepath.Join(ws.Path, ".git"))
	wd.must(err)
	wd.write(filepath.Join(admin, "gitdir"), to+"\n")
	wd.must(os.RemoveAll(filepath.Join(admin, "locked")))
	wd.inspect(ws) // imports
	before := wd.everything(ws)
	wd.remove(discard(t, wd.inspect(ws)))
	if exists(admin) {
		t.Error("the record stayed")
	}
	if diff := cmp.Diff(before, wd.everything(wd.restore(ws))); diff != "" {
		t.Error(diff)
	}
}
