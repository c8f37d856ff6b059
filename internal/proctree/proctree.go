// Package proctree sees processes as /proc shows them: who is whose child, and
// which process a number means. It reads /proc of its own pid namespace, and
// nothing in it depends on a locale.
package proctree

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is one process as /proc shows it.
type Process struct {
	PID, Parent int
	Start       uint64 // clock ticks since boot
	Zombie      bool   // ended with all its threads, not yet reaped
	Stopped     bool   // by a signal or a debugger: it does nothing until it is continued
	Waits       bool   // in the kernel, where no signal but SIGKILL reaches it
}

// All returns all processes that are there.
func All() ([]Process, error) {
	pids, err := Numbers()
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, pid := range pids {
		if p, there := Of(pid); there {
			all = append(all, p)
		}
	}
	return all, nil
}

// Numbers returns the numbers of all processes that are there.
func Numbers() (pids []int, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Of reads one process. The program's name in it is hostile: it may hold
// spaces and parentheses, so that fields are counted from the last ")".
func Of(pid int) (Process, bool) {
	var buf [1024]byte
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	if err != nil || n <= 0 {
		return Process{}, false
	}
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if len(fields) < 20 {
		return Process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	start, err2 := strconv.ParseUint(string(fields[19]), 10, 64)
	// A process whose first thread has ended shows that one's state, and lives on
	// in its others.
	others := len(fields[17]) > 1 || fields[17][0] > '1'
	dead := (fields[0][0] == 'Z' || fields[0][0] == 'X') && !others
	stopped := fields[0][0] == 'T' || fields[0][0] == 't'
	waits := fields[0][0] == 'D'
	return Process{pid, parent, start, dead, stopped, waits}, err1 == nil && err2 == nil
}

// Below returns those of all whose chain of parents leads to root, but not
// through one that except reports; zombies are left out, as nothing can be done
// to them, but what is below them is not.
func Below(all []Process, root int, except func(pid int) bool) []Process {
	children := make(map[int][]Process, len(all))
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Process
	queue := []int{root}
	seen := map[int]bool{root: true}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for _, p := range children[parent] {
			if seen[p.PID] || except != nil && except(p.PID) {
				continue
			}
			seen[p.PID] = true
			queue = append(queue, p.PID)
			if !p.Zombie {
				found = append(found, p)
			}
		}
	}
	return found
}

// Signal sends signals to p, and to no process that has its number now. It
// reports whether all were sent.
func (p Process) Signal(sigs ...unix.Signal) bool {
	fd, err := p.Open()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	for _, sig := range sigs {
		if unix.PidfdSendSignal(fd, sig, nil, 0) != nil {
			return false
		}
	}
	return true
}

// Open returns a pidfd that is proved to be p's: the descriptor was there
// before p was looked at again. unix.ESRCH where p has ended.
func (p Process) Open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, err
	}
	if now, there := Of(p.PID); !there || now.Start != p.Start || now.Zombie {
		_ = unix.Close(fd)
		return -1, unix.ESRCH
	}
	return fd, nil
}
