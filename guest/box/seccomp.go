//go:build linux && (amd64 || arm64)

package box

import (
	"fmt"
	"runtime"
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
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SYSLOG, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_VHANGUP,
}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Where the filter finds things (struct seccomp_data in linux/seccomp.h).
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

func answer(errno uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno}
}

// program assembles the filter by hand: arguments that the kernel reads as 32
// bits must be compared as 32 bits, or a set upper half walks past the filter,
// and filter libraries compare all 64. Both supported machines are little-endian.
func program() []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(how uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	low := func(argument uint32) uint32 { return dataArgs + 8*argument }
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	enosys, eperm, eafnosupport := answer(uint32(unix.ENOSYS)), answer(uint32(unix.EPERM)), answer(uint32(unix.EAFNOSUPPORT))

	f := []unix.SockFilter{
		load(dataArch), jump(unix.BPF_JEQ, nativeArch, 1, 0), enosys, // 32-bit calls have other numbers
		load(dataNumber), jump(unix.BPF_JGE, 0x40000000, 0, 1), enosys, // and so has x32
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(low(0)), jump(unix.BPF_JSET, newNamespaces, 0, 1), eperm, allow,
		// The flags of clone3 are behind a pointer; programs fall back to clone.
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), enosys,
		jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 5),
		load(low(1)), jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0), jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1), eperm, allow,
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 9),
		load(low(0)),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 6, 0), jump(unix.BPF_JEQ, unix.AF_INET, 5, 0), jump(unix.BPF_JEQ, unix.AF_INET6, 4, 0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 2),
		load(low(2)), jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0), // to list addresses
		eafnosupport, allow,
	}
	for _, number := range append(denied[:], deniedHere[:]...) {
		f = append(f, jump(unix.BPF_JEQ, number, 0, 1), eperm)
	}
	return append(f, allow)
}

// filterSyscalls forbids new privileges and applies the filter, both to every
// thread: with the filter, the kernel hands the former on.
func filterSyscalls(*plan.Plan, *plan.Report) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	filter := program()
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
