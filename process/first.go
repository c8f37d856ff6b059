package process

import (
	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// First returns the identity of a process that parent, a child of this process
// which was not waited for, says that it has started as the first of a pid
// namespace. Parent is not believed: the kernel must say the same.
func First(parent, pid int) (caisson.ProcessIdentity, error) {
	id, err := here()
	if err != nil {
		return id, err
	}
	p, there := proctree.Of(pid)
	if !there || p.Zombie || p.Parent != parent {
		return id, caisson.Errorf(caisson.CodeNotFound, "process %d is no child of %d", pid, parent)
	}
	if numberInside(pid) != 1 {
		return id, caisson.Errorf(caisson.CodeNotFound, "process %d is not the first of a pid namespace", pid)
	}
	// Only its end frees the number, and its parent may not have waited for it.
	if now, there := proctree.Of(pid); !there || now.Start != p.Start || now.Parent != parent {
		return id, caisson.Errorf(caisson.CodeNotFound, "process %d has ended", pid)
	}
	id.PID, id.Start = pid, p.Start
	return id, nil
}
