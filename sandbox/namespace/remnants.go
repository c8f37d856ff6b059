//go:build linux

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// remain is a remnant and how it is removed where nobody holds it.
type remain struct {
	caisson.Remnant
	remove func(context.Context) error
}

// Remnants implements caisson.Engine: guests and cgroups. Mounts and network
// namespaces of a box are its processes' own, and end with the last of them.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	remains, err := e.remains(ctx)
	var found []caisson.Remnant
	for _, r := range remains {
		found = append(found, r.Remnant)
	}
	return found, err
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error {
	remains, err := e.remains(ctx)
	errs := []error{err}
	for _, r := range remains {
		if !r.Live {
			errs = append(errs, r.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

// remains lists processes first: a cgroup can be removed when they have ended.
func (e *Engine) remains(ctx context.Context) ([]remain, error) {
	guests, err := process.AllKept(ctx, programName)
	if err != nil {
		return nil, fmt.Errorf("look for guests: %w", err)
	}
	var found []remain
	for _, g := range guests {
		r := remain{Remnant: caisson.Remnant{Kind: "process", Name: "pid " + strconv.Itoa(g.PID), Sandbox: groupOf(g.PID), Live: true}}
		switch g.Keeper {
		case caisson.Alive:
			r.Why = "who started it lives"
		case caisson.Dead:
			r.Live, r.Why = false, "who started it has ended"
		case caisson.LivenessUnknown:
			r.Why = "whether who started it lives cannot be told"
		}
		r.remove = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, endBound)
			defer cancel()
			return g.End(ctx, programName)
		}
		found = append(found, r)
	}
	groups, err := e.groupRemains(ctx)
	return append(found, groups...), err
}

// groupOf returns the sandbox in whose cgroup a process is.
func groupOf(pid int) caisson.SandboxID {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if id, is := strings.CutPrefix(filepath.Base(strings.TrimSpace(line)), groupPrefix+"s"); is {
			return caisson.SandboxID("s" + id)
		}
	}
	return ""
}

// groupRemains lists this user's cgroups of boxes, in every hierarchy that is
// mounted here. One below another is removed before it.
func (e *Engine) groupRemains(ctx context.Context) ([]remain, error) {
	h, err := e.hierarchies()
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	var found []remain
	for _, mount := range h.mounts {
		err := filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil || !d.IsDir() {
				return nil //nolint:nilerr // a cgroup that went away meanwhile, or one that is not ours to look into
			}
			id, is := strings.CutPrefix(d.Name(), groupPrefix+"s")
			if !is {
				return nil
			}
			if r, there := groupRemain(path); there {
				r.Sandbox = caisson.SandboxID("s" + id)
				found = append(found, r)
			}
			return fs.SkipDir
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func groupRemain(dir string) (remain, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return remain{}, false // gone meanwhile, or another's
	}
	r := remain{Remnant: caisson.Remnant{Kind: "cgroup", Name: dir, Live: true}, remove: func(ctx context.Context) error { return tidyGroup(ctx, dir) }}
	switch lock, err := lockDir(dir); {
	case err == nil:
		lock.Close()
		r.Live, r.Why = false, "no process holds its lock"
	case errors.Is(err, fs.ErrNotExist):
		return r, false
	case errors.Is(err, unix.EWOULDBLOCK):
		r.Why = "the process that made it holds its lock"
	default:
		r.Why = "whether its lock is held cannot be told: " + plain(err).Error()
	}
	return r, true
}

// tidyGroup ends what is in a cgroup that nobody holds and removes it. While
// its lock is held here, nobody starts anything in it.
func tidyGroup(ctx context.Context, dir string) error {
	lock, err := lockDir(dir)
	if err != nil {
		return nil //nolint:nilerr // gone meanwhile, or in use
	}
	defer lock.Close()
	if err := emptyGroup(ctx, dir); err != nil {
		return err
	}
	return removeGroup(dir, time.Now().Add(emptyBound))
}
