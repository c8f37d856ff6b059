//go:build linux

package layout

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

// Isolation makes the report of what the set-up did and tried, for an engine
// with namespaces.
func Isolation(engine string, r plan.Report, g *process.Group, u User) caisson.Isolation {
	tests := sandbox.Tested(r.Tests)
	report := caisson.Isolation{Engine: engine}
	for _, control := range caisson.Controls() {
		row := caisson.Enforcement{Control: control, By: sandbox.By(engine, control), Enforced: true, Test: tests[control]}
		switch {
		case control == caisson.ControlMemory || control == caisson.ControlPids || control == caisson.ControlCPU:
			row = limitRow(control, g, u)
			if tests[control] != "" {
				row.Test = tests[control]
			}
		case control == caisson.ControlPrivileges && u.Weaker != "":
			row.Enforced, row.Why = false, u.Weaker
			row.Fix = "Put workspace, sandboxes and home on a file system that supports idmapped mounts (ext4, xfs, btrfs), or run caisson as an unprivileged user."
		case control == caisson.ControlFiles && r.Landlock == 0:
			row.Why = "this kernel has no Landlock; the mount namespace stands alone"
		case control == caisson.ControlFiles && KeepsGroups():
			row.By += landlock(r)
			row.Why = "what the caller's other groups may read of what is shown, programs inside may read too"
		case control == caisson.ControlFiles:
			row.By += landlock(r)
		}
		report.Controls = append(report.Controls, row)
	}
	return report
}

func landlock(r plan.Report) string { return fmt.Sprintf(", Landlock (version %d)", r.Landlock) }

func limitRow(control caisson.Control, g *process.Group, u User) caisson.Enforcement {
	row := g.Row(control)
	if row.Enforced || g.Took(control) {
		return row // no floor was planned; see Layout.Floor
	}
	switch control {
	case caisson.ControlPids:
		if u.Outside != 0 {
			// The kernel counts a user's processes in each user namespace apart
			// (since 5.14), so this counts the box's alone.
			row.Enforced, row.By, row.Why, row.Fix = true, "RLIMIT_NPROC of the box's own user namespace", "threads of the guest count too", ""
		}
	case caisson.ControlCPU:
		row.By = "processor affinity, which a program inside may change back"
	default:
	}
	return row
}

// setting reads a setting of the kernel, empty where there is none.
func setting(name string) string {
	raw, _ := os.ReadFile("/proc/sys/" + name) // not there: the restriction is not there
	return strings.TrimSpace(string(raw))
}

const appArmor = "kernel/apparmor_restrict_unprivileged_userns"

// RefusedStart explains why the namespaces could not be made.
func RefusedStart(err error) *caisson.Error { return refusedStart(err, setting, os.Geteuid() == 0) }

func refusedStart(err error, read func(string) string, root bool) *caisson.Error {
	e := caisson.Errorf(caisson.CodeIsolationUnavailable, "the namespaces of the sandbox cannot be made: %w", err)
	host, _ := os.Hostname() // "" fits nothing
	switch {
	case strings.HasPrefix(host, plan.HostPrefix) && errors.Is(err, unix.EPERM):
		return e.WithHint("This is the inside of a caisson sandbox, in which no other can be made: run caisson outside of it.")
	case read("user/max_user_namespaces") == "0":
		return e.WithHint("This host allows no user namespaces: `sysctl -w user.max_user_namespaces=10000`, or use another engine.")
	case read("kernel/unprivileged_userns_clone") == "0" && !root:
		return e.WithHint("This host keeps user namespaces from ordinary users: `sysctl -w kernel.unprivileged_userns_clone=1`, or use another engine.")
	case read(appArmor) == "1" && !root:
		return e.WithHint("AppArmor keeps user namespaces from programs without a profile: install one for caisson that allows `userns`, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or use another engine.")
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS):
		return e.WithHint("Too many namespaces are in use: raise `user.max_*_namespaces` with sysctl, or close sandboxes.")
	case errors.Is(err, unix.EPERM):
		return e.WithHint("Is this in a container, or in a sandbox already? Those forbid namespaces: run caisson outside of it, start the container with user namespaces allowed (`--security-opt seccomp=unconfined`), or use another engine.")
	case errors.Is(err, unix.EACCES):
		return e.WithHint("A security module (SELinux, AppArmor, Landlock) forbids namespaces, or the file system that caisson is on forbids programs (`noexec`): see the kernel's log, allow it for caisson, or use another engine.")
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return e.WithHint("The kernel is older than 5.12 or was built without namespaces; use another engine.")
	}
	return e
}

// refusedPoint explains why nothing can be mounted at a path, where that is no
// fault of the host's, but of who chose the path; nil where it is not.
func refusedPoint(r plan.Report) *caisson.Error {
	why := ""
	switch errno := syscall.Errno(r.Errno); {
	case errno == unix.ENOENT:
		why = "it is not there, and would have to be made in a directory of this machine that is shown inside"
	case errno == unix.ELOOP:
		why = "a symbolic link is on the way"
	case errno == unix.ENOTDIR:
		why = "of what is there and what is mounted one is a directory, and the other is none"
	}
	if r.Point == "" || why == "" {
		return nil
	}
	return caisson.Errorf(caisson.CodePathInvalid, "nothing can be mounted at %s in the sandbox: %s", r.Point, why).With("target", r.Point).
		WithHint("If it is of `mounts:` in your config, give it another `target`: a path that is there, or one below a directory that this machine does not have.")
}

// RefusedSetUp explains why the box could not be built or proved.
func RefusedSetUp(r plan.Report) *caisson.Error {
	return refusedSetUp(r, setting, os.Geteuid() == 0)
}

func refusedSetUp(r plan.Report, read func(string) string, root bool) *caisson.Error {
	if e := refusedPoint(r); e != nil {
		return e
	}
	e := caisson.Errorf(caisson.CodeIsolationUnavailable, "the sandbox could not be set up (%s): %s", r.Failed, r.Error)
	errno := syscall.Errno(r.Errno)
	switch {
	case r.Failed == "self-test":
		return e.WithHint("It was ended before anything ran in it. Use another engine on this host, and report it.")
	case strings.Contains(r.Error, "layer over"):
		return e.WithHint("This kernel makes no overlays for its users (it needs 5.11): leave `caches` out of your config.")
	case strings.Contains(r.Error, "mount /proc"):
		return e.WithHint("Inside a container the kernel allows a /proc of one's own only if the container's is not masked: start it with `--security-opt systempaths=unconfined`, or use another engine.")
	case r.Failed == "seccomp" && errno == unix.EINVAL:
		return e.WithHint("The kernel was built without seccomp filters (%s); use another engine.", runtime.GOARCH)
	case (errno == unix.EPERM || errno == unix.EACCES) && !root && read(appArmor) == "1":
		return e.WithHint("AppArmor takes the capabilities out of user namespaces of programs without a profile: install one for caisson that allows `userns`, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or use another engine.")
	case errno == unix.EPERM && (r.Failed == "network" || r.Failed == "root"):
		return e.WithHint("Is this in a container, or under a security module, that forbids mounts? Run caisson outside of it, or use another engine.")
	case errno == unix.ENOSYS:
		return e.WithHint("The kernel is older than 5.12; use another engine.")
	}
	return e
}
