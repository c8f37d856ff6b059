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
	"time"

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
	l := marks{by: by, known: map[int]uint64{}, late: time.Now().Add(beginFor)}
	for n, quiet := 0, 0; n < passes; n++ { // what is started meanwhile is found by the next
		news, found, err := l.pass(ctx)
		switch {
		case err != nil:
			return err
		case found:
			quiet = 0
		case !news || quiet == quietPasses:
			return nil
		default:
			quiet++
		}
	}
	return caisson.Errorf(caisson.CodeOrphanAlive, "what was started with a mark starts more of it faster than it is ended")
}

// marks are being looked for.
type marks struct {
	by    caisson.InstanceID
	known map[int]uint64 // when those began that were looked at, and bear none
	late  time.Time      // till then those are waited for that are becoming another program
}

// pass looks at all processes that were not looked at before, and kills what bears the
// mark. One that starts another and ends, as who cuts itself off does, may do so in the
// middle of a pass, which sees neither: only one that has no news, as all that were there
// when it began are known, has found that nothing is left.
func (l *marks) pass(ctx context.Context) (news, found bool, err error) {
	pids, err := proctree.Numbers()
	if err != nil {
		return false, false, err
	}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return false, false, caisson.Errorf(caisson.CodeOrphanAlive, "not all was looked at that may have been started with a mark: %w", context.Cause(ctx))
		}
		p, there := proctree.Of(pid)
		if began, is := l.known[pid]; there && is && began == p.Start {
			continue
		}
		news = true
		if there && !p.Zombie && l.bears(ctx, pid) {
			found = true
			if err := kill(ctx, p); err != nil {
				return false, false, err
			}
			continue
		}
		if there {
			l.known[pid] = p.Start
		}
	}
	return news, found, nil
}

const (
	// quietPasses is how many passes in a row may find nothing but news: on a machine
	// where all the time something begins and ends, one is believed at last.
	quietPasses = 20
	// beginFor is how long processes that are just becoming another program are waited
	// for, all together. That takes less than a millisecond, and as long as the machine
	// likes where it gives them no processor meanwhile.
	beginFor  = 5 * time.Second
	beginPoll = time.Millisecond
	// emptyLooks is how often one has to show no environment, or not all of it, though it
	// has arguments: what was looked at may have been two programs, one after the other.
	emptyLooks = 5
)

// maxEnviron is as much as a program can be given of arguments and environment.
const maxEnviron = 6 << 20

// bears tells whether a process, if it may be looked at, began with a mark in its
// environment. One that is becoming another program shows none: it is waited for.
func (l *marks) bears(ctx context.Context, pid int) bool {
	for empty := 0; ; {
		if whole, is := marked(pid, l.by); whole || is {
			return is
		}
		begins, is := begins(pid)
		if !is || ctx.Err() != nil || time.Now().After(l.late) {
			return false
		}
		if begins {
			<-time.After(beginPoll)
			continue
		}
		if empty++; empty == emptyLooks {
			return false
		}
	}
}

// marked looks for a mark in the environment of a process, and tells whether that was
// shown whole: it ends wherever it is being read when the process becomes another
// program, or ends itself. What is shown from its first byte again has been there all
// the time.
func marked(pid int, by caisson.InstanceID) (whole, is bool) {
	environ, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, false
	}
	defer environ.Close()
	read, is := markIn(environ, by)
	n, _ := environ.ReadAt(make([]byte, 1), 0) // none where it is not there any more
	return read > 0 && n == 1, is
}

// markIn looks for a mark in an environment, and tells how much of that there is. What
// a process shows as its own is what it likes, also one in a sandbox: it may have no
// end.
func markIn(environ io.Reader, by caisson.InstanceID) (read int, is bool) {
	env, _ := io.ReadAll(io.LimitReader(environ, maxEnviron)) // what there is of it
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if isMark(string(entry), by) {
			return len(env), true
		}
	}
	return len(env), false
}

// begins tells whether a process is becoming another program: the kernel has put that
// in the place of the one before, and has not given it its arguments and environment
// yet. What has no program is none that could: it has ended, or is the kernel's own.
func begins(pid int) (begins, is bool) {
	at := "/proc/" + strconv.Itoa(pid)
	if _, err := os.Readlink(at + "/exe"); err != nil {
		return false, false
	}
	line, err := os.Open(at + "/cmdline")
	if err != nil {
		return false, false
	}
	defer line.Close()
	_, err = line.Read(make([]byte, 1))
	return errors.Is(err, io.EOF), err == nil || errors.Is(err, io.EOF)
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
