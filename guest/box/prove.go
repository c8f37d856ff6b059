//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// prove tries the forbidden things. One that succeeds is an error: the box is
// not what it is said to be, and must not be used.
func prove(p *plan.Plan, report *plan.Report) error {
	return try(p, report,
		tryOutside, tryWrite, tryLandlock, tryNetwork, tryOutlet, trySockets, tryProcesses, tryPids, tryDisk, tryPrivileges, trySyscalls,
	)
}

// try tries some of them.
func try(p *plan.Plan, report *plan.Report, tests ...func(*plan.Plan, *plan.Report) plan.Test) error {
	for _, do := range tests {
		test := do(p, report)
		if test.Control == "" {
			continue
		}
		report.Tests = append(report.Tests, test)
		if test.Broke != "" {
			return fmt.Errorf("%s: %s", test.Control, test.Broke)
		}
	}
	return nil
}

func tryOutside(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "files", Tried: "see " + strings.Join(p.Outside, ", ")}
	for _, path := range p.Outside {
		if _, err := os.Lstat(path); err == nil {
			test.Broke = path + " of the host can be seen"
		}
	}
	if strange := unexpected(p); strange != "" {
		test.Broke = "/" + strange + " is there, and was not given"
	}
	// A root that is stacked on ours is not seen at "/", but is above it.
	var top, above unix.Stat_t
	if unix.Stat("/", &top) != nil || unix.Stat("/..", &above) != nil || top.Dev != above.Dev || top.Ino != above.Ino {
		test.Broke = "the host's root is still there"
	}
	return test
}

// unexpected returns what is at the top and was not put there.
func unexpected(p *plan.Plan) string {
	dir, err := os.Open("/")
	if err != nil {
		return "."
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return "."
	}
	given := slices.Concat(p.System, p.Private, []string{p.Proof, p.Mask.File, p.Mask.Dir, plan.GivenDir})
	for _, m := range p.Mounts {
		given = append(given, m.Target)
	}
	for _, entry := range entries {
		name := entry.Name()
		// A link is nothing by itself.
		expected := entry.Type()&fs.ModeSymlink != 0 || slices.Contains(tops[:], name) || slices.ContainsFunc(given, func(path string) bool {
			top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
			return top == name
		})
		if !expected {
			return name
		}
	}
	return ""
}

func tryWrite(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "files", Tried: "write outside what was given"}
	dirs := []string{"/", "/etc"}
	for _, m := range p.Mounts {
		if m.Dir && !m.Writable() {
			dirs = append(dirs, m.Target)
		}
	}
	for _, dir := range append(dirs, p.System...) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil || st.Flags&unix.ST_RDONLY == 0 {
			test.Broke = dir + " is not mounted read-only"
		}
		name := filepath.Join(dir, ".caisson-self-test")
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
			_ = unix.Unlink(name) // it goes with the box, which is refused
			test.Broke = "a file could be made in " + dir
		}
	}
	return test
}

func tryLandlock(p *plan.Plan, report *plan.Report) plan.Test {
	if report.Landlock == 0 {
		return plan.Test{}
	}
	test := plan.Test{Control: "files", Tried: "read what Landlock does not grant"}
	if canRead(p.Proof) {
		test.Broke = "Landlock was accepted and enforces nothing"
	}
	return test
}

func tryNetwork(*plan.Plan, *plan.Report) plan.Test {
	test := plan.Test{Control: "network", Tried: "reach an outside address (IPv4, IPv6), list devices"}
	outside := map[int]unix.Sockaddr{
		unix.AF_INET:  &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}},                   // TEST-NET-1, RFC 5737
		unix.AF_INET6: &unix.SockaddrInet6{Port: 53, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}}, // RFC 3849
	}
	for family, address := range outside {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if unix.Connect(fd, address) == nil { // of a datagram socket: is there a route?
			test.Broke = "there is a route to the outside"
		}
		unix.Close(fd)
	}
	raw, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		test.Broke = "the devices cannot be listed"
	}
	for line := range strings.Lines(string(raw)) {
		name, _, device := strings.Cut(line, ":")
		// Tunnel modules put a fallback device, down and bound to nothing, into
		// every new network namespace; the routes above decide.
		if name = strings.TrimSpace(name); device && name != "lo" && deviceUp(name) {
			test.Broke = "there is a network device " + name
		}
	}
	return test
}

