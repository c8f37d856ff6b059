//go:build linux

package landlock

import (
	"os"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

const other = "Use an engine with namespaces or a container engine; `caisson doctor` tells what keeps them from working here."

// versionScope is the version of Landlock's interface that keeps signals inside.
const versionScope = 6

// isolation makes the report of what the guest did and tried.
func isolation(r plan.Report, g *process.Group, spec caisson.SandboxSpec) caisson.Isolation {
	tests := sandbox.Tested(r.Tests)
	report := caisson.Isolation{Engine: Name, NoCover: "Landlock shows nothing in place of something else"}
	for _, control := range caisson.Controls() {
		row := row(control, r, g, spec)
		row.Control = control
		if tests[control] != "" {
			row.Test = tests[control]
		}
		report.Controls = append(report.Controls, row)
	}
	return report
}

func row(control caisson.Control, r plan.Report, g *process.Group, spec caisson.SandboxSpec) caisson.Enforcement {
	switch control {
	case caisson.ControlFiles:
		row := caisson.Enforcement{Enforced: true, By: "Landlock", Why: "names, sizes and times of other files can be seen, and modes and times of the caller's own changed; their contents can be neither"}
		if os.Geteuid() == 0 { // Landlock has no right for modes
			row.Enforced, row.Fix = false, "Run caisson as an unprivileged user. "+other
			row.Why = "as root it can change modes and times of all of root's files, though not their contents"
		}
		if spec.GitCover != "" {
			row.Enforced, row.Fix = false, "Make the workspace as a clone: `--workspace-mode clone`, or `workspace.mode` in the config. "+other
			row.Why = "the workspace's own .git cannot be covered: programs inside can change where it leads"
		}
		return row
	case caisson.ControlNetwork:
		return caisson.Enforcement{Enforced: true, By: "seccomp filter: no sockets but connected pairs; Landlock for TCP", Why: "there is no loopback either"}
	case caisson.ControlProcesses:
		row := caisson.Enforcement{Why: "without a pid namespace other processes are seen, those of a caller other than root can be put on other processors (sched_setaffinity), shared memory and queues that others have made are listed (/proc/sysvipc), and a process that the guest has lost may outlive it", Fix: other}
		if r.Landlock >= versionScope {
			row.By = "Landlock keeps signals inside"
		} else {
			row.Why += "; this kernel's Landlock does not keep signals inside"
		}
		return row
	case caisson.ControlDisk:
		return caisson.Enforcement{Why: "private directories lie on the host's disk, and nothing bounds them", Fix: other}
	case caisson.ControlPrivileges:
		if os.Geteuid() == 0 {
			return caisson.Enforcement{
				By:  "no capabilities, no new privileges",
				Why: "it runs as root without capabilities, and only Landlock keeps it from root's files; names of its keyrings are seen", Fix: "Run caisson as an unprivileged user.",
			}
		}
		return caisson.Enforcement{Enforced: true, By: "no capabilities, no new privileges", Why: "the caller's groups are its own too, and names of the caller's keyrings are seen"}
	case caisson.ControlSyscalls:
		return caisson.Enforcement{Enforced: true, By: "seccomp filter"}
	default:
		row := g.Row(control)
		if !row.Enforced && control == caisson.ControlCPU && !g.Took(control) {
			row.By = "processor affinity, which a program inside may change back"
		}
		return row
	}
}
