package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// Programs that are run from a file of memory are found by what the kernel says
// of the processes, not by what they say of themselves: the link to the file
// bears its name, the file belongs to the user who made it, and its maker holds
// a lock on it which the kernel lets go of when the maker ends.

// sealed is what nobody can do any more to a program that is kept.
const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// Keep marks a program in a file of memory, which is written whole, as this
// process's, for as long as it or a process that has got the descriptor from it
// lives. It is locked before it is sealed: one that is not sealed is nobody's
// yet, and its lock is not looked at.
func Keep(program *os.File) error {
	if err := unix.Flock(int(program.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock memory file: %w", err)
	}
	again := time.NewTicker(sealPoll)
	defer again.Stop()
	for end := time.Now().Add(sealFor); ; <-again.C {
		_, err := unix.FcntlInt(program.Fd(), unix.F_ADD_SEALS, sealed)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(end):
			return fmt.Errorf("seal memory file: %w", err)
		}
	}
}

// The kernel does not seal a file of which it uses a page itself, as when it moves
// memory about: it says that it is busy, and is not for long.
const (
	sealFor  = 5 * time.Second
	sealPoll = 10 * time.Millisecond
)

// Kept is a process that runs a program which was kept in memory.
type Kept struct {
	PID    int
	Start  uint64           // clock ticks since boot
	Parent int              //
	Keeper caisson.Liveness // of who keeps the program
	at     string           // where in /proc/PID the program is
}

// AllKept returns this user's processes that run a kept program of that name,
// or have it at one of the descriptors, to run it; ended ones left out. Of a
// process that may not be looked at it cannot be told what it runs; it is
// another user's.
func AllKept(ctx context.Context, name string, descriptors ...int) ([]Kept, error) {
	places := []string{"exe"}
	for _, fd := range descriptors {
		places = append(places, "fd/"+strconv.Itoa(fd))
	}
	all, err := proctree.All()
	if err != nil {
		return nil, err
	}
	var found []Kept
	for _, p := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if p.Zombie {
			continue
		}
		for _, at := range places {
			if keeper, runs := keeperOf(p.PID, at, name); runs {
				found = append(found, Kept{p.PID, p.Start, p.Parent, keeper, at})
				break
			}
		}
	}
	return found, nil
}

// keeperOf tells whether a process has the program at a place, and whether who
// keeps it lives.
func keeperOf(pid int, at, name string) (caisson.Liveness, bool) {
	path := "/proc/" + strconv.Itoa(pid) + "/" + at
	var link [64]byte
	n, err := unix.Readlink(path, link[:])
	if err != nil || string(link[:n]) != "/memfd:"+name+" (deleted)" {
		return "", false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return "", false // it has ended meanwhile
	}
	if err != nil {
		return caisson.LivenessUnknown, true
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return caisson.LivenessUnknown, true
	}
	if int(st.Uid) != os.Geteuid() {
		return "", false
	}
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil && seals&sealed != sealed {
		return "", false // in the making, or another's
	}
	switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return caisson.Dead, true
	case errors.Is(err, unix.EWOULDBLOCK):
		return caisson.Alive, true
	}
	return caisson.LivenessUnknown, true
}

// End kills the process and returns when it has ended, or with CodeOrphanAlive
// when ctx ends before. It is not killed where its keeper is not known to have
// ended.
func (k Kept) End(ctx context.Context, name string) error {
	fd, err := proctree.Process{PID: k.PID, Start: k.Start}.Open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be ended: %w", k.PID, err)
	}
	defer unix.Close(fd)
	keeper, runs := keeperOf(k.PID, k.at, name)
	if !runs || keeper != caisson.Dead {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be ended: %w", k.PID, err)
	}
	if err := awaitEnd(ctx, fd); err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d does not end though it was killed: %w", k.PID, err)
	}
	return nil
}

// EndTree is End with all that the process has started.
func (k Kept) EndTree(ctx context.Context, name string) error {
	keeper, runs := keeperOf(k.PID, k.at, name)
	if !runs || keeper != caisson.Dead {
		return nil
	}
	id, err := here()
	if err != nil {
		return err
	}
	id.PID, id.Start = k.PID, k.Start
	return EndTree(ctx, id)
}
