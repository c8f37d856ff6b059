//go:build linux

// Package namespace is the built-in engine: a box of Linux namespaces made by
// us, with nothing to install.
//
// What it promises: what runs inside sees the files it was given at the paths
// it was given, no process of the host, no network but its own loopback; it
// does not run as the kernel's root, not even when the host does; it ends, all
// of it, when this process ends or the sandbox is closed. Nothing is created on
// the host but cgroups, which Close and Sweep remove.
//
// What it does not promise: that the kernel has no faults, and limits that this
// host does not let its user set; each is reported for what it is. A socket of a
// host's server that lies in the workspace is a file that was given, and can be
// connected to.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// Name is the engine's name in settings and records.
const Name = "namespace"

// Options of an engine.
type Options struct {
	// Guest returns the guest program. It is called once, at the first use.
	Guest func() ([]byte, error)
	// Instance is this process, for records.
	Instance caisson.InstanceID
}

// Engine implements caisson.Engine. Close it when its sandboxes have ended.
type Engine struct {
	opts Options

	program *layout.Program
	lender  *layout.Lender

	mu     sync.Mutex
	probed *probe
	groups *process.Cgroups
}

type probe struct {
	isolation caisson.Isolation
	err       error
}

// cgroups returns those of this process, found at the first use; nil with the
// reason where they cannot be.
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

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	program := layout.NewProgram(Name, opts.Guest)
	return &Engine{opts: opts, program: program, lender: layout.NewLender(program)}
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

// Sweep implements caisson.Engine.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	groups, err := e.cgroups()
	if err != nil {
		return caisson.Errorf(caisson.CodeInternal, "look for cgroups: %w", err)
	}
	return layout.Sweep(ctx, groups, record)
}

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error { return errors.Join(e.lender.Close(), e.program.Close()) }

// Remnants implements caisson.Engine.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	groups, err := e.cgroups()
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	return layout.Residue{Engine: Name, Groups: groups}.Remnants(ctx)
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error {
	groups, err := e.cgroups()
	if err != nil {
		return fmt.Errorf("look for cgroups: %w", err)
	}
	return layout.Residue{Engine: Name, Groups: groups}.Tidy(ctx)
}
