//go:build !race

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// birthStack is ample: the deepest chain of calls is bounded by the linker, at
// less than a kilobyte.
const birthStack = 16 << 10

// Start starts the program and returns when it runs, or why it does not; then
// nothing is left. Where the thread is locked, it is this thread's cgroups that
// the program is born in.
func (c *Cloner) Start(p Program) (*os.Process, error) {
	if len(p.Files) > FirstFreeFD {
		return nil, fmt.Errorf("start program: %w", unix.EMFILE)
	}
	b, err := prepareBirth(p)
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	var gate, status [2]int
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	defer unix.Close(gate[0])
	closeGate := sync.OnceFunc(func() { unix.Close(gate[1]) })
	defer closeGate()
	if err := unix.Pipe2(status[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	defer unix.Close(status[0])
	// The child has a copy of each: it must not hold the writing end of its own gate.
	b.gate, b.otherGate, b.status = gate[0], gate[1], status[1]
	c.enter()
	defer c.leave()
	pid, err := b.clone(p.Attr)
	unix.Close(status[1])
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	child, err := os.FindProcess(pid) // not reaped, so it is there
	if err == nil {
		err = mapIDs(pid, p.Attr)
	}
	if err == nil {
		_, err = unix.Write(gate[1], []byte{1})
	}
	closeGate() // a child that did not get its byte ends
	if said := readFailure(status[0]); err == nil {
		err = said
	}
	if err != nil && child != nil {
		_ = child.Kill() // it ends by itself; until then it needs its stack
		_, _ = child.Wait()
	}
	runtime.KeepAlive(b)
	runtime.KeepAlive(p.Files)
	// The program has memory of its own, or the child has ended.
	if err = errors.Join(err, unix.Munmap(b.stack)); err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	return child, nil
}

// enter and leave keep this process as dumpable as it was: a child that changes
// its user while it shares this memory takes that away, and rightly so for as
// long as it does, as its new user could look into it.
func (c *Cloner) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.children == 0 {
		c.dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0) // cannot fail
	}
	c.children++
}

func (c *Cloner) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.children--
	if c.children == 0 && c.dumpable == 1 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // cannot fail
	}
}

func prepareBirth(p Program) (*birth, error) {
	b := &birth{keep: FirstFreeFD}
	var err error
	pointers := func(in []string) **byte {
		out, failed := syscall.SlicePtrFromStrings(in)
		if failed != nil {
			err = failed
			return nil
		}
		return &out[0]
	}
	text := func(in string) *byte {
		out, failed := syscall.BytePtrFromString(in)
		if failed != nil {
			err = failed
		}
		return out
	}
	b.path, b.dir, b.argv, b.env = text(p.Path), text(p.Dir), pointers(p.Argv), pointers(p.Env)
	for _, f := range p.Files {
		fd := -1
		if f != nil {
			fd = int(f.Fd()) //nolint:gosec // a descriptor
		}
		b.files = append(b.files, fd)
	}
	b.session, b.slack = p.Attr.Setsid, uintptr(max(p.TimerSlack, 0))
	b.turn = uint64(max(p.Turn, 0))
	if who := p.Attr.Credential; who != nil {
		b.setUser, b.uid, b.gid, b.dropGroups = true, uintptr(who.Uid), uintptr(who.Gid), !who.NoSetGroups
	}
	for _, capability := range p.Attr.AmbientCaps {
		if capability >= 64 {
			return nil, unix.EINVAL
		}
		b.caps[capability/32] |= 1 << (capability % 32)
		b.highestCap = max(b.highestCap, capability)
	}
	return b, err
}

// cloneArgs is struct clone_args of the kernel, as of 5.7.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// clone makes the child. b belongs to it until it executes or ends.
//
//go:noinline
//go:norace
func (b *birth) clone(attr *syscall.SysProcAttr) (int, error) {
	stack, err := unix.Mmap(-1, 0, birthStack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	b.stack = stack
	bottom := uintptr(unsafe.Pointer(&stack[0]))
	flags := attr.Cloneflags | unix.CLONE_VM
	trap, a0, a1 := uintptr(unix.SYS_CLONE), flags|uintptr(unix.SIGCHLD), bottom+birthStack
	if attr.UseCgroupFD {
		b.args = cloneArgs{
			flags: uint64(flags | unix.CLONE_INTO_CGROUP), exitSignal: uint64(unix.SIGCHLD),
			stack: uint64(bottom), stackSize: birthStack, cgroup: uint64(attr.CgroupFD), //nolint:gosec // a descriptor
		}
		trap, a0, a1 = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&b.args)), unsafe.Sizeof(b.args)
	}
	syscall.ForkLock.Lock()
	beforeFork() // blocks signals: the child must not run this process's handlers
	pid, errno := cloneBirth(trap, a0, a1, b)
	afterFork()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return 0, errors.Join(syscall.Errno(errno), unix.Munmap(stack))
	}
	return int(pid), nil
}

// mapIDs gives the child's user namespace its ids.
func mapIDs(pid int, attr *syscall.SysProcAttr) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	if attr.UidMappings != nil {
		if err := writeControl(dir+"uid_map", idMap(attr.UidMappings)); err != nil {
			return err
		}
	}
	if attr.GidMappings == nil {
		return nil
	}
	groups := "deny"
	if attr.GidMappingsEnableSetgroups {
		groups = "allow"
	}
	if err := writeControl(dir+"setgroups", groups); err != nil {
		return err
	}
	return writeControl(dir+"gid_map", idMap(attr.GidMappings))
}

func idMap(maps []syscall.SysProcIDMap) string {
	var text []byte
	for _, m := range maps {
		text = fmt.Appendf(text, "%d %d %d\n", m.ContainerID, m.HostID, m.Size)
	}
	return string(text)
}

// readFailure returns what the child said; nil when it has executed its program.
func readFailure(status int) error {
	var raw [failureSize]byte
	for {
		n, err := unix.Read(status, raw[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("read status: %w", err)
		case n == 0:
			return nil
		case n != len(raw):
			return io.ErrUnexpectedEOF
		}
		said := *(*failure)(unsafe.Pointer(&raw))
		what := [...]string{"wait for its ids", "become its user", "keep capabilities", "begin a session", "enter its directory", "arrange its files", "execute"}[said.step]
		return fmt.Errorf("%s: %w", what, syscall.Errno(said.errno))
	}
}
