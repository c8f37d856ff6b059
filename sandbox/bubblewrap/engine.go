//go:build linux

// Package bubblewrap is the engine for hosts that let bwrap make namespaces and
// nobody else: bwrap makes the namespaces and mounts, and our guest, as the
// first process in them, adds Landlock and the system-call filter, and proves
// the box before it serves.
//
// What it promises: the same inside as the built-in engine; the program is one
// that only root can change, found at fixed places and nowhere else, run with an
// empty environment and nothing of the box in its argument list; nothing runs
// inside before this process knows, and has proved, what to end; all of it ends
// when this process does. As root, the box still runs as an unprivileged user:
// what it may use is made ready in a mount namespace of its own, then bwrap is
// started as that user.
//
// What it does not promise: that bwrap and the kernel have no faults. A mount
// point inside of the workspace is looked up by bwrap by path: whoever can change
// the workspace in that moment can lead it elsewhere, which the guest notices
// before anything runs, and a file or directory that is missing there may be
// made where that leads, with the rights of the box's user.
package bubblewrap

import (
	"context"
	"errors"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// Name is the engine's name in settings and records.
const Name = "bubblewrap"

// Options of an engine.
type Options struct {
	// Guest returns the guest program. It is called once, at the first use.
	Guest func() ([]byte, error)
	// Instance is this process, for records.
	Instance caisson.InstanceID

	// places are where bwrap is looked for, for tests; else the fixed ones.
	places []string
	// anyOwner lets a test use a wrapper that is not root's.
	anyOwner bool
}

// Engine implements caisson.Engine. Close it when its sandboxes have ended.
type Engine struct {
	opts    Options
	program *layout.Program
	lender  *layout.Lender
	residue layout.Residue

	mu      sync.Mutex
	wrapper *wrapper
}

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	program := layout.NewProgram(Name, opts.Guest)
	return &Engine{
		opts: opts, program: program, lender: layout.NewLender(program),
		residue: layout.Residue{Engine: Name, Held: []int{plan.ProgramFD}},
	}
}

// Name implements caisson.Engine.
func (e *Engine) Name() string { return Name }

// Probe implements caisson.Engine: it opens a box without a workspace, which
// proves itself, and closes it. What it found holds for as long as bwrap is the
// same file with the same content.
func (e *Engine) Probe(ctx context.Context) (caisson.Isolation, error) {
	w, err := e.pinned()
	if err != nil {
		return caisson.Isolation{}, err
	}
	return w.probe.Of(ctx, func(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
		return e.open(ctx, w, spec)
	})
}

// Open implements caisson.Engine.
func (e *Engine) Open(ctx context.Context, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	w, err := e.pinned()
	if err != nil {
		return nil, err
	}
	return e.open(ctx, w, spec)
}

// Sweep implements caisson.Engine.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	return e.residue.Sweep(ctx, record)
}

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error {
	e.mu.Lock()
	w := e.wrapper
	e.wrapper = nil
	e.mu.Unlock()
	var err error
	if w != nil {
		err = w.file.Close()
	}
	return errors.Join(err, e.lender.Close(), e.program.Close())
}

// Remnants implements caisson.Engine.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	return e.residue.Remnants(ctx)
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error { return e.residue.Tidy(ctx) }
