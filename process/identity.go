// Package process is the host's view of operating-system processes: which one a
// record means, whether it lives, how it and all it started are ended, and how
// programs of the host are run. It is the only place that starts them.
//
// What is promised: no process is signalled unless it was proved, with a
// descriptor in hand that cannot come to mean another, to be the one that is
// named. What is not promised: knowledge of processes in other pid namespaces
// or on other machines. What cannot be told is LivenessUnknown, and nothing is
// signalled for it.
package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Self returns the identity of this process.
func Self() (caisson.ProcessIdentity, error) { return Of(os.Getpid()) }

// Of returns the identity of a process of this pid namespace; CodeNotFound if
// there is none, or it has ended and only waits to be reaped.
func Of(pid int) (caisson.ProcessIdentity, error) {
	id, err := here()
	if err != nil {
		return id, err
	}
	p, there := proctree.Of(pid)
	if !there || p.Zombie {
		return id, caisson.Errorf(caisson.CodeNotFound, "there is no process %d", pid)
	}
	id.PID, id.Start = pid, p.Start
	return id, nil
}

// here returns what all processes of this pid namespace have in common.
func here() (caisson.ProcessIdentity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return caisson.ProcessIdentity{}, fmt.Errorf("read boot id: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return caisson.ProcessIdentity{}, fmt.Errorf("read pid namespace: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return caisson.ProcessIdentity{}, fmt.Errorf("read host name: %w", err)
	}
	return caisson.ProcessIdentity{Host: host, Boot: strings.TrimSpace(string(boot)), PIDNS: st.Ino}, nil
}

// Alive tells whether the process that id names lives. An earlier boot of this
// host is dead; another host or pid namespace is unknown.
func Alive(id caisson.ProcessIdentity) caisson.Liveness {
	now, err := here()
	switch {
	case err != nil || id.PID <= 0 || id.Boot == "":
		return caisson.LivenessUnknown
	case id.Boot != now.Boot && id.Host == now.Host:
		return caisson.Dead
	case id.Boot != now.Boot || id.PIDNS != now.PIDNS:
		return caisson.LivenessUnknown
	}
	p, there := proctree.Of(id.PID)
	if there {
		if p.Start == id.Start && !p.Zombie {
			return caisson.Alive
		}
		return caisson.Dead
	}
	// /proc may hide the processes of other users; the kernel does not.
	if errors.Is(unix.Kill(id.PID, 0), unix.ESRCH) {
		return caisson.Dead
	}
	return caisson.LivenessUnknown
}

// Within returns the function that finds, from outside, a process of the pid
// namespace that root is in (or is the first of): by its number there, and its
// parent's. Both must be descendants of root, as the kernel counts; what the
// processes say of themselves plays no part.
func Within(root caisson.ProcessIdentity) func(holder, pid int) (caisson.ProcessIdentity, error) {
	return func(holder, pid int) (caisson.ProcessIdentity, error) {
		none := caisson.ProcessIdentity{}
		outer, err := childNumbered(root.PID, holder)
		if err != nil {
			return none, err
		}
		inner, err := childNumbered(outer, pid)
		if err != nil {
			return none, err
		}
		// In this order: if root is still itself, then it was when its child
		// was found, and so on down.
		child, there := proctree.Of(inner)
		top, lives := proctree.Of(root.PID)
		if !there || !lives || child.Parent != outer || top.Start != root.Start || top.Zombie {
			return none, caisson.Errorf(caisson.CodeSandboxLost, "process %d has ended", inner)
		}
		id := root
		id.PID, id.Start, id.Cgroup = inner, child.Start, ""
		return id, nil
	}
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
	raw, err := os.ReadFile(dir + "/" + thread + "/children")
	if err != nil {
		return 0
	}
	children := strings.Fields(string(raw))
	for i := len(children) - 1; i >= 0; i-- { // the youngest is last, and the most likely
		if pid, err := strconv.Atoi(children[i]); err == nil && numberInside(pid) == inside {
			return pid
		}
	}
	return 0
}

// numberInside returns the number of a process in its own pid namespace; 0 if
// it has ended.
func numberInside(pid int) int {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	inside, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0
	}
	return inside
}
