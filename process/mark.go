package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// A program may start another that is cut off from it: whose parent ends, in a
// session of its own. No walk of descendants finds that. What it has still is the
// environment that it began with, unless it was given another.

const markName = "CAISSON_HELD_BY"

// Mark is an entry of the environment by which [EndMarked] finds a program, and
// all that is started from it.
func Mark(by caisson.InstanceID) string { return markName + "=" + string(by) }

// Marked tells whether this process was started with a mark, or from what was.
func Marked(by caisson.InstanceID) bool { return slices.Contains(os.Environ(), Mark(by)) }

// unmarked is env for what outlives that which it is started from.
func unmarked(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, markName+"=") })
}

// EndMarked kills what was started with a mark, and returns when none of it is
// left, or with CodeOrphanAlive. What began with another environment is not found,
// as what [Detach] has started is not. A process that bears the mark itself does
// nothing.
func EndMarked(ctx context.Context, by caisson.InstanceID) error {
	if Marked(by) {
		return caisson.Errorf(caisson.CodeOrphanAlive, "what was started with a mark is not ended by a process that bears it").
			WithHint("Do it from elsewhere.")
	}
	for range passes { // what is started meanwhile is found by the next
		all, err := proctree.All()
		if err != nil {
			return err
		}
		found := false
		for _, p := range all {
			if p.Zombie || !bears(p.PID, Mark(by)) {
				continue
			}
			found = true
			if err := kill(ctx, p); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
	}
	return caisson.Errorf(caisson.CodeOrphanAlive, "what was started with a mark starts more of it faster than it is ended")
}

// bears tells whether a process, if it may be looked at, began with an entry in
// its environment.
func bears(pid int, entry string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return string(e) == entry })
}

// kill kills one process, and returns when it has ended.
func kill(ctx context.Context, p proctree.Process) error {
	fd, err := p.Open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be ended: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d cannot be ended: %w", p.PID, err)
	}
	if err := awaitEnd(ctx, fd); err != nil {
		return caisson.Errorf(caisson.CodeOrphanAlive, "process %d does not end though it was killed: %w", p.PID, err)
	}
	return nil
}
