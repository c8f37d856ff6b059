package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/process"
)

// admit refuses a sandbox that this host has no room for now, CodeHostFull.
//
// Limits are what a sandbox may reach at the most, and few come near: a laptop
// holds twenty of 4 GiB. So their sum is never counted. What must be there is
// what one needs to work at all (floor.memory, or its own limit if that is
// less), as the kernel says that it is available, whoever uses the rest. Without
// that, the kernel would soon end something, and not always what took too much.
// Processes are different: they cannot be swapped or reclaimed, and numbers are
// plenty, so all that the limit allows must be free. The disk has its floor so
// that what is recorded, and the rest of the machine, goes on working.
func (h *Host) admit(c config.Config, limits caisson.Limits, dirs ...string) error {
	for _, dir := range dirs {
		if err := h.admitDisk(c, dir); err != nil {
			return err
		}
	}
	groups, err := process.FindCgroups()
	if err != nil {
		groups = nil // no limits of a container's are known
	}
	room, err := groups.Room()
	if err != nil {
		return nil //nolint:nilerr // a system that does not tell is not full
	}
	return h.admitRoom(c, limits, room)
}

func (h *Host) admitRoom(c config.Config, limits caisson.Limits, room process.Room) error {
	need := c.Floors.Memory
	if limits.Memory > 0 {
		need = min(need, limits.Memory)
	}
	if room.Memory < need {
		return caisson.Errorf(caisson.CodeHostFull, "%s of memory are available, and a sandbox needs %s to work", amount(room.Memory), amount(need)).
			WithHint("End other programs or runs, or lower `floor.memory` in %s.", h.Paths.UserConfig())
	}
	if room.Pids < limits.Pids {
		return caisson.Errorf(caisson.CodeHostFull, "%d more processes can be made on this host, and the sandbox may make %d", max(room.Pids, 0), limits.Pids).
			WithHint("End other programs or runs, or lower `limits.pids`.")
	}
	return nil
}

func (h *Host) admitDisk(c config.Config, dir string) error {
	free, known := freeOn(dir)
	if !known || free >= c.Floors.Disk { // what is wrong with it is said by who uses it
		return nil
	}
	return caisson.Errorf(caisson.CodeHostFull, "%s are free on the disk of %s, and %s must stay free", amount(free), dir, amount(c.Floors.Disk)).
		WithHint("Free some space (`caisson workspace rm --unbound` moves what is done with to the trash, `caisson workspace trash prune` removes it for good), or lower `floor.disk` in %s.", h.Paths.UserConfig())
}

// freeOn returns how many bytes are free where dir is.
func freeOn(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true //nolint:gosec // no disk is that large
}

// amount is a number of bytes for people.
func amount(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}
