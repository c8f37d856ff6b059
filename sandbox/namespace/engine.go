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

	"github.com/caisson-run/caisson"
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
	opts    Options
	program *layout.Program
	lender  *layout.Lender
	residue layout.Residue
	probe   layout.Probe
}

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	program := layout.NewProgram(Name, opts.Guest)
	return &Engine{opts: opts, program: program, lender: layout.NewLender(program), residue: layout.Residue{Engine: Name}}
}

// Name implements caisson.Engine.
func (e *Engine) Name() string { return Name }

// Probe implements caisson.Engine: it opens a box without a workspace and
// closes it. What it found holds for the life of the process.
func (e *Engine) Probe(ctx context.Context) (caisson.Isolation, error) {
	return e.probe.Of(ctx, e.Open)
}

// Sweep implements caisson.Engine.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	return e.residue.Sweep(ctx, record)
}

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error { return errors.Join(e.lender.Close(), e.program.Close()) }

// Remnants implements caisson.Engine.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	return e.residue.Remnants(ctx)
}

// Tidy ends and removes those of Remnants that nobody holds, on record or not.
func (e *Engine) Tidy(ctx context.Context) error { return e.residue.Tidy(ctx) }
