//go:build linux

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

// Sweep implements caisson.Engine. A process is ended only where its identity
// is proved, or where it is in a cgroup that bears the sandbox's id.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID})
	if err != nil {
		return err
	}
	if record.Guest != nil {
		if err := endGuest(ctx, *record.Guest); err != nil {
			return err
		}
	}
	dirs, err := findGroups(groupPrefix+string(spec.ID), record.Leftovers)
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "look for cgroups of sandbox %s: %w", record.ID, err)
	}
	for _, dir := range dirs {
		if err := emptyGroup(ctx, dir); err != nil {
			return err
		}
	}
	if err := removeGroups(dirs); err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "sandbox %s is not all gone: %w", record.ID, err)
	}
	return nil
}

// endGuest ends a guest whose own end is the end of all in its box.
func endGuest(ctx context.Context, guest caisson.ProcessIdentity) error {
	switch process.Alive(guest) {
	case caisson.Dead:
		return nil
	case caisson.LivenessUnknown:
		return caisson.Errorf(caisson.CodeOrphanAlive, "whether process %d, the first of a sandbox, has ended cannot be told from here", guest.PID).
			WithHint("Run caisson where the sandbox was opened.")
	}
	fd, err := unix.PidfdOpen(guest.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d of an earlier life cannot be addressed: %w", guest.PID, err)
	}
	defer unix.Close(fd)
	// The descriptor is of whatever has the number now; that is proved after.
	if process.Alive(guest) == caisson.Dead {
		return nil
	}
	return killAndWait(ctx, fd, guest.PID)
}

func killAndWait(ctx context.Context, pidfd, pid int) error {
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d of an earlier life could not be ended: %w", pid, err)
	}
	end := time.Now().Add(endBound)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 50)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) || ctx.Err() != nil || time.Now().After(end) {
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d of an earlier life was killed and does not end", pid)
		}
	}
}

// findGroups returns the cgroups of a name, wherever an earlier process of ours
// was placed, children before their parents.
func findGroups(name string, recorded []string) ([]string, error) {
	h, err := findHierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	add := func(path string) {
		if !slices.Contains(dirs, path) {
			dirs = append(dirs, path)
		}
	}
	for _, path := range recorded {
		// The record may be damaged: only what bears the name is touched.
		under := slices.ContainsFunc(h.mounts, func(m string) bool { return strings.HasPrefix(path, m+"/") })
		if under && filepath.Clean(path) == path && filepath.Base(path) == name {
			add(path)
		}
	}
	for _, mount := range h.mounts {
		err := filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerror // a cgroup that went away meanwhile, or one that is not ours to look into
			}
			if d.IsDir() && d.Name() == name {
				add(path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// emptyGroup ends what is in a cgroup.
func emptyGroup(ctx context.Context, dir string) error {
	end := time.Now().Add(endBound)
	for {
		raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || err == nil && len(raw) == 0 {
			return nil
		}
		if err != nil {
			return caisson.Errorf(caisson.CodeOrphanAlive, "cgroup %s cannot be read: %w", dir, err)
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return caisson.Errorf(caisson.CodeOrphanAlive, "processes %s of an earlier life could not be ended", strings.Join(strings.Fields(string(raw)), ", "))
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if pid, err := strconv.Atoi(field); err == nil {
				killMember(dir, pid)
			}
		}
		<-time.After(time.Millisecond)
	}
}

// killMember kills a process that is in the cgroup while its descriptor is
// held, so that no other is meant. Whether it worked is seen in the cgroup.
func killMember(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err == nil && slices.Contains(strings.Fields(string(raw)), fmt.Sprint(pid)) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
