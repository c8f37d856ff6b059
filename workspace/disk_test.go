package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

const (
	diskSize = 24 << 20
	pageSize = 4096
)

// disk is a small disk on which all of a world lies.
type disk struct {
	*world
	ballast string
	size    int64
}

// onDisk runs a test with everything on a small disk.
func onDisk(t *testing.T, do func(d *disk)) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", dir)
	t.Run("disk", func(t *testing.T) {
		d := &disk{world: newWorld(t), ballast: filepath.Join(dir, "ballast")}
		d.write(d.ballast, "")
		do(d)
	})
}

// fill leaves so many pages free.
func (d *disk) fill(pages int64) {
	d.t.Helper()
	var stat syscall.Statfs_t
	d.must(syscall.Statfs(d.ballast, &stat))
	f, err := os.OpenFile(d.ballast, os.O_RDWR, 0)
	d.must(err)
	defer f.Close()
	if more := (int64(stat.Bavail) - pages) * pageSize; more > 0 { //nolint:gosec // of a small disk
		d.must(syscall.Fallocate(int(f.Fd()), 0, d.size, more))
		d.size += more
	}
}

// drain frees what was filled.
func (d *disk) drain() {
	d.t.Helper()
	d.must(os.Truncate(d.ballast, 0))
	d.size = 0
}

// untilItFits does a thing with ever more room until it succeeds, looks after
// each time, and returns how often it did not succeed.
func (d *disk) untilItFits(do func() error, look func()) int {
	d.t.Helper()
	failed := 0
	for pages := int64(0); pages < 2048; pages += 1 + pages/8 {
		d.fill(pages)
		err := do()
		d.drain()
		if err == nil {
			return failed
		}
		failed++
		if caisson.CodeOf(err) != caisson.CodeDiskFull || caisson.AsError(err).HintText() == "" {
			d.t.Errorf("with %d pages: %v (%s, hint %q)", pages, err, caisson.CodeOf(err), caisson.AsError(err).HintText())
		}
		if look(); d.t.Failed() {
			d.t.FailNow()
		}
	}
	d.t.Fatal("it never succeeds")
	return failed
}

func (d *disk) fsck() {
	d.t.Helper()
	if out, err := d.tryGit(d.repo, "fsck", "--strict", "--no-dangling"); err != nil {
		d.t.Errorf("%v: %s", err, out)
	}
}

func TestCreateAtEveryFullness(t *testing.T) {
	for _, mode := range []caisson.WorkspaceMode{caisson.WorkspaceWorktree, caisson.WorkspaceClone} {
		t.Run(string(mode), func(t *testing.T) {
			onDisk(t, func(d *disk) {
				d.write(filepath.Join(d.repo, "big"), strings.Repeat("x", 300<<10))
				d.git("add", "-A")
				d.git("commit", "-qm", "big")
				refs := d.git("for-each-ref")
				var ws caisson.Workspace
				n := d.untilItFits(func() (err error) {
					ws, err = d.w.Create(d.t.Context(), workspace.CreateSpec{Dir: d.repo, Name: "w", Mode: mode})
					return err
				}, func() {
					d.must(os.RemoveAll(filepath.Join(d.state, "workspaces"))) // nothing, or the empty directories
					if found := d.made(); len(found) > 0 {
						d.t.Errorf("%q is left", found)
					}
					if now := d.git("for-each-ref"); now != refs {
						d.t.Errorf("references: %s", now)
					}
				})
				if n < 5 {
					d.t.Errorf("it failed %d times only", n)
				}
				d.must(d.w.Check(d.t.Context(), ws))
				d.fsck()
			})
		})
	}
}

func TestImportAtEveryFullness(t *testing.T) {
	onDisk(t, func(d *disk) {
		ws := d.create(workspace.CreateSpec{})
		box := newBox(d.t, ws)
		inside(d.t, box, "head -c 40000 /dev/urandom >new.bin; git add -A; git commit -qm one; git branch other; git tag v1")
		tip := inside(d.t, box, "git rev-parse HEAD")
		var got workspace.Imported
		n := d.untilItFits(func() (err error) {
			got, err = d.w.Import(d.t.Context(), ws, box, workspace.ImportOptions{})
			return err
		}, func() {
			d.fsck()
			if at := d.git("rev-parse", ws.Branch); at != ws.Base && at != tip {
				d.t.Errorf("the branch is at %s", at)
			}
		})
		if n < 3 {
			d.t.Errorf("it failed %d times only", n)
		}
		if got.IndexKept != "" { // it went on, and says so; the next one does it
			inside(d.t, box, "git commit -q --allow-empty -m two")
			d.importOK(ws, box, workspace.ImportOptions{})
		}
		if got := d.gitIn(ws.Path, "status", "--porcelain"); got != "" {
			d.t.Errorf("status outside: %q", got)
		}
		if got := d.git("for-each-ref", "--format=x", "refs/caisson/inside/"+string(ws.ID)); strings.Count(got, "x") < 2 {
			d.t.Errorf("other references are not kept: %q", got)
		}
		d.fsck()
	})
}

