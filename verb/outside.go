//go:build linux

package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// guestName is the name of the guest program that holds programs of the host,
// beside those of the engines.
const guestName = "host"

// endBound is how long a guest whose stream is closed may take to end all that
// it started.
const endBound = 5 * time.Second

// Outside runs programs on the host, outside of every sandbox, each below a
// guest of its own: it is held before it begins, and whatever it starts, however
// it hides, has ended when it has, or when this process ends. Safe for
// concurrent use.
type Outside struct{ program *layout.Program }

// NewOutside returns one; read gives the guest program.
func NewOutside(read func() ([]byte, error)) *Outside {
	return &Outside{layout.NewProgram(guestName, read)}
}

// Close releases the guest program. Programs that run are not waited for.
func (o *Outside) Close() error { return o.program.Close() }

// place is where and as what a program runs.
type place struct {
	dir    string   // absolute; the program begins there or below
	env    []string // all of it
	memory int64    // bytes that each of its processes may have of its own
}

// outer is one guest outside of a sandbox, for one program.
type outer struct {
	process *os.Process
	root    caisson.ProcessIdentity
	client  *guest.Client
	once    sync.Once
	failed  error
}

func (o *Outside) open(ctx context.Context, p place) (*outer, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "make a stream: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "stream"), os.NewFile(uintptr(fds[1]), "stream")
	started, err := o.program.StartAs("", []*os.File{theirs}, &syscall.SysProcAttr{Setsid: true})
	_ = theirs.Close() // the guest has its own
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	out := &outer{process: started}
	root, err := process.Of(started.Pid)
	out.root = root
	if err == nil && p.memory > 0 {
		most := &unix.Rlimit{Cur: uint64(p.memory), Max: uint64(p.memory)}
		err = unix.Prlimit(started.Pid, unix.RLIMIT_DATA, most, nil)
	}
	if err == nil {
		out.client, err = guest.Connect(ctx, ours, guest.Options{Workspace: p.dir, Env: p.env, Root: root, Identify: process.Within(root)})
	} else {
		_ = ours.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("start the guest: %w", errors.Join(err, out.close()))
	}
	return out, nil
}

// close ends the guest and all below it.
func (o *outer) close() error {
	o.once.Do(func() {
		if o.client != nil {
			_ = o.client.Close() // always nil
		}
		late := time.AfterFunc(endBound, func() { // what is below it, too, which would fall to nobody
			ctx, done := context.WithTimeout(context.Background(), endBound)
			defer done()
			if process.EndTree(ctx, o.root) != nil {
				_ = o.process.Kill() // it may have ended
			}
		})
		defer late.Stop()
		_, o.failed = o.process.Wait()
	})
	return o.failed
}

// held is an executor that takes its guest along.
type held struct {
	caisson.Executor
	outer *outer
}

// Open implements caisson.Executor.
func (h *held) Open(ctx context.Context) (caisson.Result, error) {
	result, err := h.Executor.Open(ctx)
	return result, errors.Join(err, h.outer.close())
}

// Drop implements caisson.Executor.
func (h *held) Drop() {
	h.Executor.Drop()
	_ = h.outer.close() // nothing had begun
}
