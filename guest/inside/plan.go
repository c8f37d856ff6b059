package inside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	boxplan "github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/guest/wire"
)

// unixEpoch is a deadline that is over.
var unixEpoch = time.Unix(1, 0)

// plan is all that is needed to start one command.
type plan struct {
	spawn  *spawn
	theirs []int // descriptors to close once the processes have theirs
}

func (p *plan) close() {
	for _, fd := range p.theirs {
		_ = unix.Close(fd)
	}
	p.theirs = nil
}

// plan makes everything ready. On error nothing is left open.
func (c *command) plan(req wire.Hold) (*plan, error) {
	p := &plan{spawn: &spawn{name: [16]byte{'h', 'o', 'l', 'd', 'e', 'r'}}}
	err := c.program(p, req)
	if err == nil {
		err = c.channels(p, req)
	}
	if err != nil {
		p.close()
		c.closeOurs()
		return nil, err
	}
	return p, nil
}

// program settles what is executed, where, with which environment and limits.
func (c *command) program(p *plan, req wire.Hold) error {
	argv := wire.Strings(req.Argv)
	if len(argv) == 0 {
		argv = []string{shell(), "-c", string(req.Line)}
	}
	env := merge(wire.Strings(c.s.hello.Env), wire.Strings(req.Env))
	dir, err := c.s.dir(string(req.Dir))
	if err != nil {
		return err
	}
	p.theirs = append(p.theirs, dir)
	path, err := look(argv[0], dir, env)
	if err != nil {
		return err
	}
	sp := p.spawn
	sp.dir = dir
	if sp.path, err = syscall.BytePtrFromString(path); err == nil {
		sp.argv, err = pointers(argv)
	}
	if err == nil {
		sp.env, err = pointers(env)
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeCallInvalid, "arguments and environment cannot hold a NUL byte")
	}
	sp.limits, sp.rules = c.s.limits(), c.s.rules
	return nil
}

func pointers(in []string) (**byte, error) {
	out, err := syscall.SlicePtrFromStrings(in)
	if err != nil {
		return nil, err
	}
	return &out[0], nil
}

// limits returns the rlimits of each command, never above what the guest has.
func (s *server) limits() [3]rlimit {
	out := [3]rlimit{{resource: unix.RLIMIT_NOFILE}, {resource: unix.RLIMIT_FSIZE}, {resource: unix.RLIMIT_CORE}}
	for i, want := range []int64{s.hello.Files, s.hello.Size, boxplan.NoCore} {
		var have unix.Rlimit
		value := uint64(max(want, 0))
		if err := unix.Getrlimit(int(out[i].resource), &have); err == nil { //nolint:gosec // a small constant
			value = min(value, have.Max)
		}
		out[i].value = syscall.Rlimit{Cur: value, Max: value}
	}
	return out
}

// shell is what runs a shell line.
func shell() string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash"} {
		if unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return "/bin/sh"
}

