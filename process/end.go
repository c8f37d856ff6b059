package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// passes bounds how often a tree that grows while it is ended is looked at.
const passes = 100

// Signal sends sig to the process that id names. CodeNotFound if it has ended;
// CodeHolderUnknown, and nothing is sent, where that cannot be told.
func Signal(id caisson.ProcessIdentity, sig unix.Signal) error {
	switch Alive(id) {
	case caisson.Dead:
		return caisson.Errorf(caisson.CodeNotFound, "process %d has ended", id.PID)
	case caisson.LivenessUnknown:
		return caisson.Errorf(caisson.CodeHolderUnknown, "whether process %d of %s lives cannot be told from here", id.PID, id.Host)
	case caisson.Alive:
	}
	p := proctree.Process{PID: id.PID, Start: id.Start}
	if !p.Signal(sig) {
		if Alive(id) == caisson.Dead {
			return caisson.Errorf(caisson.CodeNotFound, "process %d has ended", id.PID)
		}
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be signalled", id.PID)
	}
	return nil
}

// EndTree kills the process that id names and everything that it started, and
// returns when none of them is left, or with CodeOrphanAlive when ctx ends
// before. Through the cgroup that id names, where there is one: nothing leaves
// that. Else by the walk of descendants: what had already been cut off from
// them (its parent ended, and it fell to a process outside) is not found.
//
// A dead process is no error. One of which nothing can be told from here is
// CodeHolderUnknown, and nothing is signalled; nor is one that this process comes
// from, which would end itself in the middle of it (CodeOrphanAlive).
func EndTree(ctx context.Context, id caisson.ProcessIdentity) error {
	if Alive(id) == caisson.LivenessUnknown {
		return caisson.Errorf(caisson.CodeHolderUnknown, "whether process %d of %s lives cannot be told from here", id.PID, id.Host)
	}
	if From(id) {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d is not ended by a process that comes from it", id.PID).
			WithHint("Do it from elsewhere.")
	}
	if id.Cgroup != "" {
		if err := endCgroup(ctx, id); err != nil {
			return err
		}
	}
	if Alive(id) == caisson.Dead {
		return nil
	}
	tree, err := stopTree(id)
	if err != nil {
		return err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, p := range tree {
		fd, err := p.Open()
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err == nil {
			fds = append(fds, fd)
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be ended: %w", p.PID, err)
		}
	}
	for i, fd := range fds {
		if err := awaitEnd(ctx, fd); err != nil {
			return caisson.Errorf(caisson.CodeOrphanAlive, "process %d does not end though it was killed: %w", tree[i].PID, err)
		}
	}
	return nil
}

// From tells whether this process is the one that id names, or comes from it.
func From(id caisson.ProcessIdentity) bool {
	if Alive(id) != caisson.Alive {
		return false
	}
	for pid := os.Getpid(); pid > 0; {
		p, there := proctree.Of(pid)
		if !there {
			return false
		}
		if p.PID == id.PID {
			return p.Start == id.Start
		}
		pid = p.Parent
	}
	return false
}

// stopTree stops the tree, so that it cannot grow, and returns all of it. Where
// the root has ended meanwhile, what is below its number is another's.
func stopTree(id caisson.ProcessIdentity) ([]proctree.Process, error) {
	root := proctree.Process{PID: id.PID, Start: id.Start}
	tree := []proctree.Process{root}
	seen := map[int]uint64{root.PID: root.Start}
	root.Signal(unix.SIGSTOP)
	for range passes {
		all, err := proctree.All()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(p proctree.Process) bool { return p.PID == root.PID && p.Start == root.Start }) {
			break
		}
		grown := false
		for _, p := range proctree.Below(all, root.PID, nil) {
			if start, known := seen[p.PID]; known && start == p.Start {
				continue
			}
			seen[p.PID] = p.Start
			grown = true
			p.Signal(unix.SIGSTOP)
			tree = append(tree, p)
		}
		if !grown {
			break
		}
	}
	return tree, nil
}

// awaitEnd waits for the end of the process of a pidfd.
func awaitEnd(ctx context.Context, fd int) error {
	for {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		n, err := unix.Poll(set, 20)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// endCgroup kills what is in the cgroup that id names.
func endCgroup(ctx context.Context, id caisson.ProcessIdentity) error {
	dir := id.Cgroup
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return caisson.Errorf(caisson.CodePathInvalid, "the cgroup %q is no clean absolute path", dir)
	}
	return killCgroup(ctx, dir)
}
