package sandbox

import (
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Mechanism says what an engine enforces a control by. The reports of engines
// take their words from here, and so does the page of the documents.
type Mechanism struct {
	Control caisson.Control
	By      string // empty: nothing
	// Also is what By gets where it does not do it alone, and there is more.
	Also string
	// Weaker says where it is not enforced, or by less, and what is said then.
	Weaker string
}

// Mechanisms returns those of an engine, in the order of reports; nil for a
// name that is no engine's. What a host really has is in the report of Probe.
func Mechanisms(engine string) []Mechanism {
	switch {
	case engine == "namespace":
		return ofNamespaces()
	case engine == "bubblewrap":
		return ofBubblewrap()
	case engine == "landlock":
		return ofLandlock()
	case slices.Contains(caisson.EngineNames(""), engine):
		return ofContainer(engine)
	}
	return nil
}

// By returns what an engine enforces a control by.
func By(engine string, control caisson.Control) string {
	for _, m := range Mechanisms(engine) {
		if m.Control == control {
			return m.By
		}
	}
	return ""
}

// HiddenAtOpen is what `hide` does where nothing can be mounted in a box that runs.
const HiddenAtOpen = "covers what is there when the sandbox is opened, and nothing runs in it once there is more"

const (
	noLandlock = "without Landlock in the kernel it stands alone"
	noCgroup   = "not enforced where no cgroup may be made"
	rootFiles  = "as root on a file system without idmapped mounts it runs as the kernel's root without capabilities, and is reported as not enforced"
)

func ofNamespaces() []Mechanism {
	return []Mechanism{
		{caisson.ControlFiles, "mount namespace, root of its own", "Landlock", noLandlock + "; what the caller's other groups may read of what is shown can be read inside, where the caller may not drop them"},
		{caisson.ControlNetwork, "empty network namespace", "", "with `network:`, where the kernel has no nf_tables, programs that do not know of the proxy reach only the ports that were listed when the sandbox was opened"},
		{caisson.ControlProcesses, "pid namespace, ended with its first process", "", ""},
		{caisson.ControlMemory, "cgroup v2 or cgroup v1 memory", "", noCgroup},
		{caisson.ControlPids, "cgroup v2 or cgroup v1 pids", "", "else RLIMIT_NPROC of the box's own user namespace, where threads of the guest count too; as the kernel's root not enforced"},
		{caisson.ControlCPU, "cgroup v2 or cgroup v1 cpu", "", noCgroup + ": processor affinity, which a program inside may change back"},
		{caisson.ControlDisk, "size-limited tmpfs for each private directory", "", "the workspace is as large as its disk"},
		{caisson.ControlPrivileges, "user namespace, no capabilities, no new privileges", "", rootFiles},
		{caisson.ControlSyscalls, "seccomp filter", "", ""},
	}
}

func ofBubblewrap() []Mechanism {
	all := ofNamespaces()
	for i := range all {
		if all[i].Control == caisson.ControlNetwork {
			all[i].Weaker = "with `network:`, " + ProxyOnly
		}
		if all[i].Control == caisson.ControlDisk {
			all[i].Weaker = "unless caisson is root, not enforced: the size of each private directory is limited, but not how many files it holds; the workspace is as large as its disk"
		}
	}
	return all
}

func ofContainer(engine string) []Mechanism {
	const limit = "not enforced where the engine did not set it, which is read back inside"
	disk := "the workspace is as large as its disk"
	if engine == "podman" {
		disk = "not enforced: the size of each private directory is limited, but not how many files it holds; " + disk
	}
	return []Mechanism{
		{caisson.ControlFiles, "container of " + engine + " with a read-only root", "Landlock", "where the engine's filter or its kernel has no Landlock it stands alone; where caisson may not enter its mounts (an ordinary user with root's engine, an engine on another kernel), `hide` " + HiddenAtOpen},
		{caisson.ControlNetwork, "network namespace of the container, without a network", "", ""},
		{caisson.ControlProcesses, "pid namespace of the container, ended with its first process", "", ""},
		{caisson.ControlMemory, "cgroup of the container", "", limit},
		{caisson.ControlPids, "cgroup of the container", "", limit},
		{caisson.ControlCPU, "cgroup of the container", "", limit},
		{caisson.ControlDisk, "size-limited tmpfs for each private directory", "", disk},
		{caisson.ControlPrivileges, "an unprivileged user, no capabilities, no new privileges", "", "with an engine without root: root of the engine's user namespace, which is an unprivileged user of this machine; no capabilities, no new privileges; " + rootFiles},
		{caisson.ControlSyscalls, "seccomp filter of our own over the engine's", "", ""},
	}
}

func ofLandlock() []Mechanism {
	return []Mechanism{
		{caisson.ControlFiles, "Landlock", "", "names, sizes and times of other files can be seen, modes and times of your own changed; not enforced as root, nor where a workspace's .git must be covered"},
		{caisson.ControlNetwork, "seccomp filter: no sockets but connected pairs; Landlock for TCP", "", "there is no loopback either"},
		{caisson.ControlProcesses, "", "", "not enforced: other processes are seen, those of a caller other than root can be put on other processors (`sched_setaffinity`), shared memory and queues that others have made are listed (`/proc/sysvipc`), and a process that the guest has lost may outlive it; Landlock keeps signals inside from version 6 on"},
		{caisson.ControlMemory, "cgroup v2 or cgroup v1 memory", "", noCgroup},
		{caisson.ControlPids, "cgroup v2 or cgroup v1 pids", "", noCgroup},
		{caisson.ControlCPU, "cgroup v2 or cgroup v1 cpu", "", noCgroup + ": processor affinity, which a program inside may change back"},
		{caisson.ControlDisk, "", "", "not enforced: its private directories are on a disk of the host"},
		{caisson.ControlPrivileges, "no capabilities, no new privileges", "", "as root not enforced"},
		{caisson.ControlSyscalls, "seccomp filter", "", ""},
	}
}

// Covers tells whether the mechanism that a report names is one of the table's.
func Covers(engine string, row caisson.Enforcement) bool {
	for _, m := range Mechanisms(engine) {
		if m.Control != row.Control {
			continue
		}
		by := row.By
		if m.Also != "" {
			by, _, _ = strings.Cut(by, ", "+m.Also)
		}
		return strings.Contains(m.By, by) || strings.Contains(m.Weaker, by)
	}
	return false
}
