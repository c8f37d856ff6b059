//go:build linux

package bubblewrap

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// stageDir is covered by the stage, in the stage's own mount namespace.
const stageDir = "/tmp"

// arguments are bwrap's, with the files that go with them: bwrap copies those
// that it is told of by number.
type arguments struct {
	list  []string
	files []*os.File // from plan.FilesFD on
	stage *plan.Stage
}

func (a *arguments) close() {
	for _, f := range a.files {
		f.Close()
	}
}

func (a *arguments) add(list ...string) { a.list = append(a.list, list...) }

// arrange says in bwrap's words what the plan asks for. In this order: later
// mounts lie on earlier ones.
func arrange(l *layout.Layout, u layout.User) (*arguments, error) {
	a := &arguments{}
	if os.Geteuid() == 0 {
		a.stage = &plan.Stage{Dir: stageDir, UID: u.Outside, GID: u.OutsideGroup}
	}
	p := &l.Plan
	a.add("--unshare-all", "--unshare-user", "--unshare-cgroup", "--die-with-parent", "--new-session", "--as-pid-1",
		"--uid", strconv.Itoa(p.UID), "--gid", strconv.Itoa(p.GID), "--hostname", p.HostName(), "--cap-drop", "ALL",
		"--info-fd", strconv.Itoa(plan.InfoFD), "--block-fd", strconv.Itoa(plan.BlockFD), "--chdir", "/")
	for _, path := range p.System {
		a.show(path)
	}
	for _, name := range []string{"/run", "/sys", "/var", "/root", "/opt", "/mnt"} {
		a.add("--perms", "0755", "--dir", name)
	}
	a.add("--perms", "0755", "--dir", "/etc")
	for _, path := range p.Etc {
		a.show(path)
	}
	err := a.copy(p.Proof, "x", "0644")
	if err == nil && p.Mask != (plan.Mask{}) {
		a.add("--perms", "0000", "--dir", p.Mask.Dir)
		err = a.copy(p.Mask.File, "", "0000")
	}
	files := p.EtcFiles()
	for _, name := range sorted(files) {
		if err == nil {
			err = a.copy("/etc/"+name, files[name], "0644")
		}
	}
	a.add("--symlink", "/proc/self/mounts", "/etc/mtab")
	a.devices()
	a.private(p)
	if err == nil {
		err = a.lend(l)
	}
	if err != nil {
		a.close()
		return nil, err
	}
	a.add("--remount-ro", "/dev", "--remount-ro", "/")
	return a, nil
}

// show shows a path of the host read-only; a link is made again. What is not
// there is left out.
func (a *arguments) show(path string) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err := os.Readlink(path); err == nil {
			a.add("--symlink", target, path)
		}
	case info.IsDir() || info.Mode().IsRegular():
		a.add("--ro-bind", path, path)
	}
}

// copy makes a file with a text.
func (a *arguments) copy(path, text, mode string) error {
	f, err := memory(path, []byte(text))
	if err != nil {
		return err
	}
	a.add("--perms", mode, "--file", strconv.Itoa(plan.FilesFD+len(a.files)), path)
	a.files = append(a.files, f)
	return nil
}

// memory returns a file of memory that is read from its beginning.
func memory(name string, text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write memory file: %w", err)
	}
	return f, nil
}

// devices makes /dev, /proc with the parts of the whole machine read-only, and
// those that belong to the caller empty.
func (a *arguments) devices() {
	a.add("--dev", "/dev", "--proc", "/proc")
	for _, path := range []string{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/pressure", "/proc/sysrq-trigger"} {
		if unix.Access(path, unix.F_OK) == nil {
			a.add("--ro-bind", path, path)
		}
	}
	for _, path := range []string{"/proc/keys", "/proc/key-users"} {
		if unix.Access(path, unix.F_OK) == nil {
			a.add("--dev-bind", "/dev/null", path)
		}
	}
}

// private makes the box's own directories: staged ones are bounded in files
// too, which bwrap's are not.
func (a *arguments) private(p *plan.Plan) {
	for i, path := range p.Private {
		mode := uint32(0o755)
		if plan.Shared(path) {
			mode = 0o1777
		}
		if a.stage == nil {
			a.add("--perms", fmt.Sprintf("%04o", mode), "--size", strconv.FormatInt(p.Tmp, 10), "--tmpfs", path)
			continue
		}
		name := fmt.Sprintf("private-%d", i)
		a.stage.Private = append(a.stage.Private, plan.StageSpace{Name: name, Size: p.Tmp, Mode: mode})
		a.add("--bind", stageDir+"/"+name, path)
	}
	if !slices.Contains(p.Private, "/var/tmp") {
		a.add("--symlink", "/tmp", "/var/tmp")
	}
}

// lend shows what the plan lends, by path or by the name that it has on the
// stage, and notes what must be found there.
func (a *arguments) lend(l *layout.Layout) error {
	trees := 0
	for i := range l.Plan.Mounts {
		m := &l.Plan.Mounts[i]
		var st unix.Stat_t
		source := m.Source
		if m.FD != 0 {
			tree := l.Trees[trees]
			if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
				return fmt.Errorf("look at %s: %w", tree.Name(), err)
			}
			name := fmt.Sprintf("tree-%d", trees)
			a.stage.Trees = append(a.stage.Trees, plan.StageTree{FD: plan.FilesFD + len(a.files) + trees, Name: name, Dir: m.Dir})
			source, trees = stageDir+"/"+name, trees+1
		} else if err := seen(m.Source, &st); err != nil {
			return caisson.Errorf(caisson.CodePathInvalid, "%s cannot be lent to the sandbox: %w", m.Source, err)
		}
		m.FD, m.Dev, m.Ino = 0, st.Dev, st.Ino
		how := "--ro-bind"
		if m.Write {
			how = "--bind"
		}
		a.add(how, source, m.Target)
	}
	return nil
}

// seen looks at a path in which no component may be a link.
func seen(path string, st *unix.Stat_t) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}

func sorted(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bytes is how bwrap reads its arguments.
func (a *arguments) bytes() []byte { return []byte(strings.Join(a.list, "\x00") + "\x00") }
