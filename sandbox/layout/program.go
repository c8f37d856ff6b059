//go:build linux

package layout

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
)

// Program is the guest program as a file of memory that nobody can change any
// more, whoever gets hold of it. Safe for concurrent use.
type Program struct {
	name string
	read func() ([]byte, error)

	cloner process.Cloner

	mu     sync.Mutex
	closed bool
	file   *os.File
}

// NewProgram returns an engine's guest program; it is read once, at its first use.
func NewProgram(engine string, read func() ([]byte, error)) *Program {
	return &Program{name: ProgramName(engine), read: read}
}

// ProgramName is what the kernel calls the guest program of an engine, so that
// each finds what is left of its own.
func ProgramName(engine string) string { return "caisson-guest-" + engine }

// Open returns the file, which stays the program's.
func (p *Program) Open() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.file, nil
	}
	if p.closed {
		return nil, caisson.Errorf(caisson.CodeInternal, "the engine is closed")
	}
	if p.read == nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "the guest program is not there")
	}
	raw, err := p.read()
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	file, err := seal(p.name, raw)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "keep guest program: %w", err)
	}
	p.file = file
	return file, nil
}

// Close releases the file.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	return err
}

func seal(name string, program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { //nolint:errorlint // a kernel before 6.3 knows no MFD_EXEC and needs none
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, process.FirstFreeFD)
	unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("move descriptor: %w", err)
	}
	file := os.NewFile(uintptr(high), name)
	if _, err = file.Write(program); err == nil {
		err = process.Keep(file) // others tell by it that this process lives
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Start runs the guest program so that it builds a box; see StartAs.
func (p *Program) Start(files []*os.File, attr *syscall.SysProcAttr) (*os.Process, error) {
	return p.StartAs(plan.Argument, files, attr)
}

// environment is all of the guest's own: nothing of the host's. A program that is
// told from its first instruction that it has one processor begins on fewer
// threads, each of which takes as long as a dozen mounts to make.
var environment = []string{"GOMAXPROCS=1"}

// timerSlack keeps a thread of Go's runtime, which looks after the others every
// 20 µs while they work, from taking the processor from them each time: on a
// busy machine it does not come back at once. Timers of the guest's own may be late
// by as much; commands have the kernel's default.
const timerSlack = time.Millisecond

// turn is less than the kernel gives by itself (0.7 ms, and more with each doubling
// of the processors), and ample for what a guest does at once. It does little, and
// much waits for it: at an opening it is asked, and answers, a dozen times, and on
// a busy machine each may wait for as long as others have their turn. Commands
// have the kernel's default.
const turn = 500 * time.Microsecond

// StartAs runs the guest program with an argument and an environment that is
// always the same, /dev/null as its first three descriptors, and files after them.
func (p *Program) StartAs(argument string, files []*os.File, attr *syscall.SysProcAttr) (*os.Process, error) {
	program, err := p.Open()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	all := append([]*os.File{null, null, null}, files...)
	if len(all) > process.FirstFreeFD {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "at most %d paths can be lent to a sandbox", process.FirstFreeFD-plan.MountFD)
	}
	return p.cloner.Start(process.Program{
		Path: fmt.Sprintf("/proc/self/fd/%d", program.Fd()), Argv: []string{"caisson-guest", argument}, Env: environment, Dir: "/", Files: all, Attr: attr,
		TimerSlack: timerSlack, Turn: turn,
	})
}
