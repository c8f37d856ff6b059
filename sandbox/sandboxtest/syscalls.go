package sandboxtest

import (
	"testing"

	"github.com/caisson-run/caisson"
)

// forbiddenCalls makes each call twice, plain and with the upper half of every
// 32-bit argument set, which the kernel does not look at.
const forbiddenCalls = `import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
UP = 0x5a5a5a5a << 32
def call(name, want, number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in args))
    e = ctypes.get_errno()
    if got != -1 or e not in want:
        print(name, [hex(a & (1 << 64) - 1) for a in args], "gave", got, errno.errorcode.get(e, e))
P = (errno.EPERM,)
# name: x86_64, others, arguments; one that is a list has an upper half to set
for name, a, b, *args in (
    ("ptrace", 101, 117, [0], 0, 0, 0), ("process_vm_readv", 310, 270, [1], 0, 0, 0, 0, 0), ("process_vm_writev", 311, 271, [1], 0, 0, 0, 0, 0),
    ("pidfd_getfd", 438, 438, [0], [0], [0]), ("kcmp", 312, 272, [1], [1], [0], 0, 0), ("bpf", 321, 280, [0], 0, 0), ("perf_event_open", 298, 241, 0, [0], [-1], [-1], 0),
    ("keyctl", 250, 219, [0], -3, 0), ("add_key", 248, 217, 0, 0, 0, 0, [-3]), ("request_key", 249, 218, 0, 0, 0, [0]),
    ("userfaultfd", 323, 282, [1]), ("io_uring_setup", 425, 425, [1], 0), ("io_uring_enter", 426, 426, [0], [0], [0], [0], 0, 0), ("io_uring_register", 427, 427, [0], [0], 0, [0]),
    ("mount", 165, 40, 0, 0, 0, 0, 0), ("umount2", 166, 39, 0, [2]), ("pivot_root", 155, 41, 0, 0), ("chroot", 161, 51, 0),
    ("open_tree", 428, 428, [-100], 0, [1]), ("move_mount", 429, 429, [-100], 0, [-100], 0, [0]), ("fsopen", 430, 430, 0, [0]), ("fsconfig", 431, 431, [0], [0], 0, 0, [0]),
    ("fsmount", 432, 432, [0], [0], [0]), ("fspick", 433, 433, [-100], 0, [0]), ("mount_setattr", 442, 442, [-100], 0, [0], 0, 0), ("open_tree_attr", 467, 467, [-100], 0, [1], 0, 0),
    ("unshare user", 272, 97, [0x10000000]), ("unshare mount", 272, 97, [0x20000]), ("setns", 308, 268, [0], [0]),
    ("fanotify_init", 300, 262, [0], [0]), ("open_by_handle_at", 304, 265, [0], 0, [0]), ("syslog", 103, 116, [3], 0, 0),
    ("init_module", 175, 105, 0, 0, 0), ("kexec_load", 246, 104, 0, 0, 0, 0), ("reboot", 169, 142, [0], [0], [0], 0), ("quotactl", 179, 60, [0], 0, [0], 0),
):
    number = a if x86 else b
    call(name, P, number, *(v[0] if isinstance(v, list) else v for v in args))
    call(name, P, number, *((v[0] & 0xffffffff | UP) if isinstance(v, list) else v for v in args))
clone, socket, pair, ioctl = (56, 41, 53, 16) if x86 else (220, 198, 199, 29)
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):
    for up in (0, UP):
        call("clone", P, clone, flag | up, 0, 0, 0, 0)
call("clone3", (errno.ENOSYS,), 435, 0, 0)
A = (errno.EAFNOSUPPORT,)
for up in (0, UP):
    # AX25, IPX, APPLETALK, X25, KEY, PACKET, RDS, CAN, TIPC, BLUETOOTH, ALG, NFC, VSOCK, KCM, QIPCRTR, SMC, XDP
    for family in (3, 4, 5, 9, 15, 17, 21, 29, 30, 31, 38, 39, 40, 41, 42, 43, 44):
        call("socket", A, socket, family | up, 3, 0)
        call("socketpair", A, pair, family | up, 1, 0, 0)
    for protocol in (1, 2, 4, 9, 12, 15, 16, 20, 21): # netlink but for route
        call("netlink", A, socket, 16 | up, 3, protocol | up)
    for request in (0x5412, 0x541c, 0x5423): # TIOCSTI, TIOCLINUX, TIOCSETD
        call("ioctl", P, ioctl, 0, request | up, 0)
if x86:
    N = (errno.ENOSYS,)
    call("x32 getpid", N, 0x40000000 | 39)
    call("x32 ptrace", N, 0x40000000 | 521, 0, 0, 0, 0)
    call("iopl", P, 172, 3)
    call("modify_ldt", P, 154, 0, 0, 0)
`

// terminalCalls pushes characters into a terminal of the program's own.
const terminalCalls = `import fcntl, os, pty
pid, fd = pty.fork()
if pid == 0:
    for name, request, argument in (("TIOCSTI", 0x5412, b"x"), ("TIOCLINUX", 0x541c, b"\x03"), *(("TIOCSETD", 0x5423, n.to_bytes(4, "little")) for n in range(1, 31))):
        try:
            fcntl.ioctl(0, request, argument)
            print(name, "succeeded")
        except OSError:
            pass
    os._exit(0)
try:
    print(os.read(fd, 100).decode(), end="")
except OSError:
    pass`

func systemCallsAreFiltered(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlSyscalls) {
		return
	}
	programs := []string{forbiddenCalls, terminalCalls}
	if h.SharedPaths {
		programs = programs[:1] // there are no terminals: those in /dev/pts are the host's
		o.fails("exec 3<>/dev/ptmx")
	}
	for _, program := range programs {
		if got := o.python(program); got != "" {
			t.Error(got)
		}
	}
}
