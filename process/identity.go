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
	"time"

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

// Stopped tells whether a process of this pid namespace does nothing because it
// was stopped, by a signal or a debugger, as far as can be seen. So is one that
// waits for a child which was stopped between vfork and exec: the stop that was
// meant for both reached only the child, and both go on when that does.
func Stopped(pid int) bool {
	p, there := proctree.Of(pid)
	if !there || p.Stopped || !p.Waits {
		return there && p.Stopped
	}
	number := strconv.Itoa(pid)
	for _, child := range childrenOf("/proc/"+number+"/task", number) {
		if c, there := proctree.Of(child); there && c.Stopped {
			return true
		}
	}
	return false
}

// SinceBoot is the time since the machine was started, the time that it slept with
// it. No person sets it, so that what lasts a while is measured by it: also between
// processes, where their boot is the same. 0 on a system that does not tell.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
