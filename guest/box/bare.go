//go:build linux && (amd64 || arm64)

package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
)

// Versions of Landlock's interface that brought rules on TCP, and on signals and
// abstract sockets.
const (
	versionNetwork = 4
	versionScope   = 6
)

// Restrict reads the plan, restricts this thread and executes this program again
// from it: the rules are then one domain for the whole process and all that it
// starts. Threads that each restrict themselves would be in domains of their
// own, and could not signal what another one has started. It returns only with
// an error, after a report of it.
//
// The goroutine is locked to its thread from before the first rule, so that
// nothing can execute from a thread without them.
func Restrict() error {
	runtime.LockOSThread()
	control := os.NewFile(plan.ControlFD, "control")
	if control == nil {
		return errors.New("read plan: no descriptor")
	}
	raw, err := io.ReadAll(control)
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	var p plan.Plan
	if err := pack.Read(raw, &p); err != nil { // also: the host died before it had sent all
		return fmt.Errorf("read plan: %w", err)
	}
	unix.Umask(0o022)
	report, err := runSteps(p, []step{
		{"limits", setLimits},
		{"plan", func(*plan.Plan, *plan.Report) error { return keepPlan(raw) }},
		{"score", keepScore},
		{"landlock", restrictBare},
		{"capabilities", dropOwnCapabilities},
		{"seccomp", filterBare},
		{"execute", func(*plan.Plan, *plan.Report) error {
			return syscall.Exec("/proc/self/exe", []string{os.Args[0], plan.ProvenArgument}, []string{})
		}},
	})
	return errors.Join(err, answerReport(control, report))
}

func answerReport(control *os.File, report plan.Report) error {
	if _, err := control.Write(pack.Bytes(&report)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// keepPlan hands the plan, and the stream, over the execution.
func keepPlan(raw []byte) error {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make memory file: %w", err)
	}
	defer unix.Close(fd)
	for rest := raw; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			return fmt.Errorf("write plan: %w", err)
		}
		rest = rest[n:]
	}
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	if err := unix.Dup3(fd, plan.PlanFD, 0); err != nil {
		return fmt.Errorf("hand plan on: %w", err)
	}
	if _, err := unix.FcntlInt(plan.StreamFD, unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("hand stream on: %w", err)
	}
	return nil
}

// keepScore hands on what the rules will keep from being opened. A file of a
// process in /proc is that of the program that it executes next, too.
func keepScore(*plan.Plan, *plan.Report) error {
	fd, err := unix.Open(plan.ScorePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerror // commands end in any order then; it is no control
	}
	defer unix.Close(fd)
	if err := unix.Dup3(fd, plan.ScoreFD, 0); err != nil {
		return fmt.Errorf("hand score on: %w", err)
	}
	return nil
}

// ProveBare tries, after Restrict, what is forbidden, and reports. It returns
// the descriptor of the rules for commands, 0 where there are none.
func ProveBare() (rules int, err error) {
	control, kept := os.NewFile(plan.ControlFD, "control"), os.NewFile(plan.PlanFD, "plan")
	if control == nil || kept == nil {
		return 0, errors.New("read plan: no descriptor")
	}
	defer control.Close()
	var p plan.Plan
	raw, err := io.ReadAll(kept)
	kept.Close()
	if err == nil {
		err = pack.Read(raw, &p)
	}
	if err != nil {
		return 0, fmt.Errorf("read plan: %w", err)
	}
	ignoreSignals()
	report, err := runSteps(p, []step{
		{"self-test", proveBare},
		{"rules", func(_ *plan.Plan, report *plan.Report) (err error) {
			rules, err = commandRules(report.Landlock)
			return err
		}},
	})
	return rules, errors.Join(err, answerReport(control, report))
}

// commandRules returns rules by which a command cannot signal this process, nor
// another command.
func commandRules(version int) (int, error) {
	if version < versionScope {
		return 0, nil
	}
	fd, err := makeRules(version, unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_SIGNAL})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Dup3(fd, plan.RulesFD, unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("keep rules: %w", err)
	}
	return plan.RulesFD, nil
}

// makeRules makes a set of rules of what the version knows.
func makeRules(version int, attr unix.LandlockRulesetAttr) (int, error) {
	size := unsafe.Offsetof(attr.Quiet_access_fs)
	switch {
	case version < versionNetwork:
		size = unsafe.Offsetof(attr.Handled_access_net)
	case version < versionScope:
		size = unsafe.Offsetof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, fmt.Errorf("make rules: %w", errno)
	}
	return int(fd), nil
}

