//go:build linux

package namespace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

const userName = "agent"

// homes are the places for HOME inside; the first that is in nothing's way.
var homes = []string{"/home/agent", "/home/caisson", "/caisson/home"}

// system are the read-only directories of the host that every box has.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// etc are the files and directories of the host's /etc that say how programs
// run, and nothing of who uses the host or how it is reached.
var etc = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "crypto-policies", "debian_version", "fonts", "java*",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "os-release", "pki", "profile",
	"protocols", "redhat-release", "alpine-release", "services", "ssl", "terminfo", "timezone",
}

// hidden are paths of the host that a box must not have; those that it was
// given something of are not looked at.
var hidden = []string{"/boot", "/home", "/media", "/srv", "/var/lib", "/var/log", "/etc/shadow", "/etc/ssh", "/run/systemd"}

// layout is a plan with the descriptors that go with it.
type layout struct {
	plan   plan.Plan
	trees  []*os.File
	outlet *os.File // the guest's end of the way out, or nil
}

func (l *layout) close() {
	for _, f := range l.trees {
		f.Close()
	}
	l.trees = nil
	if l.outlet != nil {
		l.outlet.Close()
		l.outlet = nil
	}
}

// lay plans the box of a checked spec. Where files cannot be lent to another
// user, the returned user is the kernel's root instead.
func (e *Engine) lay(spec caisson.SandboxSpec) (*layout, user, error) {
	u := callingUser()
	l, err := e.layFor(spec, u)
	var unmappable *unmappableError
	if errors.As(err, &unmappable) {
		u = u.asRoot(err)
		l, err = e.layFor(spec, u)
	}
	return l, u, err
}

func (e *Engine) layFor(spec caisson.SandboxSpec, u user) (*layout, error) {
	mounts := sandbox.Mounts(spec)
	l := &layout{plan: plan.Plan{
		ID: string(spec.ID), UID: u.inside, GID: u.insideGroup, User: userName, Home: homeFor(mounts),
		Workspace: spec.Workspace, Tmp: spec.Limits.Tmp, Private: []string{"/tmp", "/dev/shm"},
		Files: spec.Limits.Files, Size: spec.Limits.Size, System: system, Etc: etcPaths(),
		Proof: "/.proof",
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
	// Else it is a link to /tmp, below which nothing can be mounted.
	for _, m := range mounts {
		info, err := os.Lstat(m.Source)
		if err == nil {
			err = e.add(l, m, info, u)
		}
		if err != nil {
			l.close()
			return nil, err
		}
	}
	if slices.ContainsFunc(l.targets(), func(t string) bool { return strings.HasPrefix(t, "/var/tmp/") }) {
		l.plan.Private = append(l.plan.Private, "/var/tmp") // else it is a link to /tmp
	}
	for _, path := range hidden {
		if !slices.ContainsFunc(append(l.targets(), l.plan.Private...), func(t string) bool { return sandbox.Overlap(t, path) }) {
			l.plan.Outside = append(l.plan.Outside, path)
		}
	}
	return l, nil
}

func (l *layout) targets() []string {
	var out []string
	for _, m := range l.plan.Mounts {
		out = append(out, m.Target)
	}
	return out
}

// add plans a mount. Root opens it here, as the box's user may not be able to;
// others cannot, and the guest, which is the same user, does it.
func (e *Engine) add(l *layout, m caisson.Mount, info fs.FileInfo, u user) error {
	planned := plan.Mount{Source: m.Source, Target: m.Target, Write: m.Write, Dir: info.IsDir()}
	if os.Geteuid() == 0 {
		tree, err := e.lend(m.Source, u)
		if err != nil {
			return err
		}
		planned.FD, planned.Source = plan.MountFD+len(l.trees), ""
		l.trees = append(l.trees, tree)
	}
	l.plan.Mounts = append(l.plan.Mounts, planned)
	return nil
}

func homeFor(mounts []caisson.Mount) string {
	for _, home := range homes {
		if !slices.ContainsFunc(mounts, func(m caisson.Mount) bool { return sandbox.Overlap(m.Target, home) }) {
			return home
		}
	}
	return homes[len(homes)-1]
}

func etcPaths() []string {
	var out []string
	for _, name := range etc {
		if !strings.Contains(name, "*") {
			out = append(out, "/etc/"+name)
			continue
		}
		found, _ := filepath.Glob("/etc/" + name) // the patterns are right
		out = append(out, found...)
	}
	return out
}

// environment is what every command inside gets: paths of ours, the language,
// terminal and time zone of the caller, and what the spec names.
func environment(p plan.Plan, spec caisson.SandboxSpec) []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if info, err := os.Stat("/usr/local/go/bin"); err == nil && info.IsDir() {
		path = "/usr/local/go/bin:" + path
	}
	env := []string{
		"PATH=" + path + ":" + p.Home + "/.local/bin:" + p.Home + "/go/bin",
		"HOME=" + p.Home, "USER=" + p.User, "LOGNAME=" + p.User, "TMPDIR=/tmp",
	}
	language := false
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name == "LANG" || strings.HasPrefix(name, "LC_") || name == "TERM" || name == "TZ" {
			env = append(env, kv)
			language = language || name == "LANG" || name == "LC_ALL"
		}
	}
	if !language {
		env = append(env, "LANG=C.UTF-8")
	}
	if spec.Egress != nil {
		env = append(env, sandbox.ProxyEnv()...)
	}
	return append(env, spec.Env...)
}
