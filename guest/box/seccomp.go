//go:build linux && (amd64 || arm64)

package box

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// denied are the system calls that no program inside needs and that reach
// parts of the kernel where boundaries have been crossed before: namespaces and
// mounts, other processes' memory, code run in the kernel, keys, the clock.
var denied = [...]uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SYSLOG, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_VHANGUP,
}

// tracing are the system calls that debuggers need. Where they are allowed, the
// kernel's own rules hold: programs inside can trace each other, but not the
// guest, which is not dumpable, nor anything that they cannot see. A tracer
// cannot have its tracee do what is filtered: the filter looks after the tracer.
var tracing = [...]uint32{unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Where the filter finds things (struct seccomp_data in linux/seccomp.h).
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// faults are the signals by which the kernel tells a program of its own fault.
// With a made-up cause, one that a program gets from another looks like that:
// Go programs end by it, the guest too.
var faults = [...]uint32{
	uint32(unix.SIGILL), uint32(unix.SIGTRAP), uint32(unix.SIGBUS), uint32(unix.SIGFPE),
	uint32(unix.SIGSEGV), uint32(unix.SIGSTKFLT), uint32(unix.SIGSYS),
}

// protocols are those of IPv4 and IPv6. Asking for another one lets the kernel
// load a module.
var protocols = [...]uint32{
	unix.IPPROTO_IP, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW, unix.IPPROTO_MPTCP,
}

// socketKind are the bits of a socket's type that are no flags (SOCK_TYPE_MASK).
const socketKind = 0xf

// shmHugeTLB is SHM_HUGETLB (linux/shm.h).
const shmHugeTLB = 0o4000

// setDelegation is F_SETDELEG (linux/fcntl.h, since 6.19).
const setDelegation = 1024 + 16

// creates are the flags of open with which its mode counts.
const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

// allow and the others are how a filter ends.
var (
	allow           = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	enosys          = answer(unix.ENOSYS)
	enomem          = answer(unix.ENOMEM)
	eperm           = answer(unix.EPERM)
	enotsup         = answer(unix.ENOTSUP)
	eafnosupport    = answer(unix.EAFNOSUPPORT)
	eprotonosupport = answer(unix.EPROTONOSUPPORT)
	esocktnosupport = answer(unix.ESOCKTNOSUPPORT)
	pretend         = answer(0) // the call succeeds, and nothing is done
)

func answer(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func jump(how uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

// low and high load the halves of an argument.
func low(argument uint32) unix.SockFilter  { return load(dataArgs + 8*argument) }
func high(argument uint32) unix.SockFilter { return load(dataArgs + 8*argument + 4) }

// on is the rule for one system call. Each way through it must end in an answer.
func on(number uint32, rule ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, number, 0, uint8(len(rule)))}, rule...)
}

// among answers yes where what is loaded is one of the values, else no.
func among(values []uint32, yes, no unix.SockFilter) []unix.SockFilter {
	var f []unix.SockFilter
	for i, v := range values {
		f = append(f, jump(unix.BPF_JEQ, v, uint8(len(values)-i), 0))
	}
	return append(f, no, yes)
}

// noSetUID answers the mode that an argument gives to a file. A program set to run
// as its owner gains nothing inside, but it would lie on the host too, with the
// person as its owner, for any user there to run.
func noSetUID(mode uint32) []unix.SockFilter {
	return []unix.SockFilter{low(mode), jump(unix.BPF_JSET, unix.S_ISUID, 0, 1), eperm, allow}
}

// noSetUIDMade is the same for a call that makes a file if its flags say so.
func noSetUIDMade(flags, mode uint32) []unix.SockFilter {
	return append([]unix.SockFilter{low(flags), jump(unix.BPF_JSET, creates, 1, 0), allow}, noSetUID(mode)...)
}

func rule(parts ...[]unix.SockFilter) []unix.SockFilter { return slices.Concat(parts...) }

func one(f ...unix.SockFilter) []unix.SockFilter { return f }

