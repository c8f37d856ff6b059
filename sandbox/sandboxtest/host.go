package sandboxtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// marks changes what a file of the host says of itself.
const marks = `import os, stat, sys
for path in sys.argv[1:]:
    try:
        st = os.lstat(path)
    except OSError:
        continue
    for name, change in (("mode", lambda: os.chmod(path, stat.S_IMODE(st.st_mode))), ("owner", lambda: os.chown(path, st.st_uid, st.st_gid)),
            ("times", lambda: os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))), ("attribute", lambda: os.setxattr(path, "user.caisson-suite", b"x"))):
        try:
            change()
            print(name, path)
        except OSError:
            pass`

// Modes, owners, times and attributes of what lies outside of what was given.
func hostFilesKeepTheirMarks(t *testing.T, h Harness) {
	lent, secret := tempDir(t), filepath.Join(tempDir(t), "secret")
	write(t, filepath.Join(lent, "file"), "lent", 0o644)
	write(t, secret, "secret", 0o600)
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: lent}} })
	got := o.python(marks, secret, lent, filepath.Join(lent, "file"), "/usr", "/usr/bin/env", "/etc", "/etc/hosts", "/dev/null", "/")
	if !h.SharedPaths {
		if got != "" {
			t.Errorf("changed:\n%s", got)
		}
		return
	}
	if strings.Contains(got, "attribute") {
		t.Errorf("changed:\n%s", got)
	}
	if row := o.Isolation().Row(caisson.ControlFiles); !strings.Contains(row.Why, "modes and times") || row.Enforced == (os.Getuid() == 0) {
		t.Errorf("modes of the host's files can be changed, and the report says %+v", row)
	}
	h.table.note(t, "reported: modes and times of the caller's own files")
}

// exchanger exchanges a directory for links that lead out, without end.
const exchanger = `import ctypes, os, sys
libc = ctypes.CDLL(None)
links = [*sys.argv[1:], "../" + os.path.basename(sys.argv[1]), "/proc/self/root" + sys.argv[1], "/proc/1/root", "/usr"]
for i, to in enumerate(links):
    os.symlink(to, "l%d" % i)
open("ready", "w").close()
while True:
    for i in range(2 * len(links)):
        libc.renameat2(-100, b"d", -100, b"l%d" % (i // 2), 2) # RENAME_EXCHANGE`

// The file service works in a directory that is exchanged for links meanwhile.
func exchangedDirectoriesLeadNowhere(t *testing.T, h Harness) {
	top := tempDir(t)
	ws, victim := filepath.Join(top, "ws"), filepath.Join(top, "victim")
	makeDir(t, filepath.Join(ws, "d"))
	makeDir(t, victim)
	write(t, filepath.Join(ws, "d/file"), "inside", 0o644)
	write(t, filepath.Join(victim, "file"), hiddenText, 0o644)
	before := list(t, victim)
	// In its own /tmp too: what is there is the box's, and still no workspace.
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Workspace = ws })
	own := o.sh(`d=$(mktemp -d "$TMPDIR/out.XXXX") && echo ` + hiddenText + ` > "$d/file" && echo "$d"`)
	o.need("python3")
	p, err := o.Hold(t.Context(), caisson.Command{Argv: []string{"python3", "-c", exchanger, victim, own}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	o.sh("until test -e ready; do :; done")
	f, done := o.Files(), 0
	for n, end := 0, time.Now().Add(prompt); n < 300 || done == 0 && time.Now().Before(end); n++ {
		if c, err := f.Read(t.Context(), "d/file", 0, 0); err == nil {
			done++
			if strings.Contains(string(c.Data), hiddenText) {
				t.Fatal("a file outside was read")
			}
		}
		_, _ = f.Write(t.Context(), "d/file", []byte("inside"), caisson.WriteOptions{})            // refused or not: where it
		_, _ = f.Write(t.Context(), "d/new/x", []byte("new"), caisson.WriteOptions{Parents: true}) // went is looked at below
		if g, err := f.Grep(t.Context(), caisson.GrepQuery{Dir: "d", Pattern: hiddenText}); err == nil && g.Total > 0 {
			t.Fatal("grep looked outside")
		}
		if g, err := f.Glob(t.Context(), "d", "**/env", 10); err == nil && g.Total > 0 {
			t.Fatal("glob looked outside")
		}
	}
	if done == 0 {
		t.Error("the directory was never there: nothing was tried")
	}
	p.Stop(caisson.CauseUser)
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, list(t, victim)); diff != "" {
		t.Errorf("the host was changed:\n%s", diff)
	}
	if got := o.sh("cat " + own + "/file; ls -A " + own); got != hiddenText+"\nfile" {
		t.Errorf("outside the workspace: %q", got)
	}
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
	if took := time.Since(start); took > 30*time.Second {
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

// watchers makes inotify descriptors until there are no more.
const watchers = `import ctypes
libc, n = ctypes.CDLL(None), 0
while n < 100000 and libc.inotify_init() >= 0:
    n += 1
print(n)`

// terminals makes terminals until there are no more, and few enough to leave some
// to whoever runs beside the test.
const terminals = `import os
n = 0
try:
    while n < 300:
        os.open("/dev/ptmx", os.O_RDWR)
        n += 1
except OSError:
    pass
print(n)`

// What the kernel counts by user is not taken whole, and a process cannot hold
// thousands of what it takes the kernel long to close: it would not end when it
// is killed.
func hostKeepsItsShare(t *testing.T, h Harness) {
	o := open(t, h)
	if o.h.OtherKernel {
		t.Skip("its kernel is not this one")
	}
	o.fails("exec 3<> /proc/pressure/cpu")
	most, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := strconv.Atoi(strings.TrimSpace(string(most)))
	if n, err := strconv.Atoi(o.python(watchers)); err != nil || n == 0 || n >= all && h.OwnLimits {
		t.Errorf("%d of the host's %d inotify descriptors could be made (%v)", n, all, err)
	}
	if n, err := strconv.Atoi(o.python(terminals)); err != nil || h.OwnLimits && (n < 64 || n >= 300) {
		t.Errorf("%d terminals could be made (%v)", n, err)
	}
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
