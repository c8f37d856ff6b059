//go:build linux

package box

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
)

// Stream is the host's stream where it is two descriptors.
type Stream struct{ in, out *os.File }

// Read implements io.Reader.
func (s *Stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) { return s.out.Write(b) }

// SyscallConn is the way out, for what moves bytes without copying them.
func (s *Stream) SyscallConn() (syscall.RawConn, error) { return s.out.SyscallConn() }

// Close closes both.
func (s *Stream) Close() error {
	err := s.in.Close()
	if outErr := s.out.Close(); err == nil {
		err = outErr
	}
	return err
}

// streamFD is the lowest descriptor for the stream: commands get theirs below.
const streamFD = 20

// Given makes a box that somebody else made, and in which this is the first
// process, what SetUp makes of one of our own: files by Landlock, system calls
// by a filter, no new privileges; then it tries the forbidden things, and
// reports. The stream that it returns is standard input and output, in whose
// places is nothing any more; the way out is nil where the plan has none. After
// an error the caller must exit at once.
func Given() (*Stream, *outlet.Outlet, error) {
	if len(os.Environ()) > 0 {
		// What the image and the engine set is for nobody, and stays readable in
		// /proc for as long as the first process lives.
		return nil, nil, unix.Exec("/proc/self/exe", os.Args, nil)
	}
	unix.Umask(0o022)
	ignoreSignals()
	if err := keepOutlet(); err != nil {
		return nil, nil, err
	}
	s, err := takeStdio()
	if err != nil {
		return nil, nil, err
	}
	var p plan.Plan
	if err := receive(s, &p); err != nil {
		return nil, nil, fmt.Errorf("read plan: %w", err)
	}
	var out *outlet.Outlet
	if p.Outlet == nil {
		unix.Close(plan.OutletFD)
	}
	report, buildErr := enclose(p, &out)
	if err := send(s, &report); err != nil {
		return nil, nil, fmt.Errorf("write report: %w", err)
	}
	return s, out, buildErr
}

// keepOutlet keeps the descriptor of the way out from whatever would be given
// that number meanwhile, the poller of this program for one.
func keepOutlet() error {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, plan.OutletFD)
	if err == nil && fd != plan.OutletFD {
		unix.Close(fd)
		err = errors.New("it is taken")
	}
	if err != nil {
		return fmt.Errorf("keep descriptor %d: %w", plan.OutletFD, err)
	}
	return nil
}

// takeStdio moves standard input and output out of the way of commands.
func takeStdio() (*Stream, error) {
	var moved [2]*os.File
	for fd := range moved {
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, streamFD)
		if err == nil {
			err = unix.SetNonblock(high, true)
		}
		if err != nil {
			return nil, fmt.Errorf("take standard streams: %w", err)
		}
		moved[fd] = os.NewFile(uintptr(high), "stream") //nolint:gosec // a descriptor
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer unix.Close(null)
	for fd := range moved {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return nil, fmt.Errorf("close standard streams: %w", err)
		}
	}
	return &Stream{in: moved[0], out: moved[1]}, nil
}

func receive(r io.Reader, into pack.Value) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > plan.MaxMessage {
		return fmt.Errorf("it has %d bytes", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(r, raw); err != nil {
		return err
	}
	return pack.Read(raw, into)
}

func send(w io.Writer, what pack.Value) error {
	raw := pack.Bytes(what)
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)) //nolint:gosec // far below
	return err
}

func enclose(p plan.Plan, out **outlet.Outlet) (plan.Report, error) {
	return runSteps(p, []step{
		{"look", lookAround},
		wayOut(out),
		{"limits", setLimits},
		{"landlock", restrictGiven},
		{"capabilities", dropCapabilities},
		{"seccomp", filterSyscalls},
		{"self-test", prove},
	})
}

// lookAround finds out what box this is, while everything can be read.
func lookAround(p *plan.Plan, report *plan.Report) error {
	seen := &plan.Seen{Arch: runtime.GOARCH, Boot: readLine("/proc/sys/kernel/random/boot_id"), Proof: readLine(p.Proof)}
	report.Seen = seen
	seen.Memory, seen.Pids, seen.CPUs = cgroupLimits()
	for _, path := range p.Needs {
		if _, err := os.Stat(path); err != nil {
			seen.Missing = append(seen.Missing, path)
		}
	}
	for _, m := range p.Mounts {
		var st unix.Stat_t
		if err := unix.Stat(m.Target, &st); err != nil {
			return fmt.Errorf("look at %s: %w", m.Target, err)
		}
		seen.Inodes = append(seen.Inodes, st.Ino)
		if m.Write && int(st.Uid) != p.UID {
			seen.Foreign = append(seen.Foreign, m.Target)
		}
	}
	if len(p.System) == 0 {
		return listSystem(p)
	}
	return nil
}

// listSystem makes all of the image the plan's system: what is at the top and
// is neither the kernel's nor given.
func listSystem(p *plan.Plan) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("list the root: %w", err)
	}
	for _, entry := range entries {
		path := "/" + entry.Name()
		// What is behind a link is listed by itself, or is not for programs inside.
		if entry.Type()&fs.ModeSymlink != 0 || slices.Contains([]string{"/proc", "/dev", "/sys", plan.GivenDir}, path) || slices.Contains(writable(p), path) {
			continue
		}
		p.System = append(p.System, path)
	}
	return nil
}

func restrictGiven(p *plan.Plan, report *plan.Report) error {
	// Without capabilities the kernel takes rules only from a thread that can
	// gain none.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("forbid new privileges: %w", errno)
	}
	return restrictFiles(p, report)
}

func readLine(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

// cgroupLimits reads the limits of the box's own cgroup, version 2 or 1, where
// the engine shows it.
func cgroupLimits() (memory, pids, cpus int64) {
	const dir = "/sys/fs/cgroup"
	first := func(names ...string) (value, rest string) {
		for _, name := range names {
			if line := readLine(filepath.Join(dir, name)); line != "" {
				value, rest, _ = strings.Cut(line, " ")
				return value, rest
			}
		}
		return "", ""
	}
	value, _ := first("memory.max", "memory/memory.limit_in_bytes")
	memory = number(value)
	value, _ = first("pids.max", "pids/pids.max")
	pids = number(value)
	quota, period := first("cpu.max", "cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us")
	if period == "" {
		period, _ = first("cpu/cpu.cfs_period_us", "cpu,cpuacct/cpu.cfs_period_us")
	}
	if p := number(period); p > 0 {
		cpus = number(quota) * 1000 / p
	}
	return memory, pids, cpus
}

// number is 0 for what is no bound: "max", -1, or no number.
func number(text string) int64 {
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil || n < 0 || n > 1<<50 {
		return 0
	}
	return n
}
