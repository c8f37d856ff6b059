//go:build linux && (amd64 || arm64)

package box

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

func TestBareFilter(t *testing.T) {
	filter, old := bareProgram(&plan.Plan{}, versionTruncate), bareProgram(&plan.Plan{}, versionTruncate-1)
	const upper = 0xdeadbeef << 32
	allow, eperm, enosys := uint32(unix.SECCOMP_RET_ALLOW), uint32(unix.SECCOMP_RET_ERRNO|unix.EPERM), uint32(unix.SECCOMP_RET_ERRNO|unix.ENOSYS)
	none, other := uint32(unix.SECCOMP_RET_ERRNO|unix.EAFNOSUPPORT), uint32(unix.SECCOMP_RET_ERRNO|unix.EPROTONOSUPPORT)
	for _, c := range []struct {
		name   string
		arch   uint32
		number uint32
		args   [3]uint64
		want   uint32
	}{
		{"read", nativeArch, unix.SYS_READ, [3]uint64{}, allow},
		{"another machine's", 0x40000003, unix.SYS_READ, [3]uint64{}, enosys},
		{"x32", nativeArch, 0x40000000 | 41, [3]uint64{}, enosys},
		{"inet", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM}, none},
		{"unix", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, none},
		{"netlink", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW}, none},
		{"connect", nativeArch, unix.SYS_CONNECT, [3]uint64{3, 4096, 16}, eperm},
		{"pair", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"pair with flags", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}, allow},
		{"pair of datagrams", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, other},
		{"pair of datagrams, upper half", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{upper | unix.AF_UNIX, upper | unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, other},
		{"pair of raw ones", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_UNIX, unix.SOCK_RAW}, other},
		{"pair of vsock", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, none},
		{"mount", nativeArch, unix.SYS_MOUNT, [3]uint64{}, eperm},
		{"clone3", nativeArch, unix.SYS_CLONE3, [3]uint64{}, enosys},
		{"shared memory", nativeArch, unix.SYS_SHMAT, [3]uint64{}, enosys},
		{"semaphores", nativeArch, unix.SYS_SEMGET, [3]uint64{}, enosys},
		{"message queues", nativeArch, unix.SYS_MSGRCV, [3]uint64{}, enosys},
		{"message queues by name", nativeArch, unix.SYS_MQ_OPEN, [3]uint64{}, enosys},
		{"truncate", nativeArch, unix.SYS_TRUNCATE, [3]uint64{}, allow},
		{"own priority", nativeArch, unix.SYS_SETPRIORITY, [3]uint64{0, 0, 19}, allow},
		{"another's priority", nativeArch, unix.SYS_SETPRIORITY, [3]uint64{0, 1234, 19}, eperm},
		{"the user's priority", nativeArch, unix.SYS_SETPRIORITY, [3]uint64{2, 0, 19}, eperm},
		{"the group's priority, upper half", nativeArch, unix.SYS_SETPRIORITY, [3]uint64{upper | 1, upper, 19}, eperm},
		{"own turn at disks", nativeArch, unix.SYS_IOPRIO_SET, [3]uint64{1, 0}, allow},
		{"another's turn at disks", nativeArch, unix.SYS_IOPRIO_SET, [3]uint64{1, 1234}, eperm},
		{"the user's turn at disks", nativeArch, unix.SYS_IOPRIO_SET, [3]uint64{3, 0}, eperm},
		{"own schedule", nativeArch, unix.SYS_SCHED_SETSCHEDULER, [3]uint64{0, 5}, allow},
		{"another's schedule", nativeArch, unix.SYS_SCHED_SETSCHEDULER, [3]uint64{1234, 5}, eperm},
		{"another's attributes", nativeArch, unix.SYS_SCHED_SETATTR, [3]uint64{upper | 1234}, eperm},
		{"truncate what is open", nativeArch, unix.SYS_FTRUNCATE, [3]uint64{}, allow},
	} {
		var data [64]byte
		put := func(at int, v uint64, n int) {
			for i := range n {
				data[at+i] = byte(v >> (8 * i))
			}
		}
		put(dataNumber, uint64(c.number), 4)
		put(dataArch, uint64(c.arch), 4)
		for i, v := range c.args {
			put(dataArgs+8*i, v, 8)
		}
		if got := run(t, filter, data); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
		want := c.want
		if c.number == unix.SYS_TRUNCATE {
			want = eperm
		}
		if got := run(t, old, data); got != want {
			t.Errorf("%s, where Landlock has no right for truncate: %#x, want %#x", c.name, got, want)
		}
	}
}

// A process that is not restricted: every self-test must say so.
func TestProveBareNoticesNoBox(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{ID: "s1", Outside: []string{file}, Proof: file, Mounts: []plan.Mount{{Target: dir, Dir: true}}}
	tries := map[string]func(*plan.Plan, *plan.Report) plan.Test{
		"landlock": tryLandlock, "outside": tryBareOutside, "write": tryBareWrite, "network": tryBareNetwork,
		"signal": tryBareSignal, "privileges": tryBarePrivileges,
	}
	if unix.Kill(os.Getppid(), 0) != nil {
		delete(tries, "signal") // whoever runs the tests is another user, and cannot be signalled anyway
	}
	for name, try := range tries {
		if test := try(p, &plan.Report{Landlock: 7}); test.Broke == "" || test.Control == "" {
			t.Errorf("%s: %+v; want it to notice", name, test)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the self-tests left %v (%v)", left, err)
	}
}

// What a wrapper has mounted elsewhere, or otherwise than it was lent, is noticed.
func TestMountsAreLookedAt(t *testing.T) {
	dir := t.TempDir()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]plan.Mount{
		"another":  {Target: dir, Write: true, Dev: st.Dev, Ino: st.Ino + 1},
		"link":     {Target: link, Write: true, Dev: st.Dev, Ino: st.Ino},
		"missing":  {Target: dir + "/x", Write: true, Dev: st.Dev, Ino: st.Ino},
		"writable": {Target: dir, Dev: st.Dev, Ino: st.Ino},
	} {
		if test := tryMounts(&plan.Plan{Mounts: []plan.Mount{m}}, &plan.Report{}); test.Broke == "" {
			t.Errorf("%s: it was not noticed", name)
		}
	}
	if test := tryMounts(&plan.Plan{Mounts: []plan.Mount{{Target: dir}}}, &plan.Report{}); test.Control != "" {
		t.Errorf("what is not to be looked at: %+v", test)
	}
}
