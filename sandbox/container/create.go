package container

import (
	"context"
	"slices"

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

// readOnly are those that the whole machine's settings are in.
var readOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// create makes the container, which does not run yet.
func (e *Engine) create(ctx context.Context, cli *client.Client, image string, l *plans, u user, spec caisson.SandboxSpec) (string, error) {
	ctx, cancel := bound(ctx, callBound)
	defer cancel()
	made, err := cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: namePrefix + string(spec.ID),
		Config: &container.Config{
			Image: image, User: u.String(), Hostname: "box-" + string(spec.ID), WorkingDir: "/",
			Entrypoint: []string{guestPath, plan.GivenArgument}, Cmd: []string{},
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // an image's would be a command past the guest
			OpenStdin:   true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			NetworkDisabled: true,
			Labels: map[string]string{
				labelOwner: e.owner(), labelSandbox: string(spec.ID), labelInstance: string(e.opts.Instance),
			},
		},
		HostConfig: hostConfig(l, u, spec.Limits),
	})
	if err != nil {
		return "", e.fault(ctx, "make the container", err)
	}
	return made.ID, nil
}

func hostConfig(l *plans, u user, limits caisson.Limits) *container.HostConfig {
	no := false
	return &container.HostConfig{
		NetworkMode: "none", IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate, UsernsMode: u.mode,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		ReadonlyRootfs: true, MaskedPaths: slices.Clone(masked), ReadonlyPaths: slices.Clone(readOnly),
		Mounts: l.binds, Tmpfs: l.tmpfs, ShmSize: limits.Tmp,
		// What the guest writes is a stream and no log.
		LogConfig: container.LogConfig{Type: "none"},
		Init:      &no, RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// lo of the box's own has both families, whatever the engine thinks of IPv6.
		Sysctls: map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.lo.disable_ipv6": "0"},
		Resources: container.Resources{
			Memory: limits.Memory, MemorySwap: limits.Memory, PidsLimit: &limits.Pids, NanoCPUs: limits.CPUs * 1e9,
			Ulimits: []*container.Ulimit{
				{Name: "core", Soft: 0, Hard: 0},
				{Name: "nofile", Soft: limits.Files, Hard: limits.Files},
				{Name: "nproc", Soft: limits.Pids, Hard: limits.Pids},
			},
		},
	}
}