// restrictBare restricts this thread: files as the plan says, no TCP at all,
// no signals and abstract sockets beyond the box.
func restrictBare(p *plan.Plan, report *plan.Report) error {
	version := landlockVersion()
	if version == 0 {
		return fmt.Errorf("the kernel has no Landlock of version 2: %w", unix.ENOSYS)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled(version)}
	handled := attr.Handled_access_fs
	if version >= versionScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if version >= versionNetwork {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	rules, err := makeRules(version, attr)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	const device = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	for _, rule := range []struct {
		paths  []string
		rights uint64
	}{
		{[]string{"/proc"}, unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR},
		{[]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}, device},
		{p.System, look},
		{p.Etc, look},
	} {
		for _, path := range rule.paths {
			if err := grant(rules, path, rule.rights, handled); err != nil {
				return err
			}
		}
	}
	for _, path := range writable(p) {
		if err := grantLent(rules, path, handled, handled); err != nil {
			return err
		}
	}
	for _, m := range p.Mounts {
		if m.Writable() {
			continue
		}
		if err := grantLent(rules, m.Target, look, handled); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("apply rules: %w", errno)
	}
	report.Landlock = version
	return nil
}

// dropOwnCapabilities empties this thread's sets, the ambient one with them.
func dropOwnCapabilities(*plan.Plan, *plan.Report) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// filterBare applies the filter of a box that shares the host's network: no
// sockets but pairs.
func filterBare(p *plan.Plan, report *plan.Report) error {
	filter := bareProgram(p, report.Landlock)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("apply filter: %w", errno)
	}
	return nil
}

// attributes are the calls that write attributes of files.
var attributes = [...]uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
}

// shares are the calls that make, find and attach what System V and POSIX share
// between processes. It is in no file system, so that Landlock says nothing of
// it: without a namespace it is the host's, memory of the caller's other programs
// among it, and stays when the box has ended.
var shares = [...]uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// onlySelf allows a call where an argument says that it is of the caller itself.
func onlySelf(arguments ...uint32) (f []unix.SockFilter) {
	for _, a := range arguments {
		f = append(f, low(a), jump(unix.BPF_JEQ, 0, 1, 0), eperm)
	}
	return append(f, allow)
}

// versionTruncate is the version of Landlock's interface that keeps truncate, by
// a path, off files that may not be written.
const versionTruncate = 3

// bareProgram goes before the program of any box. Landlock knows no UDP, and of
// unix sockets only the abstract ones, so that no socket can be made. Pairs can,
// but not of datagrams: those could be sent to any address.
func bareProgram(p *plan.Plan, version int) []unix.SockFilter {
	const ioprioProcess = 1 // IOPRIO_WHO_PROCESS (linux/ioprio.h)
	f := rule(
		one(load(dataArch), jump(unix.BPF_JEQ, nativeArch, 1, 0), enosys, load(dataNumber)),
		on(unix.SYS_SOCKET, eafnosupport),
		on(unix.SYS_CONNECT, eperm),
		on(unix.SYS_SOCKETPAIR, low(0), jump(unix.BPF_JEQ, unix.AF_UNIX, 1, 0), eafnosupport,
			low(1), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketKind},
			jump(unix.BPF_JEQ, unix.SOCK_STREAM, 1, 0), jump(unix.BPF_JEQ, unix.SOCK_SEQPACKET, 0, 1), allow, eprotonosupport),
	)
	// Landlock has no right for attributes either: data could be written to
	// any file of the caller's. Programs know file systems that have none.
	for _, number := range attributes {
		f = append(f, on(number, enotsup)...)
	}
	for _, number := range shares {
		f = append(f, on(number, enosys)...) // as a kernel without them says
	}
	// Without a pid namespace these slow down, or hold up, any program of the
	// caller's on the host, and whoever has no privilege cannot undo it.
	f = append(f, on(unix.SYS_SETPRIORITY, onlySelf(0, 1)...)...) // PRIO_PROCESS is 0
	f = append(f, on(unix.SYS_IOPRIO_SET, rule(one(low(0), jump(unix.BPF_JEQ, ioprioProcess, 1, 0), eperm), onlySelf(1))...)...)
	for _, number := range []uint32{unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR} {
		f = append(f, on(number, onlySelf(0)...)...)
	}
	if version < versionTruncate {
		f = append(f, on(unix.SYS_TRUNCATE, eperm)...) // what is open for writing can be cut still
	}
	return append(f, program(p.Ptrace)...)
}
