package host

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/workspace"
)

// openEngines returns the engines of this system, strongest first.
func (h *Host) openEngines() []caisson.Engine {
	engines := []caisson.Engine{
		namespace.New(namespace.Options{Guest: h.guest}),
		bubblewrap.New(bubblewrap.Options{Guest: h.guest}),
	}
	for _, name := range container.Names(runtime.GOOS) {
		engines = append(engines, h.containerEngine(name))
	}
	return append(engines, landlock.New(landlock.Options{Guest: h.guest, Dir: filepath.Join(h.Paths.State, "landlock")}))
}

// containerEngine returns a container engine, as the user set it up.
func (h *Host) containerEngine(name string) *container.Engine {
	return container.New(container.Options{
		Name: name, Guest: h.guest, StateDir: h.Paths.State, Env: h.env, Images: imagesOf(h.Config), Notice: h.notice,
	})
}

func imagesOf(c config.Config) container.Images {
	return container.Images{Image: c.Containers.Image, Base: c.Containers.Base, Refresh: c.Containers.Refresh}
}

func (h *Host) engine(name string) (caisson.Engine, error) {
	for _, e := range h.engines {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, sandbox.Unsupported(name, names(h.engines))
}

// openBox opens a box of an engine, which follows the settings as they are now:
// this process may have begun under others.
func (h *Host) openBox(ctx context.Context, engine caisson.Engine, c config.Config, spec caisson.SandboxSpec) (caisson.Sandbox, error) {
	if made, is := engine.(*container.Engine); is {
		made.Use(imagesOf(c))
	}
	return engine.Open(ctx, spec)
}

// boxSpec says what boundary a run gets.
func (h *Host) boxSpec(c config.Config, run caisson.RunSpec, ws *caisson.Workspace, env func(string) string) caisson.SandboxSpec {
	spec := caisson.SandboxSpec{
		ID: caisson.NewSandboxID(), Limits: run.Limits, Require: run.Require, Mounts: slices.Clone(c.Mounts),
		Ptrace: c.Ptrace, Hide: slices.Clone(run.Hide),
	}
	for _, pattern := range c.Hide { // also what was hidden since the run began
		if !slices.Contains(spec.Hide, pattern) {
			spec.Hide = append(spec.Hide, pattern)
		}
	}
	lendCaches(&spec, c.Caches, env)
	for _, name := range run.Env {
		if value := env(name); value != "" {
			spec.Env = append(spec.Env, name+"="+value)
		}
	}
	if ws != nil {
		spec.ReadOnly = run.ReadOnly
		spec.Workspace, spec.GitCover, spec.GitDir = ws.Path, ws.Cover, ws.Shadow
		lent := workspace.Lend(*ws)
		spec.GitObjects, spec.GitTrees, spec.Home = lent.Objects, lent.Trees, ws.Home
	}
	return spec
}

// lookLimits are those of a look: it is short, and a person waits for it, so that
// it has the processor too which the default leaves to that person.
func lookLimits(c config.Config) caisson.Limits {
	limits := c.Limits
	if c.Origin("limits.cpus") == config.Default {
		limits.CPUs = int64(runtime.NumCPU())
	}
	return limits
}

// boxFor opens a small box around a workspace, for a look at its tree outside
// of a run, under the user's settings as they are now. It ends with this process.
func (h *Host) boxFor(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) {
	c, err := h.configWith(repoFiles{})
	if err != nil {
		return nil, err
	}
	engine, look := h.engines[0], caisson.RunSpec{Limits: lookLimits(c)}
	if ws.Run == "" { // a task's
		if engine, _, err = sandbox.Choose(ctx, h.engines, c.Engine, c.Require); err != nil {
			return nil, err
		}
	} else if run, err := h.Ledger.Run(ctx, ws.Run); err == nil {
		look.Hide = run.Spec.Hide // git inside runs what the run has set up
		if e, err := h.engine(run.Spec.Engine); err == nil {
			engine = e
		}
	}
	if err := h.workspaces.Check(ctx, ws); err != nil { // nothing else is lent to a box
		return nil, err
	}
	return h.openBox(ctx, engine, c, h.boxSpec(c, look, &ws, h.env))
}