// servers of the host have their sockets at these places.
var servers = [...]string{
	"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
	"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/nscd/socket",
}

func trySockets(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "network", Tried: "connect to unix sockets of servers on the host"}
	names := servers[:]
	if p.Socket != "" {
		test.Tried += ", by path and by abstract name"
		names = append([]string{"@" + p.Socket}, names...)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		test.Broke = "there are no unix sockets, which programs need"
		return test
	}
	defer unix.Close(fd)
	for _, name := range names {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		if err == nil || errors.Is(err, unix.EINPROGRESS) {
			test.Broke = "a server of the host was reached at " + name
			return test
		}
	}
	return test
}

func deviceUp(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request) != nil {
		return true
	}
	return request.Uint16()&unix.IFF_UP != 0
}

func tryProcesses(*plan.Plan, *plan.Report) plan.Test {
	test := plan.Test{Control: "processes", Tried: "see and signal other processes"}
	if os.Getpid() != 1 {
		test.Broke = "the guest is not the first process"
	}
	dir, err := os.Open("/proc")
	if err != nil {
		test.Broke = "/proc cannot be read"
		return test
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != 1 {
			test.Broke = "a process of the host can be seen"
		}
	}
	if err := unix.Kill(-1, 0); !errors.Is(err, unix.ESRCH) {
		test.Broke = "there are other processes that can be signalled"
	}
	return test
}

// tryPids reads the limit back: to reach it takes longer than all the set-up.
func tryPids(p *plan.Plan, _ *plan.Report) plan.Test {
	if p.Pids == 0 {
		return plan.Test{} // bounded from outside
	}
	test := plan.Test{Control: "pids", Read: true, Tried: "RLIMIT_NPROC inside, as soft and hard limit"}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_NPROC, &now); err != nil || now.Cur > uint64(p.Pids) || now.Max > uint64(p.Pids) {
		test.Broke = "the number of processes is not limited"
	}
	return test
}

func tryDisk(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "disk", Tried: "look at the size of private directories"}
	for _, path := range p.Private {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil || int64(st.Blocks)*st.Bsize > p.Tmp+st.Bsize {
			test.Broke = path + " is larger than allowed"
		}
	}
	return test
}

func tryPrivileges(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "privileges", Tried: "hold a capability, become root, write the kernel's settings"}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil || held != [2]unix.CapUserData{} {
		test.Broke = "a capability is left"
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		test.Broke = "new privileges are not forbidden"
	}
	// One that is root inside is another user outside; that it has no capabilities counts.
	if p.UID != 0 && unix.Setresuid(0, 0, 0) == nil {
		test.Broke = "it could become root"
	}
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/pressure/cpu"} {
		if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			test.Broke = name + " can be written"
		}
	}
	return test
}

