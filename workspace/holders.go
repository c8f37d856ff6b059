package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/proctree"
	"github.com/caisson-run/caisson/process"
)

const (
	// maxMaps bounds what is read of the mappings of one process.
	maxMaps = 4 << 20
	// maxClimb bounds the way from a directory up to the root.
	maxClimb = 512
	// ticks are a second in /proc, on every system that Linux runs on.
	ticks = 100
)

// holders are processes that have something below one of dirs open: as their
// directory, their root, a file, or mapped. Processes are asked of the kernel,
// by what this process sees of them: those of another pid namespace that it
// cannot see, and, for an ordinary user, those of other users, are not. The
// directories of other users' processes are closed to them by the state
// directory's mode; root's are the system's own.
func holders(ctx context.Context, made time.Time, dirs ...string) (open, unseen []string, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, err
	}
	begun := time.Now()
	var ids []inode
	for _, dir := range dirs {
		if dev, ino, err := directoryID(dir); err == nil {
			ids = append(ids, inode{dev, ino})
		}
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p := &holder{at: "/proc/" + entry.Name(), dirs: dirs, ids: ids}
		how, err := p.holds()
		if how != "" {
			// What this process is just starting has all that is open here, until it is
			// the program that it is to be. It is waited for: to look with the lock held
			// would keep programs from being started where a look hangs.
			syscall.ForkLock.RLock()
			syscall.ForkLock.RUnlock() //nolint:staticcheck // nothing is to be done with it
			how, err = p.begun(ctx, pid)
		}
		switch {
		case how != "":
			open = append(open, fmt.Sprintf("process %d (%s): %s", pid, p.name(), how))
		case errors.Is(err, fs.ErrPermission) && p.unseen(ctx, pid, made, begun):
			unseen = append(unseen, fmt.Sprintf("process %d (%s)", pid, p.name()))
		}
	}
	slices.Sort(open)
	slices.Sort(unseen)
	return open, unseen, nil
}

type inode struct{ device, number uint64 }

// holder is one process being looked at.
type holder struct {
	at   string
	dirs []string
	ids  []inode
}

// holds says how the process holds something below the directories; "" that it
// does not, or that it has ended.
func (p *holder) holds() (string, error) {
	var denied error
	keep := func(err error) {
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	for _, link := range []string{"cwd", "root"} {
		to, err := os.Readlink(p.at + "/" + link)
		if keep(err); err == nil && (p.below(to) || p.climbs(p.at+"/"+link)) {
			return map[string]string{"cwd": "works in it", "root": "has its root in it"}[link], nil
		}
	}
	fds, err := os.ReadDir(p.at + "/fd")
	keep(err)
	for _, fd := range fds {
		if to, err := os.Readlink(p.at + "/fd/" + fd.Name()); err == nil && p.below(to) {
			return "has " + printable(p.short(to)) + " open", nil
		}
	}
	f, err := os.Open(p.at + "/maps")
	if err == nil {
		var maps []byte
		maps, err = io.ReadAll(io.LimitReader(f, maxMaps))
		_ = f.Close()
		for _, dir := range p.dirs {
			if bytes.Contains(maps, []byte(" "+dir+"/")) {
				return "has a file of it mapped", nil
			}
		}
	}
	keep(err)
	return "", denied
}

func (p *holder) below(path string) bool {
	path = strings.TrimSuffix(path, " (deleted)")
	return slices.ContainsFunc(p.dirs, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// short is a path as it is called in its directory.
func (p *holder) short(path string) string {
	for _, dir := range p.dirs {
		if rest, is := strings.CutPrefix(path, dir+"/"); is {
			return rest
		}
	}
	return "it"
}

// climbs tells whether one of the directories is above a process's, also where
// the process sees it at another path.
func (p *holder) climbs(link string) bool {
	fd, err := unix.Open(link, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	var last inode
	for range maxClimb {
		if err != nil {
			return false
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err != nil {
			break
		}
		here := inode{uint64(st.Dev), st.Ino} //nolint:unconvert // narrower on other systems
		if slices.Contains(p.ids, here) {
			_ = unix.Close(fd)
			return true
		}
		if here == last {
			break
		}
		last = here
		up, upErr := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		fd, err = up, upErr
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return false
}

// matters tells of a process that cannot be looked at how old it is, and whether it
// could hold anything. One that began before the workspace was made, as agents for
// keys do, does not go there by itself.
func (p *holder) matters(pid int, made time.Time) (age time.Duration, matters bool) {
	if uid, known := p.owner(); !known || uid != os.Getuid() {
		return 0, false
	}
	seen, there := proctree.Of(pid)
	if !there || seen.Zombie {
		return 0, false
	}
	age, known := ageOf(seen)
	return age, !known || time.Now().Add(-age).After(made)
}

// ageOf is more than settling where it cannot be told.
func ageOf(p proctree.Process) (age time.Duration, known bool) {
	now := process.SinceBoot()
	if now == 0 {
		return settling + 1, false
	}
	return now - time.Duration(p.Start)*(time.Second/ticks), true //nolint:gosec // a time since boot
}

// owner returns the real user of the process, who may be seen by everybody.
func (p *holder) owner() (int, bool) {
	raw, err := os.ReadFile(p.at + "/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, "Uid:"); is {
			if fields := strings.Fields(rest); len(fields) > 0 {
				uid, err := strconv.Atoi(fields[0])
				return uid, err == nil
			}
		}
	}
	return 0, false
}

func (p *holder) name() string {
	raw, err := os.ReadFile(filepath.Join(p.at, "comm"))
	if err != nil {
		return "ended"
	}
	return printable(string(raw))
}
