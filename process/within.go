package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Within returns the function that finds, from outside, a process of the pid
// namespace that root is in (or is the first of): by its number there, and its
// parent's. Both must be descendants of root, as the kernel counts; what the
// processes say of themselves plays no part.
func Within(root caisson.ProcessIdentity) func(holder, pid int) (caisson.ProcessIdentity, error) {
	return func(holder, pid int) (caisson.ProcessIdentity, error) {
		none := caisson.ProcessIdentity{}
		outer, inner, err := numbersOutside(root.PID, holder, pid)
		if errors.Is(err, errNoTranslation) {
			outer, inner, err = numbersByWalk(root.PID, holder, pid)
		}
		if err != nil {
			return none, err
		}
		// In this order: if root is still itself, then it was when its
		// namespace or child was found, and so on down.
		child, there := proctree.Of(inner)
		parent, stays := proctree.Of(outer)
		top, lives := proctree.Of(root.PID)
		if !there || !stays || !lives || child.Parent != outer || parent.Parent != root.PID || top.Start != root.Start || top.Zombie {
			return none, caisson.Errorf(caisson.CodeSandboxLost, "process %d has ended", inner)
		}
		id := root
		id.PID, id.Start, id.Cgroup = inner, child.Start, ""
		return id, nil
	}
}

// errNoTranslation says that this kernel, or its rights here, give no numbers
// of other namespaces at once.
var errNoTranslation = errors.New("numbers of another pid namespace are not translated")

// numbersOutside asks the kernel (6.11 or newer) for the numbers that two
// processes of root's pid namespace have here. Source: ioctl_nsfs(2).
func numbersOutside(root, holder, pid int) (outer, inner int, err error) {
	ns, err := unix.Open("/proc/"+strconv.Itoa(root)+"/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, errNoTranslation
	}
	defer unix.Close(ns)
	for _, n := range []struct {
		inside int
		to     *int
	}{{holder, &outer}, {pid, &inner}} {
		got, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(ns), unix.NS_GET_TGID_FROM_PIDNS, uintptr(n.inside))
		switch errno {
		case 0:
			*n.to = int(got)
		case unix.ESRCH:
			return 0, 0, caisson.Errorf(caisson.CodeNotFound, "there is no process that is numbered %d inside", n.inside)
		default:
			return 0, 0, errNoTranslation
		}
	}
	return outer, inner, nil
}

// numbersByWalk looks at root's children and theirs.
func numbersByWalk(root, holder, pid int) (outer, inner int, err error) {
	if outer, err = childNumbered(root, holder); err != nil {
		return 0, 0, err
	}
	inner, err = childNumbered(outer, pid)
	return outer, inner, err
}

// childNumbered returns the child of parent that its own pid namespace numbers inside.
func childNumbered(parent, inside int) (int, error) {
	dir := "/proc/" + strconv.Itoa(parent) + "/task"
	// Mostly it is the first thread that forks.
	if pid := among(dir, strconv.Itoa(parent), inside); pid != 0 {
		return pid, nil
	}
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list threads of %d: %w", parent, err)
	}
	for _, t := range threads {
		if pid := among(dir, t.Name(), inside); pid != 0 {
			return pid, nil
		}
	}
	return 0, caisson.Errorf(caisson.CodeNotFound, "process %d has no child that is numbered %d inside", parent, inside)
}

// among looks among the children of one thread; 0 if it is not there.
func among(dir, thread string, inside int) int {
	children := childrenOf(dir, thread)
	for i := len(children) - 1; i >= 0; i-- { // the youngest is last, and the most likely
		if numberInside(children[i]) == inside {
			return children[i]
		}
	}
	return 0
}

// childrenOf returns the children of one thread, the youngest last; none where
// the kernel does not tell them. dir is the directory of its process's threads.
func childrenOf(dir, thread string) []int {
	raw, err := os.ReadFile(dir + "/" + thread + "/children")
	if err != nil {
		return nil
	}
	fields := bytes.Fields(raw)
	children := make([]int, len(fields))
	for i, f := range fields {
		children[i] = atoi(string(f))
	}
	return children
}

// numberInside returns the number of a process in its own pid namespace; 0 if
// it has ended.
func numberInside(pid int) int {
	var buf [4096]byte // what is looked for is in the first kilobyte
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	if err != nil || n <= 0 {
		return 0
	}
	// The name, which is hostile, is in the first line, its newlines escaped.
	_, rest, _ := bytes.Cut(buf[:n], []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	return atoi(string(fields[len(fields)-1]))
}
