//go:build linux

package layout

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
)

// User namespaces that are forbidden, in each of the ways in which hosts do it:
// the cause and the fix are named. Origin: codex 15057, srt 74.
func TestCase_S12(t *testing.T) {
	started := func(err error) func(func(string) string, bool) *caisson.Error {
		return func(read func(string) string, root bool) *caisson.Error { return refusedStart(err, read, root) }
	}
	setUp := func(failed string, err error) func(func(string) string, bool) *caisson.Error {
		var errno unix.Errno
		if e, is := err.(unix.Errno); is { //nolint:errorlint // as the guest says it
			errno = e
		}
		r := plan.Report{Failed: failed, Error: fmt.Sprint(failed, ": ", err), Errno: int(errno)}
		return func(read func(string) string, root bool) *caisson.Error { return refusedSetUp(r, read, root) }
	}
	at := func(path string, errno unix.Errno) func(func(string) string, bool) *caisson.Error {
		r := plan.Report{Failed: "root", Error: errno.Error(), Errno: int(errno), Point: path}
		return func(read func(string) string, root bool) *caisson.Error { return refusedSetUp(r, read, root) }
	}
	for name, c := range map[string]struct {
		explain func(func(string) string, bool) *caisson.Error
		setting string
		root    bool
		want    string
	}{
		"none at all":              {started(unix.ENOSPC), "user/max_user_namespaces=0", false, "user.max_user_namespaces=10000"},
		"Debian's switch":          {started(unix.EPERM), "kernel/unprivileged_userns_clone=0", false, "kernel.unprivileged_userns_clone=1"},
		"AppArmor forbids":         {started(unix.EACCES), appArmor + "=1", false, "kernel.apparmor_restrict_unprivileged_userns=0"},
		"AppArmor disarms":         {setUp("network", unix.EPERM), appArmor + "=1", false, "install one for caisson that allows `userns`"},
		"AppArmor, mounts":         {setUp("root", unix.EACCES), appArmor + "=1", false, "kernel.apparmor_restrict_unprivileged_userns=0"},
		"AppArmor, but root":       {started(unix.EPERM), appArmor + "=1", true, "container"},
		"a container":              {started(unix.EPERM), "", false, "--security-opt seccomp=unconfined"},
		"a security module":        {started(fmt.Errorf("start: %w", unix.EACCES)), "", false, "SELinux"},
		"one, as root":             {started(unix.EACCES), appArmor + "=1", true, "kernel's log"},
		"a container without them": {setUp("root", unix.EPERM), "", true, "forbids mounts"},
		"a masked /proc":           {setUp("root: mount /proc", unix.EPERM), "", true, "systempaths=unconfined"},
		"too many":                 {started(unix.ENOSPC), "", false, "user.max_*_namespaces"},
		"old kernel":               {started(unix.EINVAL), "", false, "older than 5.12"},
		"old kernel, mounts":       {setUp("root", unix.ENOSYS), "", false, "older than 5.12"},
		"AppArmor, a mount point":  {at("/x", unix.EACCES), appArmor + "=1", false, "kernel.apparmor_restrict_unprivileged_userns=0"},
		"no overlays":              {setUp("root: layer over /caches/x", unix.EPERM), "", false, "`caches`"},
	} {
		key, value, _ := strings.Cut(c.setting, "=")
		read := func(name string) string {
			if name == key {
				return value
			}
			return ""
		}
		e := c.explain(read, c.root)
		if e.Code != caisson.CodeIsolationUnavailable || !strings.Contains(e.HintText(), c.want) {
			t.Errorf("%s: %v, hint %q; want %q in it", name, e, e.HintText(), c.want)
		}
	}
}

// A limit that a cgroup was to keep, and does not, is kept by nothing else: the
// guest was not asked to.
func TestWhatACgroupDoesNotKeepIsNotKept(t *testing.T) {
	groups, err := process.FindCgroups()
	if err != nil {
		t.Fatal(err)
	}
	limits := caisson.Limits{Memory: 64 << 20, Pids: 64, CPUs: 1}
	g := groups.Make(process.GroupSpec{ID: caisson.NewSandboxID(), Limits: limits})
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if !g.Enforces(caisson.ControlPids) || !g.Enforces(caisson.ControlCPU) {
		t.Skip("no cgroup is delegated to this user")
	}
	u, l := User{Outside: 1000}, Layout{}
	l.Floor(g, limits, u)
	// Nothing is started in it.
	if err := g.Start(&syscall.SysProcAttr{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, control := range []caisson.Control{caisson.ControlPids, caisson.ControlCPU} {
		if row := limitRow(control, g, u); row.Enforced || row.By != "" || row.Why == "" {
			t.Errorf("with a plan of %d processes and %d processors: %+v", l.Plan.Pids, l.Plan.CPUs, row)
		}
	}
}
