package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// emptyBound is how long a cgroup whose processes have ended may take to let
// itself be removed.
const emptyBound = time.Second

// lockBound is how long others may look at the lock of a new cgroup, one after
// another, before its maker gives up.
const lockBound = 5 * time.Second

// A cgroup of a sandbox is locked by the process that made it. The kernel lets
// go of the lock when that ends, however it ends: one that is not locked is
// nobody's, also where no record names its sandbox.

// makeLocked makes a cgroup and locks it. It may be taken for one that was left
// in the moment between; then it is made again.
func makeLocked(dir string) (*os.File, error) {
	for end := time.Now().Add(lockBound); time.Now().Before(end); {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		lock, err := lockfile.Dir(dir, unix.LOCK_EX)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		<-time.After(time.Millisecond)
	}
	return nil, errors.New("lock it: another process does")
}

// MadeGroup is a cgroup of a sandbox that is there now, whoever made it.
type MadeGroup struct {
	Path    string
	Sandbox caisson.SandboxID
	// Live says that its maker lives, or that this cannot be told; Why, how.
	Live bool
	Why  string
}

// Made returns the cgroups of this user's sandboxes, asked from the kernel.
func (c *Cgroups) Made(ctx context.Context) ([]MadeGroup, error) {
	var made []MadeGroup
	err := c.walk(ctx, func(path, id string) error {
		if !ours(path) {
			return nil
		}
		g := MadeGroup{Path: path, Sandbox: caisson.SandboxID(id), Live: true}
		switch lock, err := lockfile.Dir(path, unix.LOCK_SH); {
		case err == nil:
			lock.Close()
			g.Live, g.Why = false, "no process holds its lock"
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone meanwhile
		case errors.Is(err, unix.EWOULDBLOCK):
			g.Why = "the process that made it holds its lock"
		default:
			g.Why = "whether its lock is held cannot be told: " + plain(err).Error()
		}
		made = append(made, g)
		return nil
	})
	return made, err
}

// Remove ends what is in a cgroup of Made and removes it, unless its maker
// lives after all. While its lock is held here, nobody starts anything in it.
func (c *Cgroups) Remove(ctx context.Context, g MadeGroup) error {
	if !ours(g.Path) {
		return nil
	}
	lock, err := lockfile.Dir(g.Path, unix.LOCK_EX)
	if err != nil {
		return nil //nolint:nilerr // gone meanwhile, or in use
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, groupBound)
	defer cancel()
	if err := killCgroup(ctx, g.Path); err != nil {
		return err
	}
	return removeGroup(g.Path, time.Now().Add(emptyBound))
}

// End ends what is in the cgroups of a sandbox and removes them, wherever an
// earlier process of ours was placed. recorded are paths of a record, of which
// only those are believed that bear the sandbox's name. CodeOrphanAlive where
// something does not end before ctx does.
func (c *Cgroups) End(ctx context.Context, id caisson.SandboxID, recorded []string) error {
	dirs, err := c.find(ctx, id, recorded)
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "look for cgroups of sandbox %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, groupBound)
	defer cancel()
	for _, dir := range dirs {
		if err := killCgroup(ctx, dir); err != nil {
			return err
		}
	}
	if err := removeGroups(dirs); err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "sandbox %s is not all gone: %w", id, err)
	}
	return nil
}

// groupBound is how long killed processes of a cgroup may take to be gone: one
// in uninterruptible sleep can hold it.
const groupBound = 10 * time.Second

// find returns the cgroups of a sandbox.
func (c *Cgroups) find(ctx context.Context, id caisson.SandboxID, recorded []string) ([]string, error) {
	var dirs []string
	name := groupPrefix + string(id)
	for _, path := range recorded {
		// The record may be damaged: only what bears the name is touched.
		under := slices.ContainsFunc(c.mounts, func(m string) bool { return strings.HasPrefix(path, m+"/") })
		if under && filepath.Clean(path) == path && filepath.Base(path) == name && !slices.Contains(dirs, path) {
			dirs = append(dirs, path)
		}
	}
	err := c.walk(ctx, func(path, other string) error {
		if other == string(id) && !slices.Contains(dirs, path) {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs, err
}

// walk calls visit with each cgroup of a sandbox. An error of visit does not
// end the walk but that of its hierarchy.
func (c *Cgroups) walk(ctx context.Context, visit func(path, id string) error) error {
	var errs []error
	for _, mount := range c.mounts {
		errs = append(errs, filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // a cgroup that went away meanwhile, or one that is not ours to look into
			}
			id := GroupSandbox(d.Name())
			if id == "" {
				return nil
			}
			if err := visit(path, string(id)); err != nil {
				return err
			}
			return fs.SkipDir
		}))
	}
	return errors.Join(errs...)
}

// GroupSandbox returns the sandbox that a cgroup of this name is of, or none.
func GroupSandbox(name string) caisson.SandboxID {
	if id, is := strings.CutPrefix(name, groupPrefix); is && strings.HasPrefix(id, "s") {
		return caisson.SandboxID(id)
	}
	return ""
}

// ours tells whether a cgroup belongs to this user.
func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

func removeGroups(dirs []string) error {
	var errs []error
	end := time.Now().Add(emptyBound)
	for _, dir := range dirs {
		errs = append(errs, removeGroup(dir, end))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string, end time.Time) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		<-time.After(time.Millisecond) // an ended process leaves a little after its parent was told
	}
}
