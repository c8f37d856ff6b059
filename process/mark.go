package process

import (
	"bytes"
	"context"
	"errors"
	"io"
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

// Mark returns env with a mark, by which [EndMarked] finds a program that is started
// with it, and all that is started from that. Marks that are there stay.
func Mark(env []string, by caisson.InstanceID) []string {
	marks := string(by)
	for _, entry := range env {
		if before, is := strings.CutPrefix(entry, markName+"="); is {
			marks = before + " " + marks
		}
	}
	return append(unmarked(env), markName+"="+marks)
}

// Marked tells whether this process was started with a mark, or from what was.
func Marked(by caisson.InstanceID) bool {
	return slices.ContainsFunc(os.Environ(), func(entry string) bool { return isMark(entry, by) })
}

func isMark(entry string, by caisson.InstanceID) bool {
	marks, is := strings.CutPrefix(entry, markName+"=")
	return is && slices.Contains(strings.Fields(marks), string(by))
}

// unmarked is env without marks, for what outlives that which it is started from.
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
			if ctx.Err() != nil {
				return caisson.Errorf(caisson.CodeOrphanAlive, "not all was looked at that may have been started with a mark: %w", context.Cause(ctx))
			}
			if p.Zombie || !bears(p.PID, by) {
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

// maxEnviron is as much as a program can be given of arguments and environment.
const maxEnviron = 6 << 20

// bears tells whether a process, if it may be looked at, began with a mark in its
// environment.
func bears(pid int, by caisson.InstanceID) bool {
	environ, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer environ.Close()
	return marked(environ, by)
}

// marked looks for a mark in an environment. What a process shows as its own is what
// it likes, also one in a sandbox: it may have no end.
func marked(environ io.Reader, by caisson.InstanceID) bool {
	env, _ := io.ReadAll(io.LimitReader(environ, maxEnviron)) // what there is of it
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if isMark(string(entry), by) {
			return true
		}
	}
	return false
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
