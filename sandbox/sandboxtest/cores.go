package sandboxtest

import (
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/guest/plan"
)

// coreLimits tries to change the limit by each call that can, and prints it.
const coreLimits = `import ctypes, platform, resource
libc = ctypes.CDLL(None, use_errno=True)
prlimit, setrlimit = (302, 160) if platform.machine() == "x86_64" else (261, 164)
core = resource.RLIMIT_CORE
for most in (0, resource.getrlimit(core)[1]):
    limit = (ctypes.c_ulong * 2)(0, most)
    if libc.syscall(prlimit, 0, core, limit, None) != 0 or libc.syscall(setrlimit, core, limit) != 0:
        print("programs that want no cores are told that they have them")
    try:
        resource.prlimit(0, core, (0, most))
    except PermissionError:
        pass
print(*resource.getrlimit(core))`

// A program that crashes. Where the machine hands cores to a program (apport,
// systemd-coredump), the kernel runs that as root outside of every box, on what
// one from inside hands to it, whatever the limit is: but for one value.
func hostTakesNoCores(t *testing.T, h Harness) {
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	if own.Max < plan.NoCore {
		t.Skip("this user's own limit on cores is 0, and cannot be raised")
	}
	o := open(t, h)
	if got := o.python(coreLimits); got != "1 1" {
		t.Errorf("limits of cores are %q, want 1 1", got)
	}
	o.fails("ulimit -c 0; kill -SEGV $$")
}