// trySyscalls makes calls that fail without a filter too, but otherwise.
func trySyscalls(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "syscalls", Tried: "mount, unshare, setns, ptrace, bpf, keyctl, perf, io_uring, push characters into a terminal, sockets of other families, set-uid files, leases"}
	if p.Ptrace {
		test.Tried = strings.Replace(test.Tried, "ptrace, ", "", 1)
	} else if _, _, errno := unix.RawSyscall(unix.SYS_PTRACE, ^uintptr(0), 0, 0); errno != unix.EPERM {
		test.Broke = "ptrace is not filtered"
	}
	const upperHalf = 1 << 32 // the kernel looks at the lower half only, and so must the filter
	for _, call := range []struct {
		name    string
		want    unix.Errno
		number  uintptr
		a, b, c uintptr
	}{
		{"mount", unix.EPERM, unix.SYS_MOUNT, 0, 0, 0},
		{"unshare", unix.EPERM, unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0},
		{"clone", unix.EPERM, unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_FS, 0, 0},
		{"clone3", unix.ENOSYS, unix.SYS_CLONE3, 0, 0, 0},
		{"openat2", unix.ENOSYS, unix.SYS_OPENAT2, 0, 0, 0},
		{"fchmod set-uid", unix.EPERM, unix.SYS_FCHMOD, ^uintptr(0), unix.S_ISUID | upperHalf, 0},
		{"fchmodat set-uid", unix.EPERM, unix.SYS_FCHMODAT, ^uintptr(0), 0, unix.S_ISUID | upperHalf},
		{"fcntl F_SETLEASE", unix.EPERM, unix.SYS_FCNTL, ^uintptr(0), unix.F_SETLEASE | upperHalf, unix.F_WRLCK},
		{"keyctl", unix.EPERM, unix.SYS_KEYCTL, ^uintptr(0), 0, 0},
		{"bpf", unix.EPERM, unix.SYS_BPF, ^uintptr(0), 0, 0},
		{"ioctl TIOCSTI", unix.EPERM, unix.SYS_IOCTL, 0, unix.TIOCSTI | upperHalf, 0},
		{"ioctl TIOCLINUX", unix.EPERM, unix.SYS_IOCTL, 0, unix.TIOCLINUX | upperHalf, 0},
		{"setns", unix.EPERM, unix.SYS_SETNS, ^uintptr(0), 0, 0},
		{"umount2", unix.EPERM, unix.SYS_UMOUNT2, 0, 0, 0},
		{"open_tree", unix.EPERM, unix.SYS_OPEN_TREE, ^uintptr(0), 0, 0},
		{"move_mount", unix.EPERM, unix.SYS_MOVE_MOUNT, ^uintptr(0), 0, ^uintptr(0)},
		{"fsopen", unix.EPERM, unix.SYS_FSOPEN, 0, 0, 0},
		{"mount_setattr", unix.EPERM, unix.SYS_MOUNT_SETATTR, ^uintptr(0), 0, 0},
		{"pidfd_getfd", unix.EPERM, unix.SYS_PIDFD_GETFD, ^uintptr(0), 0, 0},
		{"perf_event_open", unix.EPERM, unix.SYS_PERF_EVENT_OPEN, 0, 0, 0},
		{"userfaultfd", unix.EPERM, unix.SYS_USERFAULTFD, ^uintptr(0), 0, 0},
		{"io_uring_setup", unix.EPERM, unix.SYS_IO_URING_SETUP, 0, 0, 0},
		{"socket AF_PACKET", unix.EAFNOSUPPORT, unix.SYS_SOCKET, unix.AF_PACKET | upperHalf, unix.SOCK_RAW, 0},
		{"socket AF_ALG", unix.EAFNOSUPPORT, unix.SYS_SOCKET, unix.AF_ALG | upperHalf, unix.SOCK_SEQPACKET, 0},
		{"socket AF_NETLINK", unix.EAFNOSUPPORT, unix.SYS_SOCKET, unix.AF_NETLINK | upperHalf, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"socketpair AF_VSOCK", unix.EAFNOSUPPORT, unix.SYS_SOCKETPAIR, unix.AF_VSOCK | upperHalf, unix.SOCK_STREAM, 0},
		{"socket AF_VSOCK", unix.EAFNOSUPPORT, unix.SYS_SOCKET, unix.AF_VSOCK | upperHalf, unix.SOCK_STREAM, 0},
	} {
		if _, _, errno := unix.RawSyscall(call.number, call.a, call.b, call.c); errno != call.want {
			test.Broke = call.name + " is not filtered"
		}
	}
	return test
}
