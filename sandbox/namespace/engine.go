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
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
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
	opts   Options
	cloner process.Cloner

	mu      sync.Mutex
	program *os.File // sealed copy of the guest
	idmaps  map[owner]*os.File
	probed  *probe
	groups  *process.Cgroups
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

// Tidy removes the cgroups of this user's boxes whose makers have ended.
func (e *Engine) Tidy(ctx context.Context) error {
	groups, err := e.cgroups()
	if err != nil {
		return err
	}
	return groups.Tidy(ctx)
}

// owner is who owns a file on disk.
type owner struct{ uid, gid uint32 }

// New returns an engine; it touches nothing.
func New(opts Options) *Engine { return &Engine{opts: opts, idmaps: map[owner]*os.File{}} }

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

// Close releases what the engine keeps between sandboxes.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.idmaps {
		f.Close()
	}
	clear(e.idmaps)
	if e.program != nil {
		e.program.Close()
		e.program = nil
	}
	return nil
}

// guest returns the guest program as a file of memory that nobody can change
// any more, whoever gets hold of it.
func (e *Engine) guest() (*os.File, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.program != nil {
		return e.program, nil
	}
	if e.opts.Guest == nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "the guest program is not there")
	}
	raw, err := e.opts.Guest()
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	file, err := seal(raw)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "keep guest program: %w", err)
	}
	e.program = file
	return file, nil
}

func seal(program []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("caisson-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { //nolint:errorlint // a kernel before 6.3 knows no MFD_EXEC and needs none
		fd, err = unix.MemfdCreate("caisson-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, process.FirstFreeFD)
	unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("move descriptor: %w", err)
	}
	file := os.NewFile(uintptr(high), "caisson-guest")
	if _, err = file.Write(program); err == nil {
		_, err = unix.FcntlInt(uintptr(high), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("seal memory file: %w", err)
	}
	return file, nil
}
