package container

import (
	"context"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
)

// Labels of what is ours at the engine.
const (
	labelOwner    = "run.caisson.owner"    // the state directory's digest: whose it is
	labelSandbox  = "run.caisson.sandbox"  // the sandbox's id
	labelInstance = "run.caisson.instance" // the process that made it
	labelImage    = "run.caisson.image"    // what an image of ours was built from
	labelBuilder  = "run.caisson.builder"  // the owner that an image of ours was built by; containers have the labels of their image
	namePrefix    = "caisson-"
)

// masked are files of /proc and /sys that are of the whole machine: what the
// engines mask by themselves, all together, and what the guest's user has in
// the kernel beside this box.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/selinux",
}

// maxPids is the most that the kernel counts to (PID_MAX_LIMIT).
const maxPids = 1 << 22

// maxMemory is more than any machine has, and less than what engines take for none.
const maxMemory = 1 << 50

// readOnly are those that the whole machine's settings are in.
var readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger"}

// create makes the container, which does not run yet. cpus is how many the
// engine has: it refuses more.
func (e *Engine) create(ctx context.Context, cli *client.Client, image string, l *plans, u user, spec caisson.SandboxSpec, cpus int) (string, error) {
	ctx, cancel := bound(ctx, callBound)
	defer cancel()
	made, err := cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: namePrefix + string(spec.ID),
		Config: &container.Config{
			Image: image, User: u.String(), Hostname: hostName(spec.ID), WorkingDir: "/",
			Entrypoint: []string{guestPath, plan.GivenArgument}, Cmd: []string{},
			Healthcheck: noHealthcheck(e.opts.Name),
			StopSignal:  "SIGKILL", // the guest ignores others, and an engine that stops would wait for it
			OpenStdin:   true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			Labels: map[string]string{
				labelOwner: e.owner(), labelSandbox: string(spec.ID), labelInstance: string(e.opts.Instance),
			},
		},
		HostConfig: hostConfig(l, u, spec.Limits, cpus, e.opts.Name),
	})
	if err != nil {
		return "", e.fault(ctx, "make the container", err)
	}
	return made.ID, nil
}

// noHealthcheck keeps an image's from being run: it would be a command past the
// guest. Podman asks systemd to run any, also none; one that it asks for in an
// image fails, as the box has no way for it.
func noHealthcheck(engine string) *container.HealthConfig {
	if engine == Podman {
		return nil
	}
	return &container.HealthConfig{Test: []string{"NONE"}}
}

func hostConfig(l *plans, u user, limits caisson.Limits, cpus int, engine string) *container.HostConfig {
	no, pids, memory := false, min(limits.Pids, maxPids), min(limits.Memory, maxMemory)
	return &container.HostConfig{
		NetworkMode: "none", IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate, UsernsMode: u.mode,
		CapDrop: []string{"ALL"}, SecurityOpt: security(engine),
		ReadonlyRootfs: true, MaskedPaths: slices.Clone(masked), ReadonlyPaths: slices.Clone(readOnly),
		Mounts: l.binds, Tmpfs: l.tmpfs, ShmSize: limits.Tmp,
		// What the guest writes is a stream and no log.
		LogConfig: container.LogConfig{Type: "none"},
		Init:      &no, RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// lo of the box's own has both families, whatever the engine thinks of IPv6.
		// Its low ports are for anybody: names are answered on one.
		Sysctls: map[string]string{
			"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.lo.disable_ipv6": "0", "net.ipv4.ip_unprivileged_port_start": "0",
		},
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, PidsLimit: &pids, NanoCPUs: min(limits.CPUs, int64(cpus)) * 1e9,
			Ulimits: ulimits(limits, engine),
		},
	}
}

// security forbids new privileges. Podman is told here what Docker is told by
// lists of their own; it makes what it likes read-only, which pressure is not of.
func security(engine string) []string {
	options := []string{"no-new-privileges"}
	if engine == Podman {
		options = append(options, "mask="+strings.Join(append(slices.Clone(masked), "/proc/pressure"), ":"))
	}
	return options
}

// maxFiles is more open files than any engine is refused by its own limits.
const maxFiles = 1 << 16

// podmanProcesses is what Podman's service leaves to itself of its limit.
const podmanProcesses = 1 << 15

// ulimits are what the first process is started with; the guest sets those of
// commands. The count of a user's processes is left alone: the kernel counts all
// of that user's on the machine, not the box's, which has its cgroup for that.
func ulimits(limits caisson.Limits, engine string) []*container.Ulimit {
	cores := int64(plan.NoCore)
	if engine == Podman && !mayHoldCores() {
		cores = 0 // it would have to raise what its user may not
	}
	set := []*container.Ulimit{{Name: "core", Soft: cores, Hard: cores}}
	if limits.Files <= maxFiles {
		set = append(set, &container.Ulimit{Name: "nofile", Soft: limits.Files, Hard: limits.Files})
	}
	if most := mostProcesses(); engine == Podman && most > 0 {
		// It would raise the limit by itself, which its user may not be allowed to.
		most = min(most, podmanProcesses)
		set = append(set, &container.Ulimit{Name: "nproc", Soft: most, Hard: most})
	}
	return set
}
