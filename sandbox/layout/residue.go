//go:build linux

package layout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
)

// remain is a remnant and how it is removed where nobody holds it.
type remain struct {
	caisson.Remnant
	remove func(context.Context) error
}

// Residue knows the cgroups in which an engine's boxes are made, and finds and
// removes what is left of boxes. Safe for concurrent use.
type Residue struct {
	Engine string
	// Held are descriptors at which a wrapper has the guest program.
	Held []int
	// Tree: a guest's end is not the end of all that it has started.
	Tree bool

	mu     sync.Mutex
	groups *process.Cgroups
}

// Cgroups returns those of this process, found at the first use; nil with the
// reason where they cannot be.
func (f *Residue) Cgroups() (*process.Cgroups, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups == nil {
		found, err := process.FindCgroups()
		if err != nil {
			return nil, caisson.Errorf(caisson.CodeInternal, "look for cgroups: %w", err)
		}
		f.groups = found
	}
	return f.groups, nil
}

// Sweep ends and removes what an ended process of ours left of one box. A
// process is ended only where its identity is proved, or where it is in a cgroup
// that bears the sandbox's id.
func (f *Residue) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	groups, err := f.Cgroups()
	if err != nil {
		return err
	}
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID})
	if err != nil {
		return err
	}
	if record.Guest != nil {
		if err := endGuest(ctx, *record.Guest); err != nil {
			return err
		}
	}
	return groups.End(ctx, spec.ID, record.Leftovers)
}

// Remnants lists what exists of this user's boxes: guests, wrappers, and
// cgroups, which bear no engine's name, so that each engine lists all of them.
// Mounts and network namespaces of a box are its processes' own, and end with
// the last of them.
func (f *Residue) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	remains, err := f.remains(ctx)
	var found []caisson.Remnant
	for _, r := range remains {
		found = append(found, r.Remnant)
	}
	return found, err
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (f *Residue) Tidy(ctx context.Context) error {
	remains, err := f.remains(ctx)
	errs := []error{err}
	for _, r := range remains {
		if !r.Live {
			errs = append(errs, r.remove(ctx))
		}
	}
	return errors.Join(errs...)
}

// remains lists processes first: a cgroup can be removed when they have ended.
func (f *Residue) remains(ctx context.Context) ([]remain, error) {
	guests, err := process.AllKept(ctx, ProgramName(f.Engine), f.Held...)
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
			ctx, cancel := context.WithTimeout(ctx, EndBound)
			defer cancel()
			if f.Tree {
				return g.EndTree(ctx, ProgramName(f.Engine))
			}
			return g.End(ctx, ProgramName(f.Engine))
		}
		found = append(found, r)
	}
	groups, err := f.Cgroups()
	if err != nil {
		return found, err
	}
	made, err := groupRemains(ctx, groups)
	return append(found, made...), err
}

// groupOf returns the sandbox in whose cgroup a process is.
func groupOf(pid int) caisson.SandboxID {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if id := process.GroupSandbox(filepath.Base(strings.TrimSpace(line))); id != "" {
			return id
		}
	}
	return ""
}

// groupRemains lists this user's cgroups of boxes, in every hierarchy that is
// mounted here.
func groupRemains(ctx context.Context, groups *process.Cgroups) ([]remain, error) {
	made, err := groups.Made(ctx)
	var found []remain
	for _, g := range made {
		found = append(found, remain{
			Remnant: caisson.Remnant{Kind: "cgroup", Name: g.Path, Sandbox: g.Sandbox, Live: g.Live, Why: g.Why},
			remove:  func(ctx context.Context) error { return groups.Remove(ctx, g) },
		})
	}
	return found, err
}

// endGuest ends a guest whose own end is the end of all in its box.
func endGuest(ctx context.Context, guest caisson.ProcessIdentity) error {
	ctx, cancel := context.WithTimeout(ctx, EndBound)
	defer cancel()
	guest.Cgroup = "" // a path in a record is not trusted: cgroups are found by the sandbox's name
	err := process.EndTree(ctx, guest)
	if caisson.CodeOf(err) == caisson.CodeHolderUnknown {
		return caisson.Errorf(caisson.CodeOrphanAlive, "%w", err).WithHint("Run caisson where the sandbox was opened.")
	}
	return err
}
