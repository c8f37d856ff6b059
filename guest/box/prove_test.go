//go:build linux && (amd64 || arm64)

package box

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// A test that is in no box: every self-test must say so.
func TestProveNoticesNoBox(t *testing.T) {
	dir := t.TempDir()
	proof := filepath.Join(dir, "proof")
	if err := os.WriteFile(proof, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{
		Outside: []string{"/usr"}, Mounts: []plan.Mount{{Target: dir, Dir: true}}, Private: []string{dir}, Tmp: 1, Proof: proof,
	}
	for name, try := range map[string]func(*plan.Plan, *plan.Report) plan.Test{
		"outside": tryOutside, "write": tryWrite, "processes": tryProcesses, "disk": tryDisk,
		"privileges": tryPrivileges, "syscalls": trySyscalls,
	} {
		if test := try(p, &plan.Report{}); test.Broke == "" || test.Control == "" {
			t.Errorf("%s: %+v; want it to notice", name, test)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the self-tests left %v (%v)", left, err)
	}
	if test := tryOutside(&plan.Plan{}, nil); test.Broke == "" {
		t.Error("a root with other things in it was not noticed")
	}
	name := fmt.Sprint("caisson-prove-test-", os.Getpid())
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if test := trySockets(&plan.Plan{Socket: name}, nil); test.Broke == "" {
		t.Error("a socket of the host was not noticed")
	}
	if test := tryPids(&plan.Plan{Pids: 1}, nil); test.Broke == "" || !test.Read {
		t.Errorf("no limit of processes: %+v", test)
	}
	report := &plan.Report{}
	if err := prove(p, report); err == nil || len(report.Tests) != 1 {
		t.Errorf("prove: %v after %d tests; want an error at the first", err, len(report.Tests))
	}
}

// A Landlock ruleset that was accepted and enforces nothing is noticed.
// Origin: OpenShell 803.
func TestCase_S13(t *testing.T) {
	proof := filepath.Join(t.TempDir(), "proof")
	if err := os.WriteFile(proof, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Proof: proof}
	if test := tryLandlock(p, &plan.Report{Landlock: 7}); test.Broke == "" {
		t.Error("it was not noticed")
	}
	if test := tryLandlock(p, &plan.Report{}); test.Control != "" {
		t.Errorf("without Landlock: %+v", test)
	}
	if err := os.Remove(proof); err != nil {
		t.Fatal(err)
	}
	if test := tryLandlock(p, &plan.Report{Landlock: 7}); test.Broke != "" {
		t.Errorf("refused, and: %+v", test)
	}
}

// Each version of Landlock's interface is used for all the rights that it has.
func TestHandledRights(t *testing.T) {
	for version, bits := range map[int]int{2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 8: 16, 9: 17, 12: 17} {
		if got := handled(version); got != 1<<bits-1 {
			t.Errorf("version %d: %x", version, got)
		}
	}
}

// run is what the kernel does with a filter, for the instructions that are used.
func run(t *testing.T, filter []unix.SockFilter, data [64]byte) uint32 {
	t.Helper()
	var acc uint32
	for pc := 0; pc < len(filter); pc++ {
		switch i := filter[pc]; i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = uint32(data[i.K]) | uint32(data[i.K+1])<<8 | uint32(data[i.K+2])<<16 | uint32(data[i.K+3])<<24
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= i.K
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			yes := false
			switch i.Code {
			case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
				yes = acc == i.K
			case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
				yes = acc >= i.K
			case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
				yes = acc&i.K != 0
			default:
				t.Fatalf("instruction %d has code %#x", pc, i.Code)
			}
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	filter := program(false)
	const upper = 0xdeadbeef << 32
	eprotonosupport, esocktnosupport := uint32(unix.SECCOMP_RET_ERRNO|unix.EPROTONOSUPPORT), uint32(unix.SECCOMP_RET_ERRNO|unix.ESOCKTNOSUPPORT)
	allow, eperm := uint32(unix.SECCOMP_RET_ALLOW), uint32(unix.SECCOMP_RET_ERRNO|unix.EPERM)
	enosys, eafnosupport := uint32(unix.SECCOMP_RET_ERRNO|unix.ENOSYS), uint32(unix.SECCOMP_RET_ERRNO|unix.EAFNOSUPPORT)
	enomem := uint32(unix.SECCOMP_RET_ERRNO | unix.ENOMEM)
	for _, c := range []struct {
		name   string
		arch   uint32
		number uint32
		args   [3]uint64
		want   uint32
	}{
		{"read", nativeArch, unix.SYS_READ, [3]uint64{}, allow},
		{"another machine's", 0x40000003, unix.SYS_READ, [3]uint64{}, enosys},
		{"x32", nativeArch, 0x40000000 | unix.SYS_READ, [3]uint64{}, enosys},
		{"thread", nativeArch, unix.SYS_CLONE, [3]uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"user namespace", nativeArch, unix.SYS_CLONE, [3]uint64{unix.CLONE_NEWUSER | 17}, eperm},
		{"network namespace, upper half", nativeArch, unix.SYS_CLONE, [3]uint64{upper | unix.CLONE_NEWNET}, eperm},
		{"clone3", nativeArch, unix.SYS_CLONE3, [3]uint64{}, enosys},
		{"memory", nativeArch, unix.SYS_MMAP, [3]uint64{0, 4096, unix.PROT_READ}, allow},
		{"memory in a file", nativeArch, unix.SYS_MEMFD_CREATE, [3]uint64{4096, upper | unix.MFD_CLOEXEC}, allow},
		{"huge pages in a file", nativeArch, unix.SYS_MEMFD_CREATE, [3]uint64{4096, upper | unix.MFD_CLOEXEC | unix.MFD_HUGETLB}, enomem},
		{"shared memory", nativeArch, unix.SYS_SHMGET, [3]uint64{0, 4096, unix.IPC_CREAT | 0o600}, allow},
		{"shared huge pages", nativeArch, unix.SYS_SHMGET, [3]uint64{0, 4096, upper | unix.IPC_CREAT | shmHugeTLB | 0o600}, enomem},
		{"TCGETS", nativeArch, unix.SYS_IOCTL, [3]uint64{0, unix.TCGETS}, allow},
		{"TIOCSTI", nativeArch, unix.SYS_IOCTL, [3]uint64{0, unix.TIOCSTI}, eperm},
		{"TIOCSTI, upper half", nativeArch, unix.SYS_IOCTL, [3]uint64{0, upper | unix.TIOCSTI}, eperm},
		{"TIOCSETD", nativeArch, unix.SYS_IOCTL, [3]uint64{0, upper | unix.TIOCSETD}, eperm},
		{"TIOCLINUX", nativeArch, unix.SYS_IOCTL, [3]uint64{0, unix.TIOCLINUX}, eperm},
		{"unix", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"inet", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM}, allow},
		{"inet6", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_STREAM}, allow},
		{"netlink route", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"netlink netfilter", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, eafnosupport},
		{"packet", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_PACKET, unix.SOCK_RAW}, eafnosupport},
		{"vsock, upper half", nativeArch, unix.SYS_SOCKET, [3]uint64{upper | unix.AF_VSOCK}, eafnosupport},
		{"alg", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_ALG}, eafnosupport},
		{"inet tcp", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow},
		{"inet6 ping", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}, allow},
		{"inet mptcp", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, allow},
		{"inet sctp, upper half", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_STREAM, upper | unix.IPPROTO_SCTP}, eprotonosupport},
		{"inet6 dccp", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_DCCP}, eprotonosupport},
		{"inet raw", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP}, allow},
		{"inet dccp by its kind", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET, unix.SOCK_DCCP}, esocktnosupport},
		{"inet6 sctp by its kind, upper half", nativeArch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET6, upper | unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK}, esocktnosupport},
		{"unix pair", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"vsock pair", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{upper | unix.AF_VSOCK, unix.SOCK_STREAM}, eafnosupport},
		{"tipc pair", nativeArch, unix.SYS_SOCKETPAIR, [3]uint64{unix.AF_TIPC, unix.SOCK_STREAM}, eafnosupport},
		{"own limit", nativeArch, unix.SYS_PRLIMIT64, [3]uint64{upper, unix.RLIMIT_NOFILE, 4096}, allow},
		{"limit of another, read", nativeArch, unix.SYS_PRLIMIT64, [3]uint64{7, unix.RLIMIT_NOFILE, 0}, allow},
		{"limit of another, low address", nativeArch, unix.SYS_PRLIMIT64, [3]uint64{7, unix.RLIMIT_NOFILE, 4096}, eperm},
		{"limit of another, high address", nativeArch, unix.SYS_PRLIMIT64, [3]uint64{7, unix.RLIMIT_NOFILE, 1 << 32}, eperm},
		{"queued signal", nativeArch, unix.SYS_RT_SIGQUEUEINFO, [3]uint64{1, uint64(unix.SIGUSR1)}, allow},
		{"queued fault", nativeArch, unix.SYS_RT_SIGQUEUEINFO, [3]uint64{1, upper | uint64(unix.SIGSEGV)}, eperm},
		{"queued fault for a thread", nativeArch, unix.SYS_RT_TGSIGQUEUEINFO, [3]uint64{1, 1, uint64(unix.SIGILL)}, eperm},
		{"fault by descriptor", nativeArch, unix.SYS_PIDFD_SEND_SIGNAL, [3]uint64{3, uint64(unix.SIGSEGV), 0}, allow},
		{"fault by descriptor, made up", nativeArch, unix.SYS_PIDFD_SEND_SIGNAL, [3]uint64{3, uint64(unix.SIGSYS), 1 << 32}, eperm},
		{"signal by descriptor, made up", nativeArch, unix.SYS_PIDFD_SEND_SIGNAL, [3]uint64{3, uint64(unix.SIGUSR1), 4096}, allow},
		{"F_GETFL", nativeArch, unix.SYS_FCNTL, [3]uint64{0, unix.F_GETFL, uint64(unix.SIGSEGV)}, allow},
		{"F_SETSIG", nativeArch, unix.SYS_FCNTL, [3]uint64{0, unix.F_SETSIG, uint64(unix.SIGIO)}, allow},
		{"F_SETSIG to a fault", nativeArch, unix.SYS_FCNTL, [3]uint64{0, upper | unix.F_SETSIG, uint64(unix.SIGBUS)}, eperm},
		{"mount", nativeArch, unix.SYS_MOUNT, [3]uint64{}, eperm},
		{"ptrace", nativeArch, unix.SYS_PTRACE, [3]uint64{}, eperm},
		{"process_vm_writev", nativeArch, unix.SYS_PROCESS_VM_WRITEV, [3]uint64{}, eperm},
		{"the last of the list", nativeArch, unix.SYS_VHANGUP, [3]uint64{}, eperm},
		{"execve", nativeArch, unix.SYS_EXECVE, [3]uint64{}, allow},
	} {
		if got := run(t, filter, call(c.arch, c.number, c.args)); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// Huge pages are in the fourth argument.
func TestHugePagesAreNone(t *testing.T) {
	for flags, want := range map[uint64]uint32{
		unix.MAP_PRIVATE | unix.MAP_ANONYMOUS:                                        unix.SECCOMP_RET_ALLOW,
		1<<40 | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB | 21<<26:    unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM),
		unix.MAP_SHARED | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB | unix.MAP_NORESERVE: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM),
	} {
		data := call(nativeArch, unix.SYS_MMAP, [3]uint64{0, 4 << 20, unix.PROT_READ | unix.PROT_WRITE})
		for b := range 8 {
			data[dataArgs+8*3+b] = byte(flags >> (8 * b))
		}
		if got := run(t, program(false), data); got != want {
			t.Errorf("flags %#x: %#x, want %#x", flags, got, want)
		}
	}
}

