package host

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/scratch"
)

// mountRemains lists mounts of this mount namespace below our directories.
// Engines mount only where nobody but the box sees it, and so none of them is
// ours for certain: a person may keep the workspaces on a disk of their own.
func (h *Host) mountRemains(context.Context) ([]remain, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []remain
	for line := range strings.Lines(string(raw)) { // format: proc(5)
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := octal.ReplaceAllStringFunc(fields[4], func(s string) string {
			n, _ := strconv.ParseUint(s[1:], 8, 8) // three octal digits
			return string([]byte{byte(n)})
		})
		if below(at, h.Paths.State) || below(at, h.Paths.Runtime) {
			found = append(found, remain{Remnant: caisson.Remnant{Kind: "mount", Name: at, Live: true, Why: "no engine mounts here: it is a person's"}})
		}
	}
	return found, nil
}

var octal = regexp.MustCompile(`\\[0-3][0-7]{2}`)

func below(path, dir string) bool { return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }

// fileRemains lists what is in the directories of state and runtime that a
// process which was ended in the middle of its work can have left. Never looked
// at is what an agent writes: trees, shadows and homes.
func (h *Host) fileRemains(ctx context.Context) ([]remain, error) {
	var found []remain
	dirs := []string{h.Paths.State, filepath.Join(h.Paths.State, "making"), h.Paths.Spill(), h.Paths.Instances()}
	if h.Paths.Runtime != h.Paths.State {
		dirs = append(dirs, h.Paths.Runtime)
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		for _, entry := range entries {
			if r, is := fileRemain(filepath.Join(dir, entry.Name()), entry); is {
				found = append(found, r)
			}
		}
	}
	spills, err := h.spillRemains(ctx)
	return append(found, spills...), err
}

// fileRemain looks at a file that was not written to its end, or at a socket.
func fileRemain(path string, entry fs.DirEntry) (remain, bool) {
	info, err := entry.Info()
	if err != nil {
		return remain{}, false // gone meanwhile
	}
	old := time.Since(info.ModTime()) > young
	r := remain{Remnant: caisson.Remnant{Kind: "file", Name: path, Live: true}, remove: func(context.Context) error { return atomicfile.RemoveIfThere(path) }}
	switch {
	case info.Mode().IsRegular() && atomicfile.IsTemporary(entry.Name()):
		r.Why = "it may be being written"
		if old {
			r.Live, r.Why = false, "nobody writes a file for so long"
		}
	case info.Mode()&fs.ModeSocket != 0:
		r.Kind = "socket"
		switch answered, err := answers(path); {
		case err != nil:
			r.Why = "whether a process listens cannot be told: " + err.Error()
		case answered:
			r.Why = "a process listens"
		case old:
			r.Live, r.Why = false, "no process listens"
		default:
			r.Why = "no process listens yet"
		}
	default:
		return r, false
	}
	return r, true
}

// answers tells whether a process listens on a socket of the file system, which
// the kernel says to who connects, also where the process is in another network
// namespace.
func answers(path string) (bool, error) {
	conn, err := net.DialTimeout("unix", path, time.Second) //nolint:noctx // it is answered by the kernel at once
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, unix.ECONNREFUSED):
		return false, nil
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.EAGAIN): // of another type; with a full queue
		return true, nil
	}
	return false, err
}

// spillRemains lists the outputs of runs. Those of a run that is not on record
// can be read by nobody.
func (h *Host) spillRemains(ctx context.Context) ([]remain, error) {
	entries, err := os.ReadDir(h.Paths.Spill())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []remain
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || time.Since(info.ModTime()) < young {
			continue
		}
		path := filepath.Join(h.Paths.Spill(), entry.Name())
		if _, err := h.Ledger.Run(ctx, caisson.RunID(entry.Name())); caisson.CodeOf(err) != caisson.CodeNotFound {
			continue // of a run, or not known
		}
		found = append(found, remain{
			Remnant: caisson.Remnant{Kind: "directory", Name: path, Why: "there is no run " + entry.Name()},
			remove:  func(context.Context) error { return os.RemoveAll(path) },
		})
	}
	return found, err
}

// scratchRemains lists the scratch directories of commands.
func (h *Host) scratchRemains(context.Context) ([]remain, error) {
	all, err := scratch.All()
	var found []remain
	for _, d := range all {
		r := remain{Remnant: caisson.Remnant{Kind: "directory", Name: d.Path, Live: true}, remove: func(context.Context) error { return scratch.Remove(d.Path) }}
		switch d.Holder {
		case caisson.Alive:
			r.Why = "the command that made it holds it"
		case caisson.Dead:
			r.Live, r.Why = false, "the command that made it has ended"
		case caisson.LivenessUnknown:
			r.Why = "it may be in the making"
		}
		found = append(found, r)
	}
	return found, err
}
