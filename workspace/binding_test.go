package workspace_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// forgery changes what a workspace is bound to, on disk or on record. other is a
// repository of the person's with a workspace of its own, second one of the same
// repository.
type forgery struct {
	part  string // that is told
	forge func(wd *world, ws *caisson.Workspace, other string, second caisson.Workspace)
}

// swap puts another directory in the place of path.
func (wd *world) swap(path string, other func(path, away string) error) {
	wd.t.Helper()
	away := path + ".away"
	wd.must(os.Rename(path, away))
	wd.must(other(path, away))
}

func again(path, away string) error { return os.CopyFS(path, os.DirFS(away)) }
func link(path, away string) error  { return os.Symlink(away, path) }
func gone(string, string) error     { return nil }
func empty(path, _ string) error    { return os.Mkdir(path, 0o755) }

var forgeries = map[string]forgery{
	"pointer": {"pointer", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.write(filepath.Join(ws.Path, ".git"), "gitdir: "+other+"/.git\n")
	}},
	"pointer to another workspace": {"pointer", func(wd *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		wd.write(filepath.Join(ws.Path, ".git"), "gitdir: "+second.Binding.AdminDir+"\n")
	}},
	"pointer is empty": {"pointer", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.write(filepath.Join(ws.Path, ".git"), "")
	}},
	"pointer is gone": {"pointer", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Path, ".git"), gone)
	}},
	"pointer is a link": {"pointer", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Path, ".git"), link)
	}},
	"pointer is a pipe": {"pointer", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Path, ".git"), func(path, _ string) error { return unix.Mkfifo(path, 0o644) })
	}},
	"pointer is a repository": {"pointer", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Path, ".git"), func(path, _ string) error { return os.CopyFS(path, os.DirFS(filepath.Join(other, ".git"))) })
	}},
	"tree swapped":   {"tree", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Path, again) }},
	"tree is a link": {"tree", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Path, link) }},
	"tree is gone":   {"tree", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Path, gone) }},
	"tree is another workspace's": {"tree", func(wd *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		wd.swap(ws.Path, func(path, _ string) error { return os.Rename(second.Path, path) })
	}},
	"something is mounted over the tree": {"tree", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		if err := unix.Mount(other, ws.Path, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
			wd.t.Skipf("needs to mount: %v", err)
		} else if err != nil {
			wd.t.Fatal(err)
		}
		wd.t.Cleanup(func() { wd.must(unix.Unmount(ws.Path, unix.MNT_DETACH)) })
	}},
	"repository moved":  {"repository", func(wd *world, _ *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(wd.repo, gone) }},
	"repository copied": {"repository", func(wd *world, _ *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(wd.repo, again) }},
	"git directory linked": {"repository", func(wd *world, _ *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(wd.repo, ".git"), link)
	}},
	"repository made anew in its directory": {"base", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		git := filepath.Join(wd.repo, ".git")
		for _, name := range []string{"refs", "objects", "packed-refs", "HEAD", "logs", "index"} {
			wd.must(os.RemoveAll(filepath.Join(git, name)))
		}
		wd.git("init", "-q")
		wd.git("commit", "-qm", "anew", "--allow-empty")
		wd.git("update-ref", "refs/heads/"+ws.Branch, "HEAD")
	}},
	"base not kept": {"base", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.git("update-ref", "-d", "refs/caisson/workspaces/"+string(ws.ID)+"/base")
	}},
	"common directory": {"common", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.write(filepath.Join(ws.Binding.AdminDir, "commondir"), other+"/.git\n")
	}},
	"common directory is a link": {"common", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Binding.AdminDir, "commondir"), link)
	}},
	"back-pointer": {"back-pointer", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.write(filepath.Join(ws.Binding.AdminDir, "gitdir"), other+"/.git\n")
	}},
	"back-pointer to another workspace": {"back-pointer", func(wd *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		wd.write(filepath.Join(ws.Binding.AdminDir, "gitdir"), second.Path+"/.git\n")
	}},
	"record is gone": {"admin", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.must(os.RemoveAll(ws.Binding.AdminDir))
	}},
	"record is a link": {"admin", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(ws.Binding.AdminDir, link)
	}},
	"records are elsewhere": {"admin", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Dir(ws.Binding.AdminDir), link)
	}},
	"records are exchanged": {"admin", func(wd *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		wd.swap(ws.Binding.AdminDir, func(path, _ string) error { return os.Rename(second.Binding.AdminDir, path) })
	}},
	"another branch": {"branch", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.gitIn(ws.Path, "switch", "-qc", "elsewhere")
	}},
	"detached": {"branch", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.gitIn(ws.Path, "switch", "-q", "--detach")
	}},
	"branch renamed": {"branch", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.git("branch", "-m", ws.Branch, "renamed")
	}},
	"head is a link": {"branch", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Join(ws.Binding.AdminDir, "HEAD"), link)
	}},
	"shadow swapped": {"shadow", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Shadow, again) }},
	"shadow is a link": {"shadow", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.swap(ws.Shadow, func(path, _ string) error { return os.Symlink(filepath.Join(other, ".git"), path) })
	}},
	"shadow is gone": {"shadow", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(filepath.Dir(ws.Shadow), gone)
	}},
	"home is a link": {"shadow", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) {
		wd.swap(ws.Home, func(path, _ string) error { return os.Symlink(wd.home, path) })
	}},
	"cover": {"cover", func(wd *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		wd.write(ws.Cover, "gitdir: "+other+"/.git\n")
	}},
	"cover is a link":    {"cover", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Cover, link) }},
	"cover is gone":      {"cover", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Cover, gone) }},
	"objects swapped":    {"objects", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Objects[0], again) }},
	"objects are a link": {"objects", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Objects[0], link) }},
	"objects are empty":  {"objects", func(wd *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { wd.swap(ws.Objects[0], empty) }},

	"on record with another's tree": {"tree", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) { ws.Path = second.Path }},
	"on record with another's record": {"pointer", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		ws.Binding.AdminDir = second.Binding.AdminDir
	}},
	"on record with another's binding": {"tree", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) { ws.Binding = second.Binding }},
	"on record with another's branch":  {"branch", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) { ws.Branch = second.Branch }},
	"on record with another's shadow":  {"shadow", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) { ws.Shadow = second.Shadow }},
	"on record with another's private directory": {"shadow", func(_ *world, ws *caisson.Workspace, _ string, second caisson.Workspace) {
		ws.Shadow, ws.Cover, ws.Home = second.Shadow, second.Cover, second.Home
	}},
	"on record under another's id": {"base", func(_ *world, ws *caisson.Workspace, _ string, _ caisson.Workspace) { ws.ID = caisson.NewWorkspaceID() }},
	"on record with a record elsewhere": {"pointer", func(_ *world, ws *caisson.Workspace, other string, _ caisson.Workspace) {
		ws.Binding.AdminDir = filepath.Join(other, ".git")
	}},
}

