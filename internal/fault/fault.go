// Package fault marks the places where a program may die or an operation may
// fail, so that tests can make exactly that happen there.
//
// A point does nothing unless a test arms it: by [Arm] in its own process, or
// by the environment variable CAISSON_FAULT in a child that it starts:
//
//	CAISSON_FAULT=ledger.commit.before=crash,workspace.rename=enospc@3
//
// An entry is point=action, or point=action@n for the nth pass (from 1). The
// action crash ends the process by SIGKILL, as a power cut would: nothing is
// flushed and nothing deferred runs. The actions enospc, eio, eacces and
// emfile make [Point] return that errno, once.
//
// Not promised: which points exist in which version.
package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Env is the environment variable that arms points in a child process.
const Env = "CAISSON_FAULT"

// Action is what an armed point does.
type Action string

// Actions.
const (
	Crash  Action = "crash"
	ENOSPC Action = "enospc"
	EIO    Action = "eio"
	EACCES Action = "eacces"
	EMFILE Action = "emfile"
)

func (a Action) errno() (syscall.Errno, bool) {
	switch a {
	case ENOSPC:
		return syscall.ENOSPC, true
	case EIO:
		return syscall.EIO, true
	case EACCES:
		return syscall.EACCES, true
	case EMFILE:
		return syscall.EMFILE, true
	case Crash:
		return 0, true
	default:
		return 0, false
	}
}

// armed is one point that a test has armed.
type armed struct {
	point  string
	action Action
	after  atomic.Int64 // passes left until it acts; below 1 it has acted
}

// set is the one place in the program with state of its own: a point has to be
// reachable from anywhere without being handed through every constructor.
type set struct {
	mu     sync.Mutex // held by writers of points
	env    sync.Once
	points atomic.Pointer[[]*armed]
}

var current set

// Point returns nil, unless a test armed it.
func Point(name string) error {
	current.env.Do(current.fromEnv)
	points := current.points.Load()
	if points == nil {
		return nil
	}
	var due *armed
	for _, a := range *points { // all of them count the pass
		if a.point == name && a.after.Add(-1) == 0 {
			due = a
		}
	}
	if due == nil {
		return nil
	}
	return act(due)
}

// Arm makes the nth (from 1) pass of a point act. The function it returns
// disarms it. For tests.
func Arm(point string, action Action, nth int64) (disarm func()) {
	current.env.Do(current.fromEnv)
	a := &armed{point: point, action: action}
	a.after.Store(nth)
	current.change(func(points []*armed) []*armed { return append(points, a) })
	return func() {
		current.change(func(points []*armed) []*armed {
			kept := points[:0]
			for _, p := range points {
				if p != a {
					kept = append(kept, p)
				}
			}
			return kept
		})
	}
}

// change replaces the points by what with makes of a copy of them.
func (s *set) change(with func([]*armed) []*armed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var points []*armed
	if old := s.points.Load(); old != nil {
		points = append(points, *old...)
	}
	points = with(points)
	if len(points) == 0 {
		s.points.Store(nil)
		return
	}
	s.points.Store(&points)
}

// fromEnv arms what the environment says. An entry that cannot be read ends the
// program: a test that arms nothing by a slip of the pen would pass for the
// wrong reason.
func (s *set) fromEnv() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	points, err := parse(text)
	if err != nil {
		panic(Env + ": " + err.Error())
	}
	s.change(func([]*armed) []*armed { return points })
}

func parse(text string) ([]*armed, error) {
	var points []*armed
	for entry := range strings.SplitSeq(text, ",") {
		point, rest, ok := strings.Cut(entry, "=")
		if !ok || point == "" {
			return nil, fmt.Errorf("entry %q is not point=action", entry)
		}
		name, count, counted := strings.Cut(rest, "@")
		nth := int64(1)
		if counted {
			var err error
			if nth, err = strconv.ParseInt(count, 10, 64); err != nil || nth < 1 {
				return nil, fmt.Errorf("entry %q: the pass is not a number from 1", entry)
			}
		}
		if _, known := Action(name).errno(); !known {
			return nil, fmt.Errorf("entry %q: no action %q", entry, name)
		}
		a := &armed{point: point, action: Action(name)}
		a.after.Store(nth)
		points = append(points, a)
	}
	return points, nil
}

func act(a *armed) error {
	if a.action == Crash {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
		select {} // until the signal arrives
	}
	errno, _ := a.action.errno()
	return fmt.Errorf("fault at %s: %w", a.point, errno)
}
