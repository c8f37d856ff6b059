package container

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// Where a box that hides something has an empty file and an empty directory that
// nobody may read.
const (
	hiddenFile = "hidden-file"
	hiddenDir  = "hidden-dir"
	maskFile   = plan.GivenDir + "/" + hiddenFile
	maskDir    = plan.GivenDir + "/" + hiddenDir
)

// hides tells whether a spec hides anything.
func hides(spec caisson.SandboxSpec) bool { return len(spec.Hide) > 0 && spec.Workspace != "" }

// readyMasks makes what is shown in place of hidden files, and, where nothing can
// be hidden in a box that runs, finds what is to be from the start.
func (b *box) readyMasks(ctx context.Context, spec caisson.SandboxSpec) error {
	if !hides(spec) {
		return nil
	}
	var random [4]byte
	_, _ = rand.Read(random[:])                                        // it never fails
	mark := int64(binary.NativeEndian.Uint32(random[:]) & (1<<31 - 1)) // a time that every file system can keep
	if err := mask.MakeMasks(filepath.Join(b.staging.dir, hiddenFile), filepath.Join(b.staging.dir, hiddenDir), mark); err != nil {
		return caisson.Errorf(caisson.CodeWriteFailed, "make a directory for the box: %w", err)
	}
	if b.live = b.engine.live(b.info); b.live {
		return nil
	}
	var err error
	b.fixed, err = mask.Look(ctx, mask.FixedOptions{Engine: b.engine.opts.Name, Workspace: spec.Workspace, Patterns: spec.Hide, Mark: mark})
	return err
}

// showMasks puts the masks into the box, and over what was found.
func (l *plans) showMasks(dir string, spec caisson.SandboxSpec, found []mask.Match, engine string) {
	file, empty := filepath.Join(dir, hiddenFile), filepath.Join(dir, hiddenDir)
	l.bind(file, maskFile, false)
	l.bind(empty, maskDir, false)
	for _, m := range found {
		at := filepath.Join(spec.Workspace, m.Path)
		if engine == Podman && strings.ContainsAny(at, unmountable) {
			continue // that it is not hidden is seen before anything runs, and told
		}
		source := file
		if m.Dir {
			source = empty
		}
		l.bind(source, at, false)
	}
}

// hide sees to it that nothing runs in the box while what is to be hidden can be
// read.
func (b *box) hide(ctx context.Context, spec caisson.SandboxSpec) (err error) {
	b.inside = b.guest
	switch {
	case !hides(spec):
	case b.live:
		b.inside, b.unmask, err = b.maskLive(ctx, spec)
	default:
		b.unmask = b.fixed.Close
		b.inside, err = mask.Guard(ctx, b.fixed.In(b.guest), b.guest, spec.GitDir != "")
	}
	return err
}
