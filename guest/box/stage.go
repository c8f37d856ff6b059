//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
)

// Stage makes ready what a wrapper that runs as another user shall bind, in
// this process's own mount namespace, becomes that user without any
// capability, and then the wrapper. It returns only with an error.
//
// Why: a wrapper binds by path, and the box's user may not go where the host
// has its files; and only root can lend them to it.
func Stage() error {
	file := os.NewFile(plan.StageFD, "stage")
	if file == nil {
		return errors.New("read stage: no descriptor")
	}
	var s plan.Stage
	raw, err := io.ReadAll(file)
	if err == nil {
		err = pack.Read(raw, &s)
	}
	if err != nil {
		return fmt.Errorf("read stage: %w", err)
	}
	file.Close()
	if err := fillStage(s); err != nil {
		return err
	}
	unix.CloseOnExec(plan.WrapperFD)
	if s.UID != 0 {
		if err := become(s.UID, s.GID); err != nil {
			return err
		}
	}
	// All but the wrapper's descriptors are close-on-exec or its own to close.
	if err := syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", plan.WrapperFD), s.Arguments, []string{}); err != nil {
		return fmt.Errorf("execute wrapper: %w", err)
	}
	return nil
}

func fillStage(s plan.Stage) error {
	if err := unix.Mount("tmpfs", s.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0755"); err != nil {
		return fmt.Errorf("mount stage: %w", err)
	}
	if err := unix.Chdir(s.Dir); err != nil {
		return fmt.Errorf("enter stage: %w", err)
	}
	for _, t := range s.Trees {
		if err := stagePoint(t.Name, t.Dir); err != nil {
			return err
		}
		if err := unix.MoveMount(t.FD, "", unix.AT_FDCWD, t.Name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("stage mount %s: %w", t.Name, err)
		}
		unix.Close(t.FD)
	}
	for _, p := range s.Private {
		if err := stagePoint(p.Name, true); err != nil {
			return err
		}
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%o,uid=%d,gid=%d", p.Size, plan.Inodes(p.Size), p.Mode, s.UID, s.GID)
		if err := unix.Mount("tmpfs", p.Name, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("stage mount %s: %w", p.Name, err)
		}
	}
	return unix.Chdir("/")
}

func stagePoint(name string, dir bool) error {
	if dir {
		if err := unix.Mkdir(name, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		return nil
	}
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return unix.Close(fd)
}

// become leaves root for good. These change every thread.
func become(uid, gid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("drop groups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("become group %d: %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}
