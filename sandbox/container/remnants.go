package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
)

// Remnants implements caisson.Engine: the directories of boxes, and the
// containers of this state directory at the engine. An engine that was never
// used from this state directory is not spoken to.
func (e *Engine) Remnants(ctx context.Context) ([]caisson.Remnant, error) {
	if _, err := os.Stat(filepath.Join(e.dir(), e.opts.Name)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	// A directory is there before its container and after it, so that in this order
	// none is taken for nobody's that is made or removed meanwhile.
	containers, listErr := e.ours(ctx)
	gone, live, err := e.boxDirs(ctx, true)
	var found []caisson.Remnant
	held := map[caisson.SandboxID]bool{}
	for _, path := range live {
		id := caisson.SandboxID(filepath.Base(path))
		held[id] = true
		found = append(found, caisson.Remnant{Kind: "directory", Name: path, Sandbox: id, Live: true, Why: "a process holds its lock"})
	}
	now, askErr := "", listErr
	if listErr == nil && len(gone) > 0 {
		var info system.Info
		if _, info, askErr = e.meet(ctx); askErr == nil {
			now = e.instance(info)
		}
	}
	for _, l := range gone {
		r := caisson.Remnant{Kind: "directory", Name: l.dir, Sandbox: l.id, Why: "nobody holds its lock"}
		_, there := containers[l.id]
		switch {
		case askErr != nil:
		case l.note.Instance != "" && l.note.Instance != now:
			err = errors.Join(err, e.another(l, now))
		case !there && l.awaited():
			r.Live, r.Why = true, "its process was ended a moment ago; whether the engine still makes its container cannot be told yet"
		}
		found = append(found, r)
		err = errors.Join(err, l.lock.Close())
	}
	for id, name := range containers {
		r := caisson.Remnant{Kind: "container", Name: name, Sandbox: id, Live: held[id], Why: "a process holds the lock of its directory"}
		if !r.Live {
			r.Why = "no process stands for it"
		}
		found = append(found, r)
	}
	if listErr == nil {
		listErr = askErr
	}
	return found, errors.Join(err, listErr)
}

// ours lists the containers of this state directory at the engine, by sandbox. What
// somebody else runs has no sandbox, whatever labels its image gave it.
func (e *Engine) ours(ctx context.Context) (map[caisson.SandboxID]string, error) {
	cli, err := e.dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := bound(ctx, lookBound)
	defer cancel()
	found, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelOwner+"="+e.owner(), labelSandbox)})
	if err != nil {
		return nil, e.fault(ctx, "list containers", err)
	}
	out := map[caisson.SandboxID]string{}
	for _, c := range found.Items {
		out[caisson.SandboxID(c.Labels[labelSandbox])] = c.ID
	}
	return out, nil
}
