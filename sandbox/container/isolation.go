package container

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

// report makes the isolation report of what the guest found and tried.
func (b *box) report(r plan.Report, limits caisson.Limits) caisson.Isolation {
	tests := sandbox.Tested(r.Tests)
	report := caisson.Isolation{Engine: b.engine.opts.Name}
	for _, control := range caisson.Controls() {
		row := caisson.Enforcement{Control: control, By: sandbox.By(b.engine.opts.Name, control), Enforced: true, Test: tests[control]}
		switch {
		case slices.Contains([]caisson.Control{caisson.ControlMemory, caisson.ControlPids, caisson.ControlCPU}, control):
			row = b.limitRow(control, r.Seen, limits)
		case control == caisson.ControlPrivileges && b.user.weaker != "":
			row.Enforced, row.Why = false, b.user.weaker
			row.Fix = "Put workspace, sandboxes and home on a file system that supports idmapped mounts (ext4, xfs, btrfs), or run caisson as an unprivileged user."
		case control == caisson.ControlPrivileges && b.user.uid == 0:
			row.By = "root of the engine's user namespace, which is an unprivileged user of this machine; no capabilities, no new privileges"
		case control == caisson.ControlDisk && b.engine.opts.Name == Podman:
			row.Enforced, row.Why = false, "Podman bounds the bytes of private directories, and not the number of files in them"
			row.Fix = "Use an engine that bounds both, such as docker, if that matters here."
		case control == caisson.ControlFiles && r.Landlock == 0:
			row.Why = "the engine's filter or its kernel has no Landlock; the container stands alone"
		case control == caisson.ControlFiles:
			row.By += fmt.Sprintf(", Landlock (version %d)", r.Landlock)
		}
		if control == caisson.ControlFiles && b.fixed != nil {
			row.Why = strings.TrimPrefix(row.Why+"; `hide` "+sandbox.HiddenAtOpen, "; ")
		}
		report.Controls = append(report.Controls, row)
	}
	return report
}

// limitRow reports a limit by what is in force inside: an engine may accept one
// and not set it.
func (b *box) limitRow(control caisson.Control, seen *plan.Seen, limits caisson.Limits) caisson.Enforcement {
	found, want, unit := seen.Memory, limits.Memory, "bytes"
	switch control {
	case caisson.ControlPids:
		found, want, unit = seen.Pids, limits.Pids, "processes and threads"
	case caisson.ControlCPU:
		found, want, unit = seen.CPUs, limits.CPUs*1000, "thousandths of a processor"
	default:
	}
	row := caisson.Enforcement{Control: control}
	if found > 0 && found <= want {
		row.Enforced, row.By = true, "cgroup of the container"
		row.Test = fmt.Sprintf("read inside: %d %s", found, unit)
		return row
	}
	row.Why = fmt.Sprintf("engine %s did not set the limit", b.engine.opts.Name)
	row.Fix = "Give the engine this cgroup controller: run it as root, or where a cgroup is delegated to it."
	return row
}