// The limit of cores stays what it is, whatever way it is asked to be another.
func TestCoreLimitStays(t *testing.T) {
	filter := program(true)
	const address = 1 << 40
	for _, c := range []struct {
		name        string
		pid, which  uint64
		limit, back uint64
		want        uint32
	}{
		{"set", 0, unix.RLIMIT_CORE, address, 0, unix.SECCOMP_RET_ERRNO},
		{"set, upper halves", 0xff << 32, 0xff<<32 | unix.RLIMIT_CORE, 4096, 0, unix.SECCOMP_RET_ERRNO},
		{"read", 0, unix.RLIMIT_CORE, 0, address, unix.SECCOMP_RET_ALLOW},
		{"set and read", 0, unix.RLIMIT_CORE, address, address, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{"set and read at a low address", 0, unix.RLIMIT_CORE, address, 4096, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{"another's", 7, unix.RLIMIT_CORE, address, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{"another limit, set and read", 0, unix.RLIMIT_NOFILE, address, address, unix.SECCOMP_RET_ALLOW},
	} {
		data := call(nativeArch, unix.SYS_PRLIMIT64, [3]uint64{c.pid, c.which, c.limit})
		for b := range 8 {
			data[dataArgs+8*3+b] = byte(c.back >> (8 * b))
		}
		if got := run(t, filter, data); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	for which, want := range map[uint64]uint32{unix.RLIMIT_CORE: unix.SECCOMP_RET_ERRNO, unix.RLIMIT_NOFILE: unix.SECCOMP_RET_ALLOW} {
		if got := run(t, filter, call(nativeArch, unix.SYS_SETRLIMIT, [3]uint64{which, address})); got != want {
			t.Errorf("setrlimit of %d: %#x, want %#x", which, got, want)
		}
	}
}

// What a person may do to other programs of this machine is not the box's.
func TestLimitsGiveNoPriority(t *testing.T) {
	limits := limitsOf(&plan.Plan{Files: 1, Size: 1})
	for name, which := range map[string]int{"real time": unix.RLIMIT_RTPRIO, "nice": unix.RLIMIT_NICE} {
		if most, set := limits[which]; !set || most != 0 {
			t.Errorf("%s: %d, set %v", name, most, set)
		}
	}
}

// call is what the kernel shows to a filter.
func call(arch, number uint32, args [3]uint64) (data [64]byte) {
	put := func(at int, v uint64, n int) {
		for i := range n {
			data[at+i] = byte(v >> (8 * i))
		}
	}
	put(dataNumber, uint64(number), 4)
	put(dataArch, uint64(arch), 4)
	for i, v := range args {
		put(dataArgs+8*i, v, 8)
	}
	return data
}

// Where tracing is allowed, it is all that is.
func TestFilterForDebuggers(t *testing.T) {
	strict, loose := program(false), program(true)
	eperm := uint32(unix.SECCOMP_RET_ERRNO | unix.EPERM)
	for number := range uint32(600) {
		data := call(nativeArch, number, [3]uint64{})
		before, after := run(t, strict, data), run(t, loose, data)
		allowed := slices.Contains(tracing[:], number)
		if allowed && (before != eperm || after != unix.SECCOMP_RET_ALLOW) || !allowed && before != after {
			t.Errorf("call %d: %#x, with tracing %#x", number, before, after)
		}
	}
}
