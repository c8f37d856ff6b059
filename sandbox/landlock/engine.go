//go:build linux

// Package landlock is the engine for hosts that let nobody make namespaces: a
// guest that restricts itself with Landlock and a system-call filter, in the
// host's own file tree, network and list of processes.
//
// What it promises: programs inside read and write only the files that a box of
// any engine has, make no socket of any kind, gain no privilege, cannot signal
// the host, the guest or each other's commands (Linux 6.12), and end with the
// sandbox.
//
// What it does not promise, and reports: that other processes are not seen, nor
// names, sizes and times of files; that a program which the guest has lost (the
// guest was killed, and no cgroup holds it) is ended; that /tmp is bounded. A
// path cannot be shown in the place of another one, so that the workspace's own
// .git can be changed from inside. As root it runs as root without
// capabilities: only Landlock keeps it from root's files. Landlock has no right
// for the modes and times of files: those of the caller's own can be changed
// wherever they lie, which as root is all of the system's. Programs inside have no
// terminals, no loopback and no POSIX shared memory.
package landlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// Name is the engine's name in settings and records.
const Name = "landlock"

// Options of an engine.
type Options struct {
	// Guest returns the guest program. It is called once, at the first use.
	Guest func() ([]byte, error)
	// Instance is this process, for records.
	Instance caisson.InstanceID
	// Dir is where private directories of sandboxes are made; it is made where
	// it is missing, and must be this user's alone.
	Dir string
}

// Engine implements caisson.Engine. Close it when its sandboxes have ended.
type Engine struct {
	opts    Options
	program *layout.Program

	mu     sync.Mutex
	probed *probe
	groups *process.Cgroups
}

type probe struct {
	isolation caisson.Isolation
	err       error
}

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	return &Engine{opts: opts, program: layout.NewProgram(Name, opts.Guest)}
}

// Name implements caisson.Engine.
func (e *Engine) Name() string { return Name }

// Probe implements caisson.Engine: it opens a box without a workspace and
// closes it. What it found holds for the life of the process.
func (e *Engine) Probe(ctx context.Context) (caisson.Isolation, error) {
	e.mu.Lock()
	known := e.probed
	e.mu.Unlock()
	if known != nil {
		return known.isolation, known.err
	}
	found := &probe{}
	box, err := e.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err == nil {
		found.isolation, err = box.Isolation(), box.Close()
	}
	if ctx.Err() != nil {
		return caisson.Isolation{}, caisson.Errorf(caisson.CodeCancelled, "cancelled while probing: %w", context.Cause(ctx))
	}
	found.err = err
	e.mu.Lock()
	e.probed = found
	e.mu.Unlock()
	return found.isolation, err
}

// Sweep implements caisson.Engine. What a guest that was killed has left is
// found by the sandbox's cgroup, where there is one.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	if _, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID}); err != nil {
		return err
	}
	groups, err := e.cgroups()
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "look for cgroups: %w", err)
	}
	if err := layout.Sweep(ctx, groups, record); err != nil {
		return err
	}
	return e.removeDir(record.ID)
}

// Remnants implements caisson.Engine.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	groups, err := e.cgroups()
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	found, err := layout.Residue{Engine: Name, Groups: groups, Tree: true}.Remnants(ctx)
	dirs, dirErr := e.dirs()
	return append(found, dirs...), errors.Join(err, dirErr)
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error {
	groups, err := e.cgroups()
	if err != nil {
		return fmt.Errorf("look for cgroups: %w", err)
	}
	errs := []error{layout.Residue{Engine: Name, Groups: groups, Tree: true}.Tidy(ctx)}
	dirs, err := e.dirs()
	errs = append(errs, err)
	for _, d := range dirs {
		if !d.Live {
			errs = append(errs, e.removeDir(d.Sandbox))
		}
	}
	return errors.Join(errs...)
}

// cgroups returns those of this process, found at the first use.
func (e *Engine) cgroups() (*process.Cgroups, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.groups == nil {
		found, err := process.FindCgroups()
		if err != nil {
			return nil, err
		}
		e.groups = found
	}
	return e.groups, nil
}

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error { return e.program.Close() }
