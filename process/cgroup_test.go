package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// tree makes files below a directory and returns it, with a process's cgroup
// and mountinfo in which @ stands for it.
func tree(t *testing.T, cgroup, mountinfo string, files map[string]string) (dir string, c *Cgroups) {
	t.Helper()
	dir = t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "@", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("self/cgroup", cgroup)
	put("self/mountinfo", mountinfo)
	for name, text := range files {
		put(name, text)
	}
	c, err := findCgroups(filepath.Join(dir, "self"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, c
}

// IdentityOf has the test program say which process a number means.
const IdentityOf = "CAISSON_TEST_IDENTITY"

const testID = caisson.SandboxID("s0")

var testLimits = caisson.Limits{Memory: 1 << 30, Pids: 100, CPUs: 2}

// wrote compares what is in the files now.
func wrote(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for name := range want {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		got[name] = string(raw)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func enforcedBy(g *Group) [3]string {
	return [3]string{g.Row(caisson.ControlMemory).By, g.Row(caisson.ControlPids).By, g.Row(caisson.ControlCPU).By}
}

// Version 2 alone, as systemd delegates it: this process is in a leaf, and a
// sibling of it is made.
func TestCgroupsOfVersion2(t *testing.T) {
	const at = "sys/user.slice/run.scope"
	dir, c := tree(t, "0::/user.slice/run.scope/host\n", "30 23 0:26 / @/sys rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", map[string]string{
		at + "/host/cgroup.procs":               "1\n",
		at + "/cgroup.subtree_control":          "cpuset hugetlb io misc cpu memory pids\n", // of which a write by us, here, replaces the beginning
		at + "/caisson-s0/memory.max":           "",
		at + "/caisson-s0/memory.swap.max":      "",
		at + "/caisson-s0/pids.max":             "",
		at + "/caisson-s0/cpu.max":              "",
		at + "/caisson-s0/memory.events":        "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
		"sys/user.slice/cgroup.subtree_control": "memory pids\n",
	})
	g := c.Make(GroupSpec{ID: testID, Limits: testLimits})
	if by := enforcedBy(g); by != [3]string{"cgroup v2", "cgroup v2", "cgroup v2"} {
		t.Fatalf("%q, %v", by, g.why)
	}
	wrote(t, filepath.Join(dir, at, "caisson-s0"), map[string]string{
		"memory.max": "1073741824", "memory.swap.max": "0", "pids.max": "100", "cpu.max": "200000 100000",
	})
	if n, err := g.OOM()(); n != 2 || err != nil {
		t.Errorf("%d ended for memory, %v", n, err)
	}
	var attr syscall.SysProcAttr
	if err := g.Start(&attr, func() error { return nil }); err != nil || !attr.UseCgroupFD {
		t.Errorf("what is started is not born in it: %+v, %v", attr, err)
	}
	if got, want := g.Dirs(), []string{filepath.Join(dir, at, "caisson-s0")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Version 1 alone, in a container that sees its own part of each hierarchy; two
// controllers share one.
func TestCgroupsOfVersion1(t *testing.T) {
	dir, c := tree(t,
		"3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc/sub\n1:pids:/docker/abc\n",
		"31 23 0:28 /docker/abc @/memory rw - cgroup cgroup rw,memory\n"+
			"32 23 0:29 /docker/abc @/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"+
			"33 23 0:30 / @/other rw - tmpfs tmpfs rw\n",
		map[string]string{
			"memory/caisson-s0/memory.limit_in_bytes":      "-1", // no memsw: swap is not accounted
			"memory/caisson-s0/memory.oom_control":         "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
			"cpu,cpuacct/sub/caisson-s0/cpu.cfs_period_us": "0",
			"cpu,cpuacct/sub/caisson-s0/cpu.cfs_quota_us":  "-1",
		})
	g := c.Make(GroupSpec{ID: testID, Limits: testLimits})
	if by := enforcedBy(g); by != [3]string{"cgroup v1 memory", "", "cgroup v1 cpu"} {
		t.Fatalf("%q, %v", by, g.why)
	}
	wrote(t, dir, map[string]string{
		"memory/caisson-s0/memory.limit_in_bytes":     "1073741824",
		"cpu,cpuacct/sub/caisson-s0/cpu.cfs_quota_us": "200000",
	})
	if n, err := g.OOM()(); n != 5 || err != nil {
		t.Errorf("%d ended for memory, %v", n, err)
	}
	// The hierarchy of processes is not mounted, and that is said.
	if row := g.Row(caisson.ControlPids); row.Enforced || row.Why == "" || row.Fix == "" {
		t.Errorf("%+v", row)
	}
}

// Both: the controllers in version 1, and a version 2 without any, which is
// good for ending.
func TestCgroupsOfAHybrid(t *testing.T) {
	dir, c := tree(t,
		"2:pids:/\n1:name=systemd:/\n0::/\n",
		"39 31 0:36 / @/pids rw - cgroup cgroup rw,pids\n40 31 0:37 / @/systemd rw - cgroup cgroup rw,name=systemd\n41 31 0:38 / @/unified rw - cgroup2 cgroup2 rw\n",
		map[string]string{
			"pids/caisson-s0/pids.max":        "",
			"pids/caisson-s0/tasks":           "",
			"pids/tasks":                      "",
			"unified/cgroup.subtree_control":  "\n",
			"unified/caisson-s0/cgroup.kill":  "",
			"systemd/caisson-s0/cgroup.procs": "",
		})
	g := c.Make(GroupSpec{ID: testID, Limits: testLimits, Kill: true})
	if by := enforcedBy(g); by != [3]string{"", "cgroup v1 pids", ""} {
		t.Fatalf("%q, %v", by, g.why)
	}
	want := []string{filepath.Join(dir, "pids/caisson-s0"), filepath.Join(dir, "unified/caisson-s0")}
	if got := g.Dirs(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var attr syscall.SysProcAttr
	began := false
	err := g.Start(&attr, func() error {
		began = true
		wrote(t, dir, map[string]string{"pids/caisson-s0/tasks": "0", "pids/tasks": ""}) // this thread is in it
		return nil
	})
	if err != nil || !began || !attr.UseCgroupFD {
		t.Errorf("%v, %+v", err, attr)
	}
	wrote(t, dir, map[string]string{"pids/tasks": "0"}) // and out again
	if g.OOM() != nil {
		t.Error("it counts what nothing counts")
	}
}

// Why there is none reads the same for each sandbox.
func TestCgroupsThatCannotBeMade(t *testing.T) {
	dir, c := tree(t, "4:memory:/\n", "39 31 0:36 / @/memory rw - cgroup cgroup rw,memory\n", map[string]string{"memory/tasks": ""})
	if err := os.RemoveAll(filepath.Join(dir, "memory")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []caisson.SandboxID{testID, "s1"} {
		const want = "no cgroup for it: mkdir caisson-*: no such file or directory"
		if got := c.Make(GroupSpec{ID: id, Limits: testLimits}).Row(caisson.ControlMemory).Why; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// Nothing is delegated: nothing is claimed, nothing is left.
func TestCgroupsOfNobody(t *testing.T) {
	_, c := tree(t, "0::/\n", "30 23 0:26 / @/sys ro - cgroup2 cgroup2 rw\n", map[string]string{
		"sys/cgroup.subtree_control": "\n", "sys/cgroup.procs": "",
	})
	for _, c := range []*Cgroups{c, nil} {
		g := c.Make(GroupSpec{ID: testID, Limits: testLimits})
		for _, control := range []caisson.Control{caisson.ControlMemory, caisson.ControlPids, caisson.ControlCPU} {
			if row := g.Row(control); row.Enforced || row.By != "" || row.Why == "" || row.Fix == "" {
				t.Errorf("%+v", row)
			}
		}
		if len(g.Dirs()) > 0 || g.OOM() != nil {
			t.Errorf("it has %v", g.Dirs())
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// real returns this host's own, in which a group can be made.
func real(t *testing.T, spec GroupSpec) (*Cgroups, *Group) {
	t.Helper()
	c, err := FindCgroups()
	if err != nil {
		t.Fatal(err)
	}
	g := c.Make(spec)
	if len(g.Dirs()) == 0 {
		t.Skip("no cgroup is delegated to this user")
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, dir := range g.Dirs() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return c, g
}

// A limit that the kernel took, and that is not in force when something is in the
// group, is none.
func TestLimitsAreReadBack(t *testing.T) {
	for _, spoilt := range []bool{false, true} {
		_, g := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
		claim := g.claims[caisson.ControlPids]
		if claim.dir == "" {
			t.Skip("no cgroup is delegated to this user")
		}
		if spoilt {
			if err := writeControl(filepath.Join(claim.dir, "pids.max"), "max"); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("/bin/sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
			t.Fatal(err)
		}
		row, memory := g.Row(caisson.ControlPids), g.Row(caisson.ControlMemory)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
		if row.Enforced == spoilt || spoilt == strings.Contains(row.Test, "read back") || spoilt && !strings.Contains(row.Why, `pids.max is "max"`) {
			t.Errorf("spoilt %v: %+v", spoilt, row)
		}
		if !memory.Enforced || memory.Test != g.Row(caisson.ControlCPU).Test {
			t.Errorf("memory: %+v", memory)
		}
	}
	_, empty := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
	if empty.prove(); empty.Row(caisson.ControlPids).Enforced {
		t.Error("a group with nobody in it limits them")
	}
	// In version 1 this process is in it itself while it starts something.
	_, empty = real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
	if err := empty.Start(&syscall.SysProcAttr{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if row := empty.Row(caisson.ControlPids); row.Enforced {
		t.Errorf("a group limits what was not started in it: %+v", row)
	}
}

// forker starts, in the group, a program that makes processes without end and
// ignores what it can, and waits until there are some.
func forker(t *testing.T, g *Group) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM HUP INT; while :; do (setsid sleep 1000 &); echo; done 2>/dev/null`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for range 20 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	go lines.WriteTo(nowhere{}) // ends with the pipe
	return cmd
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// What forks as fast as it can is ended, whichever way there is to end it.
func TestKillEndsWhatForksMeanwhile(t *testing.T) {
	for _, kill := range []bool{true, false} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			id := caisson.NewSandboxID()
			_, g := real(t, GroupSpec{ID: id, Limits: caisson.Limits{Memory: 1 << 30, Pids: 60, CPUs: 1}, Kill: kill})
			cmd := forker(t, g)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := g.Kill(ctx); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			for _, dir := range g.Dirs() {
				if left, err := cgroupProcesses(dir); len(left) > 0 || err != nil {
					t.Errorf("%v are left in %s: %v", left, dir, err)
				}
			}
		})
	}
}

// A group whose maker lives is not tidied away, and one that nobody holds is,
// once it is empty. End takes only what bears the sandbox's name.
func TestGroupsOfDeadMakers(t *testing.T) {
	c, g := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
	abandoned := caisson.NewSandboxID()
	left := c.Make(GroupSpec{ID: abandoned, Limits: caisson.Limits{Memory: 1 << 30, Pids: 60, CPUs: 1}})
	cmd := forker(t, left)
	defer abandon(t, left)()
	made, err := c.Made(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]bool{}
	for _, m := range made {
		live[m.Path] = m.Live
		if m.Path == g.dirs[0] { // a list may be old: who holds it is looked at again
			if err := c.Remove(t.Context(), m); err != nil {
				t.Error(err)
			}
		}
	}
	for path, want := range map[string]bool{g.dirs[0]: true, left.dirs[0]: false} {
		if got, there := live[path]; !there || got != want {
			t.Errorf("%s: there %v, live %v", path, there, got)
		}
	}
	if err := c.End(t.Context(), abandoned, []string{"/", g.dirs[0], "/etc/caisson-" + string(abandoned)}); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	for _, dir := range left.dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	if _, err := os.Stat(g.dirs[0]); err != nil {
		t.Error(err)
	}
}

// The limit of memory is kept, and what the kernel ended for it is counted.
func TestMemoryIsLimitedAndCounted(t *testing.T) {
	_, g := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: caisson.Limits{Memory: 32 << 20, Pids: 60, CPUs: 1}})
	if !g.Enforces(caisson.ControlMemory) {
		t.Skip("memory cannot be limited here: " + g.Row(caisson.ControlMemory).Why)
	}
	before, err := g.OOM()()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "head -c 200m /dev/zero | tail -c 199m | wc -c")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if after, err := g.OOM()(); err != nil || after != before+1 {
		t.Errorf("%d and then %d were ended for memory, %v", before, after, err)
	}
}

// What a name holds, and the language and time zone of whoever looks, change
// nothing of an identity.
func TestIdentityIsTheSameInEveryLanguage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x) S 1 (y\n\tZ")
	raw, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	want, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{{"LANG=C", "TZ=UTC"}, {"LC_ALL=tr_TR.UTF-8", "TZ=Pacific/Kiritimati"}, {"LANG=ar_EG.UTF-8", "LC_NUMERIC=ar_EG.UTF-8", "TZ=:nonsense"}} {
		other := exec.Command("/proc/self/exe")
		other.Env = append(env, IdentityOf+"="+strconv.Itoa(cmd.Process.Pid))
		out, err := other.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out); got != fmt.Sprintf("%s %d %d %d alive\n", want.Boot, want.PIDNS, want.PID, want.Start) {
			t.Errorf("with %v it is %q, not %+v", env, got, want)
		}
	}
}

// A cgroup is looked at for longer than a moment while it is made: its maker
// waits. Two that look do not take each other for its maker.
func TestGroupLookedAtWhileItIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), groupPrefix+string(caisson.NewSandboxID()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var looks []*os.File
	for range 2 {
		look, err := lockfile.Dir(dir, unix.LOCK_SH)
		if err != nil {
			t.Fatal(err)
		}
		looks = append(looks, look)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		for _, look := range looks {
			look.Close()
		}
	})
	lock, err := makeLocked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if look, err := lockfile.Dir(dir, unix.LOCK_SH); err == nil {
		look.Close()
		t.Error("it is made and not locked")
	}
}

// Who tidies up removes what nobody holds also where another looks at it.
func TestGroupLookedAtWhileItIsRemoved(t *testing.T) {
	c, g := real(t, GroupSpec{ID: caisson.NewSandboxID(), Limits: testLimits})
	for _, parent := range g.dirs {
		// Within one that is held, where what tidies up beside this test does not look:
		// that would have it, and be about to remove it.
		dir := filepath.Join(parent, groupPrefix+string(caisson.NewSandboxID()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		look, err := lockfile.Dir(dir, unix.LOCK_SH)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, func() { look.Close() })
		if err := c.Remove(t.Context(), MadeGroup{Path: dir}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
			_ = os.Remove(dir) // only where the test failed
		}
	}
}

// abandon has a group be one that nobody holds, as when its maker has ended. It
// looks at it until over is called: what tidies up beside this test waits for that.
func abandon(t *testing.T, g *Group) (over func()) {
	t.Helper()
	for _, lock := range g.locks {
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
			t.Fatal(err)
		}
	}
	if g.fd != nil {
		g.fd.Close()
	}
	return func() {
		for _, lock := range g.locks {
			lock.Close()
		}
	}
}
