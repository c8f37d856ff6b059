package workspace

import (
	"context"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/proctree"
)

// settling is how old a process that cannot be looked at may be before it has to
// have come apart, or ended: one that begins a box has all of the host's mounts at
// first, on a busy machine for seconds, and is ended where it takes more than five.
const settling = 6 * time.Second

// passing is what one is given whose parent has ended, as a guest ends that has lost
// its host.
const passing = time.Second

// mount is one line of a mountinfo.
type mount struct{ id, device, root, point string }

// readMounts reads what is mounted where a process is, which everybody may see.
// Source: proc_pid_mountinfo(5).
func readMounts(path string) ([]mount, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []mount
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			all = append(all, mount{fields[0], fields[2], unescapeMount(fields[3]), unescapeMount(fields[4])})
		}
	}
	return all, nil
}

// unescapeMount reads the octal forms in which spaces and the like are written.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// within tells whether a clean path is dir or below it.
func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// apart tells of a process whether nothing that is mounted where it is leads to
// one of its directories, as in a box of another workspace. False where that
// cannot be told. A descriptor that somebody handed in is not seen by this.
func (p *holder) apart() bool {
	theirs, err := readMounts(p.at + "/mountinfo")
	if err != nil || len(theirs) == 0 {
		return false
	}
	ours, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for _, dir := range p.dirs {
		var st unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st) != nil {
			continue // there is no such part
		}
		i := slices.IndexFunc(ours, func(m mount) bool { return m.id == strconv.FormatUint(st.Mnt_id, 10) })
		if st.Mask&unix.STATX_MNT_ID == 0 || i < 0 {
			return false
		}
		at := ours[i]
		dir, err := realPath(dir)
		if err != nil || !within(dir, at.point) {
			return false
		}
		inside := filepath.Join(at.root, strings.TrimPrefix(dir, at.point))
		for _, m := range theirs {
			if m.device == at.device && (within(inside, m.root) || within(m.root, inside)) {
				return false
			}
		}
	}
	return true
}

// realPath resolves the links in the way to a directory, which are the person's,
// and not its last part.
func realPath(dir string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	return filepath.Join(parent, filepath.Base(dir)), err
}

// begun is holds, of a process that may just be being started here. One for which a
// namespace is made is not yet its program when the lock of forks is free again, and is
// waited for.
func (p *holder) begun(ctx context.Context, pid int) (how string, err error) {
	for {
		how, err = p.holds()
		if how == "" || !p.begins(pid) || !pause(ctx, lockPoll) {
			return how, err
		}
	}
}

// begins tells whether a process is young, a child of this one, and the same program.
func (p *holder) begins(pid int) bool {
	seen, there := proctree.Of(pid)
	if !there || seen.Parent != os.Getpid() {
		return false
	}
	age, _ := ageOf(seen)
	own, ownErr := os.Stat("/proc/self/exe")
	its, err := os.Stat(p.at + "/exe")
	return age <= settling && ownErr == nil && err == nil && os.SameFile(own, its)
}

// unseen tells of a process that cannot be looked at that it may hold something. A
// young one is waited for, and one that may just be ending as its parent has, until
// the look that began at since has taken passing.
func (p *holder) unseen(ctx context.Context, pid int, made, since time.Time) bool {
	for {
		age, matters := p.matters(pid, made)
		if !matters || p.apart() || p.sent(pid) {
			return false
		}
		if age > settling && time.Since(since) > passing || !pause(ctx, lockPoll) {
			return true
		}
	}
}

// sent tells of a process that cannot be looked at that it is the child of a Caisson of
// this user's that has nothing open there, as guests of other workspaces' boxes are of
// who keeps these open, or of others like it whose first parent is such a one. Nobody
// else's children are vouched for: they may work there.
func (p *holder) sent(pid int) bool {
	for range maxClimb {
		child, there := proctree.Of(pid)
		if !there || child.Parent <= 1 {
			return false
		}
		parent := &holder{at: "/proc/" + strconv.Itoa(child.Parent), dirs: p.dirs, ids: p.ids}
		if uid, known := parent.owner(); !known || uid != os.Getuid() {
			return false
		}
		how, err := parent.holds()
		vouches := err == nil && parent.ofOurs()
		now, there := proctree.Of(pid)
		if how != "" || !there || now.Start != child.Start || now.Parent != child.Parent {
			return false
		}
		if err == nil {
			return vouches
		}
		pid = child.Parent
	}
	return false
}

// ofOurs tells whether a process runs a program of the same module as this one.
func (p *holder) ofOurs() bool {
	own, known := debug.ReadBuildInfo()
	its, err := buildinfo.ReadFile(p.at + "/exe")
	return known && err == nil && own.Main.Path != "" && its.Main.Path == own.Main.Path
}
