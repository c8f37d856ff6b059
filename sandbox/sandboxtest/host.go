package sandboxtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// setUIDs gives a file the mode of a program that runs as its owner by each call
// that takes a mode, also with the upper half of 32-bit arguments set.
const setUIDs = `import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
UP = 0x5a5a5a5a << 32
os.umask(0)
open("plain", "w").close()
fd = os.open("plain", os.O_RDONLY)
CREAT, TMP, CWD = os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY, -100
how = (ctypes.c_uint64 * 3)(CREAT, 0o4755, 0)
n = 0
def call(name, x86_64, others, *args):
    global n
    number = x86_64 if x86 else others
    if number is None:
        return
    for up in (0, UP):
        n += 1
        new = ctypes.create_string_buffer(b"made%d" % n)
        real = [new if a == "new" else b"plain" if a == "old" else b"." if a == "dir" else ctypes.byref(how) if a == "how"
            else ctypes.c_long(a & 0xffffffff | up) if a >= 0 else ctypes.c_long(a) for a in args]
        ctypes.set_errno(0)
        got = libc.syscall(ctypes.c_long(number), *real)
        if got != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            print(name, bool(up), "gave", got, errno.errorcode.get(ctypes.get_errno()))
for mode in (0o4755, 0o6755, 0o104711):
    call("chmod", 90, None, "old", mode)
    call("fchmod", 91, 52, fd, mode)
    call("fchmodat", 268, 53, CWD, "old", mode)
    call("fchmodat2", 452, 452, CWD, "old", mode, 0)
    call("open", 2, None, "new", CREAT, mode)
    call("open unnamed", 2, None, "dir", TMP, mode)
    call("openat", 257, 56, CWD, "new", CREAT, mode)
    call("openat unnamed", 257, 56, CWD, "dir", TMP, mode)
    call("creat", 85, None, "new", mode)
    call("mknod", 133, None, "new", 0o100000 | mode, 0)
    call("mknodat", 259, 33, CWD, "new", 0o100000 | mode, 0)
call("openat2", 437, 437, CWD, "new", "how", 24)
# What only reads does not care for a mode.
if libc.syscall(ctypes.c_long(257 if x86 else 56), ctypes.c_long(CWD), b"plain", 0, ctypes.c_long(0o4755)) < 0:
    print("a mode that does not count is refused")`

// A program with the set-uid bit gains nothing inside. On the host, the file has
// the person as its owner, for any user there to run.
func setUIDFilesAreNotMade(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlSyscalls) {
		return
	}
	if got := o.python(setUIDs); got != "" {
		t.Error(got)
	}
	err := filepath.WalkDir(o.ws, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&os.ModeSetuid != 0 {
			t.Errorf("%s is %v on the host", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// What programs do every day works.
	o.sh(`umask 022; printf '#!/bin/sh\necho ran\n' > run && chmod +x run && test "$(./run)" = ran && install -m 755 run run2 && ./run2 && mkdir -m 2775 shared && chmod 755 shared && tar cf t.tar run shared && mkdir out && tar xpf t.tar -C out`)
}

// A lease makes whoever opens the file wait for up to 45 s (fs/lease-break-time),
// the host's git and the person's editor too.
func hostOpensWithoutWaiting(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlSyscalls) {
		return
	}
	o.need("python3")
	p, err := o.Hold(t.Context(), caisson.Command{Argv: []string{"python3", "-c", `import fcntl, os, signal
fd = os.open("leased", os.O_CREAT | os.O_RDWR, 0o644)
signal.signal(signal.SIGIO, signal.SIG_IGN)
for command, argument in ((fcntl.F_SETLEASE, fcntl.F_WRLCK), (1040, b"\1\0\0\0\0\0\0\0")): # F_SETDELEG
    try:
        fcntl.fcntl(fd, command, argument)
    except OSError:
        pass
open("ready", "w").close()
signal.pause()`}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	o.sh("until test -e ready; do :; done")
	start := time.Now()
	if _, err := os.ReadFile(filepath.Join(o.ws, "leased")); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the host waited %v for a file of the workspace", took)
	}
	if _, err := o.Files().Read(t.Context(), "leased", 0, 0); err != nil {
		t.Errorf("the file service: %v", err)
	}
	p.Stop(caisson.CauseUser)
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What the kernel counts by user is not taken whole, and a process cannot hold
// thousands of what it takes the kernel long to close: it would not end when it
// is killed.
func hostKeepsItsShare(t *testing.T, h Harness) {
	o := open(t, h)
	if o.h.OtherKernel {
		t.Skip("its kernel is not this one")
	}
	o.fails("exec 3<> /proc/pressure/cpu")
	for option, name := range map[string]string{"-i": "Max pending signals", "-q": "Max msgqueue size"} {
		raw, err := os.ReadFile("/proc/self/limits")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(raw), name)
		fields := strings.Fields(after)
		if inside := o.sh("bash -c 'ulimit -H " + option + "'"); len(fields) == 0 || inside == fields[0] || inside == "unlimited" {
			t.Errorf("%s inside is %s, all that the host's user has", name, inside)
		}
	}
}
