package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Kill ends all that is in the group's cgroups, and returns when nothing is, or
// with CodeOrphanAlive when ctx ends before.
func (g *Group) Kill(ctx context.Context) error {
	// One with cgroup.kill first: then the others hold nothing any more.
	dirs := g.Dirs()
	if g.fd != nil {
		dirs = append([]string{g.fd.Name()}, dirs...)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, killCgroup(ctx, dir))
	}
	return errors.Join(errs...)
}

// killCgroup ends what is in a cgroup and those below it. Through cgroup.kill,
// where there is one: what forks meanwhile is ended too. Else it is kept from
// forking, by the freezer or by its limit of processes, where it has one of
// these, and ended one by one until none is left. A cgroup that is not there
// holds nothing.
func killCgroup(ctx context.Context, dir string) error {
	held := false
	for {
		pids, err := cgroupProcesses(dir)
		if err != nil {
			return caisson.Errorf(caisson.CodeOrphanAlive, "cgroup %s cannot be read: %w", dir, err)
		}
		if len(pids) == 0 {
			return nil
		}
		if writeControl(filepath.Join(dir, "cgroup.kill"), "1") != nil {
			if !held {
				held = true
				// What has neither file is ended by looking again.
				_ = writeControl(filepath.Join(dir, "pids.max"), "0")
			}
			killFrozen(dir, pids)
		}
		select {
		case <-ctx.Done():
			return caisson.Errorf(caisson.CodeOrphanAlive, "%d processes in %s do not end: %w", len(pids), dir, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// killFrozen kills what is in the cgroup, and what came to it until it froze.
// In a frozen cgroup of version 1 nothing ends before it is thawed.
func killFrozen(dir string, pids []int) {
	state := filepath.Join(dir, "freezer.state")
	if writeControl(state, "FROZEN") == nil {
		if now, err := cgroupProcesses(dir); err == nil {
			pids = now
		}
	}
	for _, pid := range pids {
		killMember(dir, pid)
	}
	_ = writeControl(state, "THAWED") // not there: it was not frozen
}

// cgroupProcesses lists what is alive in a cgroup and those below it.
func cgroupProcesses(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		for _, field := range strings.Fields(string(raw)) {
			if p, there := proctree.Of(atoi(field)); there && !p.Zombie {
				pids = append(pids, p.PID)
			}
		}
		return err
	})
	return pids, err
}

// killMember kills a process that is proved to be in the cgroup while the
// descriptor for it is held; never this one, which is in it for the moment in
// which it starts another there.
func killMember(dir string, pid int) {
	p, there := proctree.Of(pid)
	if !there || pid == os.Getpid() {
		return
	}
	fd, err := p.Open()
	if err != nil {
		return
	}
	defer unix.Close(fd)
	now, err := cgroupProcesses(dir)
	if err == nil && slices.Contains(now, pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // looked at again by the caller
	}
}
