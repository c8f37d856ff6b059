//go:build linux

package box

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// layersDir is where layers are put together, and gone when they are: an overlay
// holds what it is made of.
const layersDir = ".layers"

// layer shows a tree under a private layer. All layers are on one tmpfs.
func (r *root) layer(t tree) error {
	if r.layers == 0 {
		if err := os.Mkdir(layersDir, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", layersDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", r.plan.Tmp)); err != nil {
			return fmt.Errorf("mount layers: %w", err)
		}
		if err := r.own(layersDir); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%s/%d", layersDir, r.layers)
	r.layers++
	lower, upper, work := name+"-lower", name+"-upper", name+"-work"
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// The lower tree is read-only, and its place is made as for any other.
	if err := r.attach(tree{t.fd, plan.Mount{Target: "/" + lower, Dir: true}}); err != nil {
		return err
	}
	over, err := overlay(lower, upper, work)
	if err != nil {
		return fmt.Errorf("layer over %s: %w", t.mount.Target, err)
	}
	defer unix.Close(over)
	at, err := r.point(inside(t.mount.Target), true)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.MoveMount(over, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return notMounted(t.mount.Target, over, at, err)
	}
	return nil
}

// overlay makes an overlay of names of ours, in which nothing need be escaped. In
// a user namespace it keeps its notes in attributes that users may set.
func overlay(lower, upper, work string) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, option := range [][2]string{{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}, {"source", "layer"}} {
		if err := unix.FsconfigSetString(fs, option[0], option[1]); err != nil {
			return -1, fmt.Errorf("set %s: %w", option[0], err)
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return -1, fmt.Errorf("set userxattr: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make overlay: %w", err)
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// dropLayers takes away what layers were made of.
func (r *root) dropLayers() error {
	if r.layers == 0 {
		return nil
	}
	if err := unix.Unmount(layersDir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop layers: %w", err)
	}
	return os.Remove(layersDir)
}
