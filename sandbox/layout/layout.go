//go:build linux

// Package layout is what the engines of this kernel have in common: what is in
// a box and where, who it runs as, how files are lent to that user, and how the
// guest program is kept and started.
//
// What it promises: no path that is lent goes through a link, nothing of it is
// in an argument list or an environment, and the guest program cannot be changed
// once it was read. What it does not promise: any boundary; the engines make it.
package layout

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

const userName = "agent"

// system are the read-only directories of the host that every box has.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// hidden are paths of the host that a box must not have; those that it was
// given something of are not looked at.
var hidden = []string{"/boot", "/home", "/media", "/srv", "/var/lib", "/var/log", "/etc/shadow", "/etc/ssh", "/run/systemd"}

// Layout is a plan with the descriptors that go with it: the mounts of the plan
// that have an FD, in their order.
type Layout struct {
	Plan   plan.Plan
	Trees  []*os.File
	Outlet *os.File // the guest's end of the way out, nil where there is none
	// socket is an abstract unix socket that nobody inside may reach.
	socket *os.File
}

// Close releases the descriptors.
func (l *Layout) Close() {
	for _, f := range l.Trees {
		f.Close()
	}
	l.Trees = nil
	if l.Outlet != nil {
		l.Outlet.Close()
		l.Outlet = nil
	}
	if l.socket != nil {
		l.socket.Close()
		l.socket = nil
	}
}

// listen makes the socket that the set-up tries to reach. Where there are none,
// the self-test leaves it out.
func (l *Layout) listen() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	name := "caisson-test-" + rand.Text()
	if unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}) != nil || unix.Listen(fd, 1) != nil {
		unix.Close(fd)
		return
	}
	l.socket, l.Plan.Socket = os.NewFile(uintptr(fd), "socket"), name
}

// Lay plans the box of a checked spec. Where files cannot be lent to another
// user, the returned user is the kernel's root instead. What the disk says that
// Check did not see is CodePathInvalid.
func (d *Lender) Lay(spec caisson.SandboxSpec) (*Layout, User, error) {
	u := CallingUser()
	l, err := d.layFor(spec, u)
	var unmappable *unmappableError
	if errors.As(err, &unmappable) {
		u = u.asRoot(err)
		l, err = d.layFor(spec, u)
	}
	if err != nil && caisson.CodeOf(err) == caisson.CodeInternal {
		err = caisson.Errorf(caisson.CodePathInvalid, "a path cannot be lent to the sandbox: %w", err)
	}
	return l, u, err
}

func (d *Lender) layFor(spec caisson.SandboxSpec, u User) (*Layout, error) {
	mounts := sandbox.Mounts(spec)
	l := &Layout{Plan: plan.Plan{
		ID: string(spec.ID), UID: u.Inside, GID: u.InsideGroup, User: userName, Home: sandbox.Home(mounts),
		Workspace: spec.Workspace, Tmp: spec.Limits.Tmp, Private: []string{"/tmp", "/dev/shm"},
		Files: spec.Limits.Files, Size: spec.Limits.Size, System: system, Etc: d.etc.paths(),
		Proof: "/.proof", Ptrace: spec.Ptrace,
	}}
	if len(spec.Hide) > 0 {
		l.Plan.Mask = masks
	}
	l.listen()
	if spec.Home != "" {
		mounts = append(mounts, caisson.Mount{Source: spec.Home, Target: l.Plan.Home, Write: true})
	} else {
		l.Plan.Private = append(l.Plan.Private, l.Plan.Home)
	}
	if spec.Workspace == "" {
		l.Plan.Workspace = sandbox.PrivateWorkspace
		l.Plan.Private = append(l.Plan.Private, sandbox.PrivateWorkspace)
	}
	// Else it is a link to /tmp, below which nothing can be mounted.
	for _, m := range mounts {
		if m.Layer && m.Source == "" {
			l.Plan.Private = append(l.Plan.Private, m.Target)
			continue
		}
		info, err := os.Lstat(m.Source)
		if err == nil {
			err = d.add(l, m, info, u)
		}
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	if slices.ContainsFunc(l.targets(), func(t string) bool { return strings.HasPrefix(t, "/var/tmp/") }) {
		l.Plan.Private = append(l.Plan.Private, "/var/tmp") // else it is a link to /tmp
	}
	for _, path := range hidden {
		if !slices.ContainsFunc(append(l.targets(), l.Plan.Private...), func(t string) bool { return sandbox.Overlap(t, path) }) {
			l.Plan.Outside = append(l.Plan.Outside, path)
		}
	}
	return l, nil
}

func (l *Layout) targets() []string {
	var out []string
	for _, m := range l.Plan.Mounts {
		out = append(out, m.Target)
	}
	return out
}

// add plans a mount. Root opens it here, as the box's user may not be able to;
// others cannot, and the guest, which is the same user, does it.
func (d *Lender) add(l *Layout, m caisson.Mount, info fs.FileInfo, u User) error {
	planned := plan.Mount{Source: m.Source, Target: m.Target, Write: m.Write, Layer: m.Layer, Dir: info.IsDir()}
	if os.Geteuid() == 0 {
		tree, err := d.Lend(m.Source, u)
		if err != nil {
			return err
		}
		planned.FD, planned.Source = plan.MountFD+len(l.Trees), ""
		l.Trees = append(l.Trees, tree)
	}
	l.Plan.Mounts = append(l.Plan.Mounts, planned)
	return nil
}

// Floor plans a limit of the guest's own where the box's cgroups have none.
func (l *Layout) Floor(g *process.Group, limits caisson.Limits, u User) {
	if !g.Enforces(caisson.ControlPids) && u.Outside != 0 {
		l.Plan.Pids = limits.Pids
	}
	if !g.Enforces(caisson.ControlCPU) {
		l.Plan.CPUs = limits.CPUs
	}
}

// Environment is what every command inside gets; see sandbox.Environment.
func Environment(p plan.Plan, spec caisson.SandboxSpec) []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if info, err := os.Stat("/usr/local/go/bin"); err == nil && info.IsDir() {
		path = "/usr/local/go/bin:" + path
	}
	return sandbox.WithPrograms(sandbox.Environment([]string{
		"PATH=" + path + ":" + p.Home + "/.local/bin:" + p.Home + "/go/bin",
		"HOME=" + p.Home, "USER=" + p.User, "LOGNAME=" + p.User, "TMPDIR=/tmp",
	}, spec), sandbox.ProgramsAt(spec))
}
