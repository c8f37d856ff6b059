package sandboxtest

import (
	"strings"
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

// tracer traces a child of its own and reads its memory, then tries the guest.
const tracer = `import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long
value = ctypes.c_long(4714)
child = os.fork()
if child == 0:
    signal.pause()
if libc.ptrace(16, child, None, None) != 0: # ATTACH
    print("refused")
    os.kill(child, signal.SIGKILL)
    sys.exit()
os.waitpid(child, 0)
print(libc.ptrace(2, child, ctypes.addressof(value), None)) # PEEKDATA
os.kill(child, signal.SIGKILL)
for pid in range(1, 20):
    try:
        if open("/proc/%d/stat" % pid).read().split(") ")[1].split()[1] in ("0", "1") and pid != os.getppid():
            if libc.ptrace(16, pid, None, None) == 0:
                print("the guest or a holder was traced:", pid)
            open("/proc/%d/mem" % pid, "rb")
            print("the memory of the guest or a holder was opened:", pid)
    except OSError:
        pass`

func tracingIsByLeave(t *testing.T, h Harness) {
	if got := open(t, h).python(tracer); got != "refused" {
		t.Errorf("without leave: %s", got)
	}
	spec := func(s *caisson.SandboxSpec) { s.Ptrace = true }
	o := open(t, h, spec)
	if got := o.python(tracer); got != "4714" {
		t.Errorf("with leave: %s", got)
	}
	for _, c := range []struct{ program, line, want string }{
		{"strace", `strace -f -o log sh -c 'cat /dev/null' && grep -q execve log && echo traced`, "traced"},
		{"gdb", `printf 'int main(void) { volatile int x = 41;\n x++;\n return x; }\n' > m.c && gcc -g -o m m.c && gdb -batch -ex 'break main' -ex run -ex next -ex next -ex 'print x' ./m 2>/dev/null | tail -n 1`, "$1 = 42"},
	} {
		t.Run(c.program, func(t *testing.T) {
			o := o.in(t)
			o.need(c.program)
			if got := o.sh(c.line); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if !o.enforced(caisson.ControlSyscalls) {
		return
	}
	// All else is as filtered as ever.
	var without []string
	for line := range strings.Lines(forbiddenCalls) {
		line = strings.Replace(line, `("ptrace", 101, 117, [0], 0, 0, 0), ("process_vm_readv", 310, 270, [1], 0, 0, 0, 0, 0), ("process_vm_writev", 311, 271, [1], 0, 0, 0, 0, 0),`, "", 1)
		without = append(without, line)
	}
	if got := o.python(strings.Join(without, "")); got != "" {
		t.Errorf("with leave to trace: %s", got)
	}
	t.Run("traced", func(t *testing.T) {
		o := o.in(t)
		o.need("strace")
		if got := o.do(caisson.Command{Argv: []string{"strace", "-qqf", "-o", "/dev/null", "unshare", "-U", "true"}}); got.Code == 0 {
			t.Error("a traced program made a user namespace")
		}
	})
}

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