// Origin: the class of GHSA-q5hj, where a forged pointer led a host's git into
// another repository.
func TestCase_W06(t *testing.T) {
	t.Parallel()
	for name, f := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wd := newWorld(t)
			other := filepath.Join(filepath.Dir(wd.repo), "other")
			wd.must(os.Mkdir(other, 0o755))
			wd.gitIn(other, "init", "-q")
			wd.gitIn(other, "commit", "-q", "--allow-empty", "-m", "other")
			ws := wd.create(workspace.CreateSpec{Name: "r6"})
			second := wd.create(workspace.CreateSpec{Name: "second"})
			box := newBox(t, ws)
			inside(t, box, "git commit -q --allow-empty -m inside")
			wd.must(wd.w.Check(t.Context(), ws))
			watched := wd.w.Watch()
			watched.TrustAtOnce()
			for range 3 {
				wd.must(watched.Check(t.Context(), ws))
			}
			if n := watched.Reads(); n != 1 {
				t.Errorf("its files were read %d times", n)
			}
			f.forge(wd, &ws, other, second)
			before, used := digestOf(t, filepath.Dir(wd.repo)), box.used()
			wd.lost(wd.w.Check(t.Context(), ws), f.part)
			wd.lost(watched.Check(t.Context(), ws), f.part)
			wd.lost(watched.Check(t.Context(), ws), f.part)
			_, err := wd.w.Import(t.Context(), ws, box, workspace.ImportOptions{})
			wd.lost(err, f.part)
			_, err = wd.w.Snapshot(t.Context(), ws, box, "r6", 1)
			wd.lost(err, f.part)
			wd.lost(wd.w.Diff(t.Context(), ws, box, workspace.DiffOptions{Out: io.Discard}), f.part)
			_, err = wd.w.Merge(t.Context(), ws, workspace.MergeOptions{Into: "main"})
			wd.lost(err, f.part)
			if f.part == "repository" || f.part == "base" { // what only reads the repository
				_, err = wd.w.Log(t.Context(), ws, 0)
				wd.lost(err, f.part)
				wd.lost(wd.w.Diff(t.Context(), ws, box, workspace.DiffOptions{To: "HEAD", Out: io.Discard}), f.part)
			}
			if box.used() != used {
				t.Error("something was done in the box")
			}
			if digestOf(t, filepath.Dir(wd.repo)) != before {
				t.Error("something was changed")
			}
		})
	}
}

