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

	"github.com/caisson-run/caisson"
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
	residue layout.Residue
	probe   layout.Probe
}

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	return &Engine{opts: opts, program: layout.NewProgram(Name, opts.Guest), residue: layout.Residue{Engine: Name, Tree: true}}
}

// Name implements caisson.Engine.
func (e *Engine) Name() string { return Name }

// Probe implements caisson.Engine: it opens a box without a workspace and
// closes it. What it found holds for the life of the process.
func (e *Engine) Probe(ctx context.Context) (caisson.Isolation, error) {
	return e.probe.Of(ctx, e.Open)
}

// Sweep implements caisson.Engine. What a guest that was killed has left is
// found by the sandbox's cgroup, where there is one.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	if err := e.residue.Sweep(ctx, record); err != nil {
		return err
	}
	return e.removeDir(record.ID)
}

// Remnants implements caisson.Engine.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	found, err := e.residue.Remnants(ctx)
	dirs, dirErr := e.dirs()
	return append(found, dirs...), errors.Join(err, dirErr)
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error {
	errs := []error{e.residue.Tidy(ctx)}
	dirs, err := e.dirs()
	errs = append(errs, err)
	for _, d := range dirs {
		if !d.Live {
			errs = append(errs, e.removeDir(d.Sandbox))
		}
	}
	return errors.Join(errs...)
}

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error { return e.program.Close() }
