//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// copyLimit bounds a file of /etc that is copied; a larger one is mounted, which
// is quicker then.
const copyLimit = 16 << 10

// tops are the directories at the top of every box beside the host's; the first
// of them are empty.
var tops = [...]string{"run", "sys", "var", "root", "opt", "mnt", "proc", "dev", "etc", "tmp"}

const emptyTops = 6

// makeSystem shows the directories with programs and libraries.
func (r *root) makeSystem() error {
	for _, path := range r.plan.System {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := r.share(path); err != nil {
				return err
			}
			continue
		}
		if err := copyLink(path); err != nil {
			return err
		}
	}
	for _, name := range tops[:emptyTops] {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
	}
	if err := r.makeMask(); err != nil {
		return err
	}
	return put(inside(r.plan.Proof), []byte("x"))
}

// makeMask makes what nobody may read, on a root that nobody may write.
func (r *root) makeMask() error {
	if r.plan.Mask == (plan.Mask{}) {
		return nil
	}
	file, dir := inside(r.plan.Mask.File), inside(r.plan.Mask.Dir)
	if err := put(file, nil); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0); err != nil {
		return err
	}
	return os.Chmod(file, 0)
}

func copyLink(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	return os.Symlink(target, inside(path))
}

// makeEtc copies and shows what the plan names of /etc and writes what is about
// the box itself.
func (r *root) makeEtc() error {
	if err := os.Mkdir("etc", 0o755); err != nil {
		return err
	}
	for _, path := range r.plan.Etc {
		if err := r.etcEntry(path); err != nil {
			return err
		}
	}
	for name, text := range r.plan.EtcFiles() {
		if err := put("etc/"+name, []byte(text)); err != nil {
			return err
		}
	}
	return os.Symlink("/proc/self/mounts", "etc/mtab")
}

// etcEntry shows one entry of /etc. What is not there, or not readable for the
// box's user, is left out: nothing there is needed by every program.
func (r *root) etcEntry(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil //nolint:nilerror // left out, as promised
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return copyLink(path)
	case info.IsDir() || info.Mode().IsRegular() && info.Size() > copyLimit:
		return r.share(path)
	case info.Mode().IsRegular():
		return copyFile(path, int(info.Size()))
	}
	return nil
}

// maxTerminals bounds the terminals of a box. All boxes and containers of a machine
// share some 3,000, and one program may have more files open than that.
const maxTerminals = 256

func (r *root) makeDev() error {
	if err := os.Mkdir("dev", 0o755); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("open /dev/%s: %w", name, err)
		}
		if err := put("dev/"+name, nil); err != nil {
			return err
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "dev/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
		unix.Close(fd)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, "dev/"+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir("dev/pts", 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0600,max=%d", maxTerminals)
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	return nil
}

// hiddenProc are lists of what the caller has in the kernel: a user namespace
// does not take away the keyrings that a process was started with.
var hiddenProc = [...]string{"proc/keys", "proc/key-users"}

// shareInotify bounds the inotify descriptors of the box. They count for the host's
// user over all namespaces, who has 128 on most machines: with none left, the
// person's editor, and what looks for hidden files, could watch nothing.
func shareInotify() error {
	const limit = "max_inotify_instances"
	host, err := strconv.Atoi(readLine("/proc/sys/fs/inotify/max_user_instances"))
	if err != nil {
		return nil //nolint:nilerror // the kernel has no inotify
	}
	// Its limits are those of the user namespace of whoever opens it.
	fd, err := unix.Open("proc/sys/user/"+limit, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerror // a kernel or policy that keeps it from us: it is no control, and nothing promises it
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, strconv.AppendInt(nil, int64(max(host/4, 1)), 10)); err != nil {
		return fmt.Errorf("set %s: %w", limit, err)
	}
	return nil
}

// makeProc mounts the pid namespace's own /proc, with the parts that belong to
// the whole machine read-only, and those that belong to the caller empty. It must be done while the host's root is there:
// the kernel allows it only where a full /proc can be seen.
func (r *root) makeProc() error {
	if err := os.Mkdir("proc", 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := shareInotify(); err != nil {
		return err
	}
	for _, name := range []string{"proc/sys", "proc/irq", "proc/bus", "proc/pressure", "proc/sysrq-trigger"} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open /%s: %w", name, err)
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("make /%s read-only: %w", name, err)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount /%s: %w", name, err)
		}
		unix.Close(fd)
	}
	for _, name := range hiddenProc {
		if err := hide(name); err != nil {
			return err
		}
	}
	return nil
}

// hide puts an empty device in place of a file, if that is there.
func hide(name string) error {
	if err := unix.Access(name, unix.F_OK); errors.Is(err, unix.ENOENT) {
		return nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/null", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("hide /%s: %w", name, err)
	}
	return nil
}

// makePrivate mounts the box's own directories, each bounded in bytes and in
// number of files, before the workspace: that may lie below one of them.
func (r *root) makePrivate() error {
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=", r.plan.Tmp, plan.Inodes(r.plan.Tmp))
	for _, path := range r.plan.Private {
		name, mode := inside(path), "0755"
		if plan.Shared(path) {
			mode = "1777"
		}
		at, err := r.point(name, true)
		if err != nil {
			return err
		}
		unix.Close(at)
		if err := unix.Mount("tmpfs", name, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options+mode); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		if err := r.own(name); err != nil {
			return err
		}
	}
	if slices.Contains(r.plan.Private, "/var/tmp") {
		return nil
	}
	return os.Symlink("/tmp", "var/tmp")
}

// copyFile and put use system calls of their own: package os would first set
// up its poller, which takes as long as a third of the set-up.
func copyFile(path string, size int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerror // left out, as promised
	}
	defer unix.Close(fd)
	raw := make([]byte, size)
	n, err := unix.Read(fd, raw)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return put(inside(path), raw[:n])
}

func put(name string, text []byte) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("make /%s: %w", name, err)
	}
	_, err = unix.Write(fd, text)
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	return nil
}