func TestSnapshotAtEveryFullness(t *testing.T) {
	onDisk(t, func(d *disk) {
		ws := d.create(workspace.CreateSpec{})
		box := newBox(d.t, ws)
		inside(d.t, box, "head -c 40000 /dev/urandom >new.bin; mkdir deep; echo x >deep/file")
		var snap workspace.Snapshot
		n := d.untilItFits(func() (err error) {
			snap, err = d.w.Snapshot(d.t.Context(), ws, box, "r1", 1)
			if err == nil && snap.Partial != "" {
				d.t.Errorf("what the disk did not take is called %q", snap.Partial)
			}
			return err
		}, d.fsck)
		if n < 3 {
			d.t.Errorf("it failed %d times only", n)
		}
		if got := d.git("ls-tree", "-r", "--name-only", snap.Ref); got != ".gitignore\na.txt\ndeep/file\nnew.bin\nsub/b.txt" {
			d.t.Errorf("it holds %q", got)
		}
		d.fsck()
	})
}

func TestMergeAtEveryFullness(t *testing.T) {
	onDisk(t, func(d *disk) {
		ws := d.create(workspace.CreateSpec{})
		box := newBox(d.t, ws)
		inside(d.t, box, "for i in 1 2 3 4 5 6; do head -c 30000 /dev/urandom >new$i.bin; done; head -c 30000 /dev/urandom >a.txt; rm sub/b.txt; git add -A; git commit -qm one")
		d.importOK(ws, box, workspace.ImportOptions{})
		n := d.untilItFits(func() error {
			_, err := d.w.Merge(d.t.Context(), ws, workspace.MergeOptions{Message: "merge"})
			return err
		}, func() {
			d.must(d.w.Tidy(d.t.Context())) // what could not be taken back without room was noted
			d.fsck()
			if got := d.git("status", "--porcelain"); got != "" {
				d.t.Errorf("the checkout was left with %q", got)
			}
		})
		if n < 3 {
			d.t.Errorf("it failed %d times only", n)
		}
		if got := d.git("status", "--porcelain"); got != "" {
			d.t.Errorf("the checkout: %q", got)
		}
		if got := d.git("rev-list", "--count", "main"); got != "3" {
			d.t.Errorf("main has %s commits", got)
		}
	})
}

// A repository that takes no writes stops each thing before anything is changed.
func TestReadOnlyDisk(t *testing.T) {
	onDisk(t, func(d *disk) {
		ws := d.create(workspace.CreateSpec{})
		box := newBox(d.t, ws)
		inside(d.t, box, "echo one >one.txt; git add -A; git commit -qm one")
		d.importOK(ws, box, workspace.ImportOptions{})
		inside(d.t, box, "echo two >two.txt; git add -A; git commit -qm two")
		refs := d.git("for-each-ref")
		things := map[string]func() error{
			"create": func() error {
				_, err := d.w.Create(d.t.Context(), workspace.CreateSpec{Dir: d.repo, Name: "other"})
				return err
			},
			"import": func() error {
				_, err := d.w.Import(d.t.Context(), ws, box, workspace.ImportOptions{})
				return err
			},
			"merge": func() error {
				_, err := d.w.Merge(d.t.Context(), ws, workspace.MergeOptions{})
				return err
			},
			"snapshot": func() error {
				_, err := d.w.Snapshot(d.t.Context(), ws, box, "r1", 1)
				return err
			},
		}
		for name, do := range things {
			d.must(syscall.Mount(d.repo, d.repo, "", syscall.MS_BIND, ""))
			d.must(syscall.Mount("", d.repo, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
			err := do()
			d.must(syscall.Unmount(d.repo, syscall.MNT_DETACH))
			if wantCode(d.t, err, caisson.CodeWriteFailed); caisson.AsError(err).HintText() == "" {
				d.t.Errorf("%s: no hint", name)
			}
		}
		d.must(d.w.Tidy(d.t.Context()))
		if now := d.git("for-each-ref"); now != refs {
			d.t.Errorf("references: %s", now)
		}
		if got := d.git("status", "--porcelain"); got != "" {
			d.t.Errorf("status: %q", got)
		}
		for _, name := range []string{"create", "import", "merge", "snapshot"} {
			if err := things[name](); err != nil {
				d.t.Errorf("%s afterwards: %v", name, err)
			}
		}
	})
}