// merge lays over on base: one value a key, the last wins.
func merge(base, over []string) []string {
	at := map[string]int{}
	var env []string
	for _, list := range [][]string{base, over} {
		for _, kv := range list {
			key, _, _ := strings.Cut(kv, "=")
			if i, there := at[key]; there {
				env[i] = kv
				continue
			}
			at[key] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

// dir opens a working directory beneath the workspace.
func (s *server) dir(path string) (int, error) {
	if s.root == nil {
		if path == "" {
			path = "/"
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, caisson.Errorf(caisson.CodePathInvalid, "the directory %q cannot be used: %w", path, err)
		}
		return above(fd)
	}
	f, err := s.openFile(path, unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, minFD)
}

// above moves a descriptor out of the way of the low ones.
func above(fd int) (int, error) {
	if fd >= minFD {
		return fd, nil
	}
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFD)
}

// fillLow takes the low descriptors, so that no other has to be moved.
func fillLow(with int) error {
	for {
		fd, err := unix.FcntlInt(uintptr(with), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if fd >= minFD {
			return unix.Close(fd)
		}
	}
}

// look finds the program: by path, seen from the working directory, or in the
// PATH of the command's own environment.
func look(name string, dir int, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(dir, name); err != nil {
			return "", notFound(name, err)
		}
		return name, nil
	}
	list := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if value, is := strings.CutPrefix(kv, "PATH="); is {
			list = value
		}
	}
	var failed error = fs.ErrNotExist
	for _, in := range strings.Split(list, ":") {
		if in == "" {
			continue // the working directory is never searched
		}
		path := filepath.Join(in, name)
		err := executable(dir, path)
		if err == nil && name != "" {
			return path, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	return "", notFound(name, failed)
}

func executable(dir int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path, &st, 0); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Faccessat(dir, path, unix.X_OK, 0)
}

func notFound(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return caisson.Errorf(caisson.CodeNotFound, "the program %q was not found: %w", name, err)
	}
	return caisson.Errorf(caisson.CodePathInvalid, "the program %q cannot be executed: %w", name, err)
}

// channels makes the pipes or the terminal.
func (c *command) channels(p *plan, req wire.Hold) error {
	var gate, status [2]int
	if err := pipe(&gate); err != nil {
		return err
	}
	c.gate = file(gate[1], "gate")
	p.theirs = append(p.theirs, gate[0])
	if err := pipe(&status); err != nil {
		return err
	}
	c.status = file(status[0], "status")
	p.theirs = append(p.theirs, status[1])
	p.spawn.gate, p.spawn.status = gate[0], status[1]
	null := int(c.s.null.Fd()) //nolint:gosec // a descriptor
	p.spawn.stdio = [3]int{null, null, null}
	if req.PTY != nil {
		return c.terminal(p, req)
	}
	return c.pipes(p, req)
}

func (c *command) pipes(p *plan, req wire.Hold) error {
	if req.Stdin {
		var in [2]int
		if err := pipe(&in); err != nil {
			return err
		}
		p.spawn.stdio[0] = in[0]
		p.theirs = append(p.theirs, in[0])
		c.stdin, c.input = file(in[1], "stdin"), wire.NewRing()
	}
	for i, wanted := range []bool{req.Stdout, req.Stderr} {
		if !wanted {
			continue
		}
		var out [2]int
		if err := pipe(&out); err != nil {
			return err
		}
		// A user who has many pipes gets the default size, which serves too.
		_, _ = unix.FcntlInt(uintptr(out[0]), unix.F_SETPIPE_SZ, pumpSize)
		p.spawn.stdio[i+1] = out[1]
		p.theirs = append(p.theirs, out[1])
		c.outs = append(c.outs, newPump(c, []wire.Type{wire.TypeOut, wire.TypeErr}[i], file(out[0], "output")))
	}
	if req.Merge {
		p.spawn.stdio[2] = p.spawn.stdio[1]
	}
	return nil
}

// pipe makes a pipe with both ends out of the way.
func pipe(ends *[2]int) error {
	var raw [2]int
	if err := unix.Pipe2(raw[:], unix.O_CLOEXEC); err != nil {
		return spawnError(err)
	}
	var err error
	if ends[0], err = above(raw[0]); err != nil {
		_ = unix.Close(raw[1])
		return spawnError(err)
	}
	if ends[1], err = above(raw[1]); err != nil {
		_ = unix.Close(ends[0])
		return spawnError(err)
	}
	return nil
}

// file makes our end of a pipe a file that waits without a thread.
func file(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true) // blocking would work too, at the price of a thread
	return os.NewFile(uintptr(fd), name)
}

// terminal makes a pseudo terminal.
func (c *command) terminal(p *plan, req wire.Hold) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return caisson.Errorf(caisson.CodeUnsupported, "no terminal can be made inside: %w", err)
	}
	c.master = file(fd, "terminal")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return caisson.Errorf(caisson.CodeUnsupported, "no terminal can be made inside: %w", err)
	}
	// By the master, not by a path: /dev/pts may be another one's.
	slave, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return caisson.Errorf(caisson.CodeUnsupported, "no terminal can be made inside: %w", errno)
	}
	end, err := above(int(slave))
	if err != nil {
		return err
	}
	p.theirs = append(p.theirs, end)
	p.spawn.stdio = [3]int{end, end, end}
	p.spawn.terminal = true
	setSize(c.master, *req.PTY)
	if req.Stdin {
		c.stdin, c.input = c.master, wire.NewRing()
	}
	if req.Stdout {
		c.outs = append(c.outs, newPump(c, wire.TypeOut, c.master))
	}
	return nil
}

func setSize(master *os.File, size caisson.Winsize) {
	raw, err := master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // closed meanwhile: nothing to resize
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}
