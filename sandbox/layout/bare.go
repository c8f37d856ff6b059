//go:build linux

package layout

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

// accounts are read by programs that want to know who they run as; without a
// file tree of its own a box has the host's.
var accounts = []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf"}

// Bare plans a box that shares the host's file tree: everything is where it is.
// own is the box's directory on the host, in which are its private ones; they
// must be there when the plan is carried out. The directory itself is the
// caller's, and nothing but Landlock keeps the guest from reading it.
func Bare(spec caisson.SandboxSpec, own string) plan.Plan {
	p := plan.Plan{
		ID: string(spec.ID), UID: os.Geteuid(), GID: os.Getegid(), User: userName,
		Home: filepath.Join(own, "home"), Workspace: spec.Workspace, Tmp: spec.Limits.Tmp,
		Private: []string{filepath.Join(own, "tmp")}, Files: spec.Limits.Files, Size: spec.Limits.Size,
		System: system, Etc: append(new(etcList).paths(), accounts...), Proof: own, Ptrace: spec.Ptrace,
	}
	if u, err := user.LookupId(strconv.Itoa(p.UID)); err == nil {
		p.User = u.Username
	}
	for _, m := range sandbox.Mounts(spec) {
		if shownElsewhere(spec, m) {
			continue // nothing can be shown in the place of something else
		}
		info, err := os.Lstat(m.Source)
		p.Mounts = append(p.Mounts, plan.Mount{Source: m.Source, Target: m.Target, Write: m.Write, Dir: err == nil && info.IsDir()})
	}
	if spec.Programs != "" {
		p.Mounts = append(p.Mounts, plan.Mount{Source: spec.Programs, Target: spec.Programs, Dir: true})
	}
	if spec.Home != "" {
		p.Home = spec.Home
		p.Mounts = append(p.Mounts, plan.Mount{Source: spec.Home, Target: spec.Home, Write: true, Dir: true})
	} else {
		p.Private = append(p.Private, p.Home)
	}
	if spec.Workspace == "" {
		p.Workspace = filepath.Join(own, "workspace")
		p.Private = append(p.Private, p.Workspace)
	}
	given := slices.Clone(p.Private)
	for _, m := range p.Mounts {
		given = append(given, m.Target)
	}
	for _, path := range append(slices.Clone(hidden), "/root", "/run") {
		if !slices.ContainsFunc(given, func(t string) bool { return sandbox.Overlap(t, path) }) {
			p.Outside = append(p.Outside, path)
		}
	}
	return p
}

// BareEnvironment is Environment for such a box: its places are named, as they
// are not where programs look by themselves. Git is told where its directory
// is, as nothing in the workspace may say so.
func BareEnvironment(p plan.Plan, spec caisson.SandboxSpec, own string) []string {
	tmp := filepath.Join(own, "tmp")
	env := []string{
		"TMPDIR=" + tmp, "TMP=" + tmp, "TEMP=" + tmp,
		"GIT_CONFIG_NOSYSTEM=1", // git does not go on where that file is and cannot be read
	}
	if spec.GitCover != "" && spec.GitDir != "" {
		env = append(env, "GIT_DIR="+spec.GitDir, "GIT_WORK_TREE="+spec.Workspace)
	}
	spec.Env = append(env, spec.Env...)
	programs := spec.Programs
	spec.Programs = ""
	return sandbox.WithPrograms(Environment(p, spec), programs)
}

// Unshowable returns what of a checked spec cannot be had without a file tree of
// its own: a path shown at another one, or one that is not to be written in one
// that is. Empty if there is nothing; the cover of .git and the trees of
// submodules are not counted.
func Unshowable(spec caisson.SandboxSpec) string {
	mounts := sandbox.Mounts(spec)
	for _, m := range mounts {
		if shownElsewhere(spec, m) {
			continue
		}
		if m.Source != m.Target {
			return m.Source + " at " + m.Target
		}
		if m.Write {
			continue
		}
		for _, outer := range mounts {
			if outer.Write && strings.HasPrefix(m.Target, outer.Target+"/") {
				return m.Target + " without the right to write, in " + outer.Target + " with it"
			}
		}
	}
	return ""
}

// shownElsewhere tells whether m is something that is only to be shown where it
// can be, or that has another place where it cannot.
func shownElsewhere(spec caisson.SandboxSpec, m caisson.Mount) bool {
	if m.Source == spec.GitCover {
		return m.Target != m.Source
	}
	if m.Target == caisson.ProgramsDir {
		return m.Source == spec.Programs
	}
	return slices.ContainsFunc(spec.GitTrees, func(t caisson.Mount) bool { return t.Source == m.Source && t.Target == m.Target })
}
