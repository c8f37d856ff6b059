package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/mount"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

// outside are paths of a host that no box may have: the engines' own sockets.
var outside = []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"}

const (
	guestPath = plan.GivenDir + "/guest"
	proofPath = plan.GivenDir + "/proof"
	outletAt  = plan.GivenDir + "/outlet"
)

// plans are what a box is made of.
type plans struct {
	plan  plan.Plan
	binds []mount.Mount
	tmpfs map[string]string
	// sources are the paths of the host that the plan's mounts show.
	sources []string
}

// lentPaths are the paths of the host that a checked spec lends.
func lentPaths(spec caisson.SandboxSpec) []string {
	var paths []string
	for _, m := range sandbox.Mounts(spec) {
		if !slices.Contains(paths, m.Source) {
			paths = append(paths, m.Source)
		}
	}
	if spec.Home != "" && !slices.Contains(paths, spec.Home) {
		paths = append(paths, spec.Home)
	}
	return paths
}

// lay plans the box of a checked spec for a user.
func lay(spec caisson.SandboxSpec, u user, s *staging, engine string) *plans {
	mounts := sandbox.Mounts(spec)
	l := &plans{tmpfs: map[string]string{}, plan: plan.Plan{
		ID: string(spec.ID), UID: u.uid, GID: u.gid, User: userName, Home: sandbox.Home(mounts),
		Workspace: spec.Workspace, Tmp: spec.Limits.Tmp, Private: []string{"/tmp", "/var/tmp"},
		Files: spec.Limits.Files, Size: spec.Limits.Size, Proof: proofPath, Outside: outside, Needs: []string{"/bin/sh"}, Ptrace: spec.Ptrace,
	}}
	if spec.Home != "" {
		mounts = append(mounts, caisson.Mount{Source: spec.Home, Target: l.plan.Home, Write: true})
	} else {
		l.plan.Private = append(l.plan.Private, l.plan.Home)
	}
	if spec.Workspace == "" {
		l.plan.Workspace = sandbox.PrivateWorkspace
		l.plan.Private = append(l.plan.Private, sandbox.PrivateWorkspace)
	}
	for _, path := range l.plan.Private {
		l.tmpfs[path] = tmpfs(path, spec.Limits.Tmp, u, engine)
	}
	l.plan.Private = append(l.plan.Private, "/dev/shm")
	if engine == Podman { // else it mounts one that can be written
		l.tmpfs["/run"] = "ro,nosuid,nodev,noexec,size=65536,mode=0755"
	}
	for _, m := range mounts {
		info, err := os.Lstat(m.Source)
		l.sources = append(l.sources, m.Source)
		l.plan.Mounts = append(l.plan.Mounts, plan.Mount{Target: m.Target, Write: m.Write, Dir: err == nil && info.IsDir()})
		l.bind(s.source(m.Source), m.Target, m.Write)
	}
	l.bind(s.program, guestPath, false)
	l.bind(filepath.Join(s.dir, "proof"), proofPath, false)
	if spec.Egress != nil {
		l.plan.Outlet, l.plan.OutletAt = &outlet.Options{Ports: spec.Egress.Ports()}, outletAt
		l.bind(filepath.Join(s.dir, outletName), outletAt, false)
	}
	for _, name := range slices.Sorted(maps.Keys(etcFiles(u, "", spec))) {
		l.bind(filepath.Join(s.dir, name), "/etc/"+name, false)
	}
	l.plan.Outside = slices.DeleteFunc(slices.Clone(outside), func(path string) bool {
		return slices.ContainsFunc(l.plan.Mounts, func(m plan.Mount) bool { return sandbox.Overlap(m.Target, path) })
	})
	return l
}

// bind shows a path of the host. A source that is not there is an error of the
// engine's, not a new directory.
func (l *plans) bind(source, target string, write bool) {
	l.binds = append(l.binds, mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: !write,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	})
}

// tmpfs are the options of a private directory, bounded in bytes and in number
// of files.
func tmpfs(path string, size int64, u user, engine string) string {
	if engine == Podman { // it knows no other options
		return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,mode=1777", size)
	}
	mode := "0755"
	if path == "/tmp" || path == "/var/tmp" {
		mode = "1777"
	}
	return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s,uid=%d,gid=%d", size, plan.Inodes(size), mode, u.uid, u.gid)
}

// environment is what every command inside gets: the image's, ours over it, and
// the rest as in sandbox.Environment.
func environment(p plan.Plan, image []string, spec caisson.SandboxSpec) []string {
	env := append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, image...)
	for i, kv := range env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			env[i] = "PATH=" + path + ":" + p.Home + "/.local/bin:" + p.Home + "/go/bin"
		}
	}
	env = sandbox.Environment(append(env, "LANG=C.UTF-8", "HOME="+p.Home, "USER="+p.User, "LOGNAME="+p.User, "TMPDIR=/tmp"), spec)
	return sandbox.WithPrograms(env, sandbox.ProgramsAt(spec))
}
