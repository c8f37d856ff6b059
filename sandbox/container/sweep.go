package container

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// Sweep implements caisson.Engine. That there is no such container is believed
// only of the instance of the engine that the record, or the directory of the
// box, names: another one that answers at the same place is CodeEngineUnavailable,
// and so is one that does not answer. Where neither names any, the process that
// made the box ended before it had spoken to an engine.
func (e *Engine) Sweep(ctx context.Context, record caisson.SandboxRecord) error {
	spec, err := sandbox.Check(caisson.SandboxSpec{ID: record.ID})
	if err != nil {
		return err
	}
	l, held := take(e.boxDir(spec.ID), false)
	if held {
		return e.sweepHeld(ctx, record)
	}
	l.id = spec.ID
	if record.EngineInstance != "" && l.note.Instance == "" {
		l.note.Instance = record.EngineInstance
	}
	if l.note.Instance == "" {
		return l.remove()
	}
	return e.sweepLeft(ctx, l, record.Guest)
}

// sweepHeld ends the box of a process that lives, for example one that hangs:
// it removes the directory by itself.
func (e *Engine) sweepHeld(ctx context.Context, record caisson.SandboxRecord) error {
	l := &left{id: record.ID, note: note{Instance: record.EngineInstance}}
	_, err := e.end(ctx, l, record.Guest)
	return err
}

// sweepLeft ends the box of a process that has ended, and removes its directory.
// Where there is no container yet, the directory stays while one may still come.
func (e *Engine) sweepLeft(ctx context.Context, l *left, root *caisson.ProcessIdentity) error {
	there, err := e.end(ctx, l, root)
	if err != nil || !there && l.awaited() {
		return errors.Join(err, l.unmount(), l.lock.Close())
	}
	return l.remove()
}

// end removes the container of a box at the instance that made it. It tells
// whether there was one.
func (e *Engine) end(ctx context.Context, l *left, root *caisson.ProcessIdentity) (there bool, _ error) {
	cli, err := e.dial()
	if err != nil {
		return false, err
	}
	info, err := e.info(ctx, cli)
	if err != nil {
		if root != nil && sharesKernel(root.Boot) {
			err = errors.Join(err, kill(ctx, *root)) // it needs no engine to end what runs
		}
		return false, err
	}
	if now := e.instance(info); now != l.note.Instance {
		return false, e.another(l, now)
	}
	ctx, cancel := bound(ctx, endBound)
	defer cancel()
	there, err = e.removeContainer(ctx, cli, namePrefix+string(l.id))
	if err != nil {
		return there, err
	}
	containers, err := e.ours(ctx)
	if renamed, other := containers[l.id]; err == nil && other {
		there = true
		_, err = e.removeContainer(ctx, cli, renamed) // somebody gave it another name
	}
	if err != nil {
		return there, err
	}
	if root != nil && sharesKernel(root.Boot) {
		return there, ended(ctx, *root)
	}
	return there, nil
}

// another says that an engine answers which the box of a directory is not of.
func (e *Engine) another(l *left, now string) error {
	return e.unavailable("sandbox %s is of the engine %q, and %q answers", l.id, l.note.Instance, now).
		WithHint("Start the engine that it was made with; this one cannot tell whether it is gone.")
}

// tidyBound limits a look at an engine before a command begins its work.
const tidyBound = 3 * time.Second

// Tidy removes what is left of boxes whose makers have ended, on record or not.
// A directory without a container it leaves for a minute, for a later look: an
// engine goes on making a container when who asked for it was killed.
// It speaks to the engine only where there is such a directory.
func (e *Engine) Tidy(ctx context.Context) error {
	ctx, cancel := bound(ctx, tidyBound)
	defer cancel()
	gone, _, err := e.boxDirs(ctx, false)
	errs := []error{err}
	for _, l := range gone {
		if l.note.Instance == "" {
			errs = append(errs, l.remove()) // the engine had not heard of it yet
			continue
		}
		errs = append(errs, e.sweepLeft(ctx, l, nil))
	}
	return errors.Join(errs...)
}
