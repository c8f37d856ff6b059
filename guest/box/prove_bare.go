//go:build linux && (amd64 || arm64)

package box

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/plan"
)

// proveBare tries what is forbidden without namespaces.
func proveBare(p *plan.Plan, report *plan.Report) error {
	report.Landlock = landlockVersion()
	return try(p, report, tryLandlock, tryBareOutside, tryBareWrite, tryBareNetwork, tryBareSignal, tryBarePrivileges, trySyscalls)
}

func tryBareOutside(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "files", Tried: "read " + strings.Join(p.Outside, ", ")}
	for _, path := range p.Outside {
		if canRead(path) {
			test.Broke = path + " of the host can be read"
		}
	}
	return test
}

func tryBareWrite(p *plan.Plan, _ *plan.Report) plan.Test {
	test := plan.Test{Control: "files", Tried: "make a file outside what was given"}
	dirs := append([]string{"/", "/etc", "/tmp", "/var/tmp", "/dev/shm"}, p.System...)
	for _, m := range p.Mounts {
		if m.Dir && !m.Write {
			dirs = append(dirs, m.Target)
		}
	}
	for _, dir := range dirs {
		name := filepath.Join(dir, ".caisson-self-test-"+p.ID)
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
			_ = unix.Unlink(name) // what can be made can be removed
			test.Broke = "a file could be made in " + dir
		}
	}
	return test
}

func tryBareNetwork(*plan.Plan, *plan.Report) plan.Test {
	test := plan.Test{Control: "network", Tried: "make a socket of IPv4, IPv6, netlink, a packet or unix kind, or a pair of datagrams"}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_UNIX, unix.AF_VSOCK} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW} {
			if fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				test.Broke = "a socket could be made"
			}
		}
	}
	if fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		test.Broke = "a pair of datagram sockets could be made"
	}
	return test
}

// tryBareSignal looks at the host, which is the parent.
func tryBareSignal(_ *plan.Plan, report *plan.Report) plan.Test {
	if report.Landlock < versionScope {
		return plan.Test{}
	}
	test := plan.Test{Control: "processes", Tried: "signal the host"}
	if err := unix.Kill(os.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		test.Broke = "the host can be signalled"
	}
	return test
}

func tryBarePrivileges(*plan.Plan, *plan.Report) plan.Test {
	test := plan.Test{Control: "privileges", Tried: "hold a capability, write the kernel's settings"}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil || held != [2]unix.CapUserData{} {
		test.Broke = "a capability is left"
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		test.Broke = "new privileges are not forbidden"
	}
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"} {
		if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			test.Broke = name + " can be written"
		}
	}
	return test
}