// What was just written is read again: a change within the same step of a clock
// does not show in its times. References may be packed meanwhile.
func TestWatchedReadsWhatIsFresh(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r6"})
	watched := wd.w.Watch()
	for range 2 {
		wd.must(watched.Check(t.Context(), ws))
	}
	if n := watched.Reads(); n != 2 {
		t.Errorf("files that were just written were read %d times", n)
	}
	watched.TrustAtOnce()
	wd.must(watched.Check(t.Context(), ws))
	wd.git("pack-refs", "--all")
	wd.must(watched.Check(t.Context(), ws))
	wd.must(watched.Check(t.Context(), ws))
	if n := watched.Reads(); n != 4 {
		t.Errorf("read %d times", n)
	}
	wd.git("update-ref", "-d", "refs/caisson/workspaces/"+string(ws.ID)+"/base") // of the packed ones
	wd.lost(watched.Check(t.Context(), ws), "base")
}

// What shows in no time of a file is seen after a while, and what is read through a
// link is read each time.
func TestWatchedIsNotTrustedForEver(t *testing.T) {
	t.Parallel()
	wd := newWorld(t)
	ws := wd.create(workspace.CreateSpec{Name: "r6"})
	watched := wd.w.Watch()
	watched.TrustAtOnce()
	for range 36 {
		wd.must(watched.Check(t.Context(), ws))
	}
	if n := watched.Reads(); n != 3 {
		t.Errorf("read %d times in 36 looks", n)
	}
	wd.git("pack-refs", "--all")
	packed := filepath.Join(wd.repo, ".git", "packed-refs")
	wd.must(os.Rename(packed, packed+".real"))
	wd.must(os.Symlink("packed-refs.real", packed))
	for range 3 {
		wd.must(watched.Check(t.Context(), ws))
	}
	if n := watched.Reads(); n != 6 {
		t.Errorf("read %d times, 3 of them through a link", n)
	}
}

// lost wants the error of a lost binding, which names the part and says it.
func (wd *world) lost(err error, part string) {
	wd.t.Helper()
	wantCode(wd.t, err, caisson.CodeWorkspaceBindingLost)
	if got := caisson.AsError(err).Detail["part"]; got != part {
		wd.t.Fatalf("part %v, want %s: %v", got, part, err)
	}
}

// digestOf is the digest of all below dir but the ledger and locks, with times of
// change.
func digestOf(t testing.TB, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if strings.HasPrefix(name, "state/ledger") || d.Name() == "lock" || name == "state" {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %s\n", name, info.Mode())
		if d.Type().IsRegular() {
			raw, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%x %s\n", raw, info.ModTime())
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
