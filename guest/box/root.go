//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// base is where the new root is put together; every system has it, and what
// the mount covers there is opened before.
const base = "/tmp"

// root is the new root file system while it is built. The working directory is
// its top: names without a leading slash are inside, others are the host's.
type root struct {
	plan *plan.Plan
	ours map[uint64]bool // devices of the tmpfs mounts that we made: the only ones to create anything on

	layers int // made so far
}

type tree struct {
	fd    int
	mount plan.Mount
}

// buildRoot makes the box's root and goes into it. Mount points are made on
// tmpfs only: where one is missing on a file system of the host, that is an
// error.
func buildRoot(p *plan.Plan, _ *plan.Report) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	trees, err := openTrees(p)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=32m,mode=0755"); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	if err := unix.Chdir(base); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	r := &root{plan: p, ours: map[uint64]bool{}}
	if err := r.own("."); err != nil {
		return err
	}
	for _, fill := range []func() error{r.makeSystem, r.makeEtc, r.makeDev, r.makeProc, r.makePrivate} {
		if err := fill(); err != nil {
			return err
		}
	}
	for _, t := range trees {
		attach := r.attach
		if t.mount.Layer {
			attach = r.layer
		}
		if err := attach(t); err != nil {
			return err
		}
	}
	if err := r.dropLayers(); err != nil {
		return err
	}
	return enter()
}

// enter makes the root read-only and drops the host's.
func enter() error {
	if err := unix.MountSetattr(unix.AT_FDCWD, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	return nil
}

func openTrees(p *plan.Plan) ([]tree, error) {
	var trees []tree
	for _, m := range p.Mounts {
		if m.FD != 0 {
			trees = append(trees, tree{m.FD, m})
			continue
		}
		fd, err := openTree(m.Source)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree{fd, m})
	}
	return trees, nil
}

// openTree opens a copy of the mounts at a path, in which no component may be
// a link.
func openTree(path string) (int, error) {
	at, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("copy mount %s: %w", path, err)
	}
	return fd, nil
}

// attach puts a tree at its target, which must lie inside the root with no
// link on the way: what is mounted already may be the work of the box's user.
func (r *root) attach(t tree) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !t.mount.Write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("set attributes of %s: %w", t.mount.Target, err)
	}
	at, err := r.point(inside(t.mount.Target), t.mount.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.MoveMount(t.fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return notMounted(t.mount.Target, t.fd, at, err)
	}
	return unix.Close(t.fd)
}

// point returns a descriptor of the mount point at name, made if it is missing
// and would be on a tmpfs of ours.
func (r *root) point(name string, dir bool) (int, error) {
	if fd, err := beneath(unix.AT_FDCWD, name); err == nil || !errors.Is(err, unix.ENOENT) {
		return fd, explain(name, err)
	}
	at, err := beneath(unix.AT_FDCWD, ".")
	if err != nil {
		return -1, explain(name, err)
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		next, err := beneath(at, part)
		if errors.Is(err, unix.ENOENT) {
			next, err = r.create(at, part, dir || i < len(parts)-1)
		}
		unix.Close(at)
		if err != nil {
			return -1, explain(name, err)
		}
		at = next
	}
	return at, nil
}

func (r *root) create(at int, name string, dir bool) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, err
	}
	if !r.ours[st.Dev] {
		return -1, fmt.Errorf("mount point is missing, and nothing is created on the host: %w", unix.ENOENT)
	}
	if dir {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			return -1, err
		}
	} else {
		fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
		if err != nil {
			return -1, err
		}
		unix.Close(fd)
	}
	return beneath(at, name)
}

func beneath(at int, name string) (int, error) {
	return unix.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func explain(name string, err error) error {
	if err == nil {
		return nil
	}
	return &pointError{"/" + name, err}
}

// notMounted says why a tree was not mounted at a point: the kernel does not say
// that one of the two is a directory, and the other is none.
func notMounted(target string, tree, at int, err error) error {
	var from, to unix.Stat_t
	if unix.Fstat(tree, &from) == nil && unix.Fstat(at, &to) == nil && (from.Mode^to.Mode)&unix.S_IFMT != 0 && (from.Mode&unix.S_IFMT == unix.S_IFDIR || to.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return explain(inside(target), unix.ENOTDIR)
	}
	return fmt.Errorf("mount %s: %w", target, err)
}

// pointError says that there is no mount point at a path, and none can be made.
type pointError struct {
	path string
	err  error
}

func (e *pointError) Error() string { return fmt.Sprintf("make mount point %s: %v", e.path, e.err) }

func (e *pointError) Unwrap() error { return e.err }

// inside turns a path of the box into one relative to the root being built.
func inside(path string) string {
	if name := strings.TrimPrefix(filepath.Clean(path), "/"); name != "" {
		return name
	}
	return "."
}

// own remembers that what is mounted at name is ours to create things on.
func (r *root) own(name string) error {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	r.ours[st.Dev] = true
	return nil
}

// share shows a file or directory of the host read-only at the same path.
func (r *root) share(path string) error {
	fd, err := openTree(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return r.attach(tree{fd, plan.Mount{Target: path, Dir: info.IsDir()}})
}