// program assembles the filter by hand: arguments that the kernel reads as 32
// bits must be compared as 32 bits, or a set upper half walks past the filter,
// and filter libraries compare all 64. Both supported machines are little-endian.
func program(ptrace bool) []unix.SockFilter {
	noFault := among(faults[:], eperm, allow)
	f := rule(
		one(load(dataArch), jump(unix.BPF_JEQ, nativeArch, 1, 0), enosys),   // 32-bit calls have other numbers
		one(load(dataNumber), jump(unix.BPF_JGE, 0x40000000, 0, 1), enosys), // and so has x32
		on(unix.SYS_OPENAT, noSetUIDMade(2, 3)...),                          // first: it is called most
		on(unix.SYS_CLONE, low(0), jump(unix.BPF_JSET, newNamespaces, 0, 1), eperm, allow),
		// The flags of clone3 are behind a pointer; programs fall back to clone.
		on(unix.SYS_CLONE3, enosys),
		// So is the mode of openat2; programs fall back to openat.
		on(unix.SYS_OPENAT2, enosys),
		// Huge pages that the machine keeps ready are for a program of the person's: no
		// limit on memory counts them. To those inside there are none.
		on(unix.SYS_MMAP, low(3), jump(unix.BPF_JSET, unix.MAP_HUGETLB, 0, 1), enomem, allow),
		on(unix.SYS_MEMFD_CREATE, low(1), jump(unix.BPF_JSET, unix.MFD_HUGETLB, 0, 1), enomem, allow),
		on(unix.SYS_SHMGET, low(2), jump(unix.BPF_JSET, shmHugeTLB, 0, 1), enomem, allow),
		on(unix.SYS_FCHMOD, noSetUID(1)...),
		on(unix.SYS_FCHMODAT, noSetUID(2)...),
		on(unix.SYS_FCHMODAT2, noSetUID(2)...),
		on(unix.SYS_MKNODAT, noSetUID(2)...),
		makeHere(),
		// A line discipline is code of the kernel that is loaded on demand.
		on(unix.SYS_IOCTL, rule(one(low(1)), among([]uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD}, eperm, allow))...),
		on(unix.SYS_SOCKET, socket()...),
		// It makes sockets of any family before it refuses most of them.
		on(unix.SYS_SOCKETPAIR, low(0), jump(unix.BPF_JEQ, unix.AF_UNIX, 1, 0), eafnosupport, allow),
		on(unix.SYS_PRLIMIT64, limit()...),
		on(unix.SYS_SETRLIMIT, low(0), jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 0, 1), pretend, allow),
		on(unix.SYS_RT_SIGQUEUEINFO, rule(one(low(1)), noFault)...),
		on(unix.SYS_RT_TGSIGQUEUEINFO, rule(one(low(2)), noFault)...),
		on(unix.SYS_PIDFD_SEND_SIGNAL, rule(one(
			low(2), jump(unix.BPF_JEQ, 0, 0, 3), high(2), jump(unix.BPF_JEQ, 0, 0, 1), allow,
			low(1)), noFault)...),
		// A lease or a delegation makes whoever opens the file wait for the holder,
		// the person's own tools and git of the host among them.
		on(unix.SYS_FCNTL, rule(one(low(1),
			jump(unix.BPF_JEQ, unix.F_SETLEASE, 0, 1), eperm,
			jump(unix.BPF_JEQ, setDelegation, 0, 1), eperm,
			jump(unix.BPF_JEQ, unix.F_SETSIG, 1, 0), allow, low(2)), noFault)...),
	)
	forbidden := slices.Concat(denied[:], deniedHere[:])
	if !ptrace {
		forbidden = append(forbidden, tracing[:]...)
	}
	return append(f, among(forbidden, eperm, allow)...)
}

// limit is the rule for the limits of processes. The guest has the same user: its
// limits are not the programs' to set. Neither is that of cores ([plan.NoCore]),
// which would say something else if it was less. Programs that keep secrets want
// none, and some end if they cannot have that: they are told that it is so.
func limit() []unix.SockFilter {
	return one(
		low(2), jump(unix.BPF_JEQ, 0, 0, 2), high(2), jump(unix.BPF_JEQ, 0, 8, 0), // only read: allow
		low(0), jump(unix.BPF_JEQ, 0, 0, 7), // another's: eperm
		low(1), jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 0, 4), // another limit: allow
		low(3), jump(unix.BPF_JEQ, 0, 0, 3), high(3), jump(unix.BPF_JEQ, 0, 2, 1), // to be read at once: eperm
		allow, eperm, pretend,
	)
}

// socket allows local sockets, those of the box's own network, and netlink to
// list its addresses.
func socket() []unix.SockFilter {
	internet := rule(
		// A kind of its own is another way to ask for a protocol: none is given then.
		one(low(1), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketKind},
			jump(unix.BPF_JEQ, unix.SOCK_STREAM, 3, 0), jump(unix.BPF_JEQ, unix.SOCK_DGRAM, 2, 0), jump(unix.BPF_JEQ, unix.SOCK_RAW, 1, 0), esocktnosupport),
		one(low(2)), among(protocols[:], allow, eprotonosupport),
	)
	skip := uint8(len(internet))
	return rule(
		one(
			low(0), jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1), allow,
			jump(unix.BPF_JEQ, unix.AF_INET, 1, 0), jump(unix.BPF_JEQ, unix.AF_INET6, 0, skip),
		),
		internet,
		one(jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 2), low(2), jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0), eafnosupport, allow),
	)
}

// filterSyscalls forbids new privileges and applies the filter, both to every
// thread: with the filter, the kernel hands the former on.
func filterSyscalls(p *plan.Plan, _ *plan.Report) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	filter := program(p.Ptrace)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("apply filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("apply filter: thread %d has another", thread)
	}
	return nil
}
