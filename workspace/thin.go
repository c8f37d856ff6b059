package workspace

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
)

const (
	// keepLast is how many of the latest snapshots are all kept.
	keepLast = 20
	// keepEach is of how many older ones one is kept: that with a number which
	// it divides.
	keepEach = 10
)

// thinned returns those of rising numbers whose snapshots are dropped.
func thinned(numbers []int) []int {
	var drop []int
	for i, n := range numbers {
		if i < len(numbers)-keepLast && n%keepEach != 0 {
			drop = append(drop, n)
		}
	}
	return drop
}

// numberedRef is a reference whose last part is a number.
type numberedRef struct {
	n        int
	name, id string
}

// numbered lists the references prefix/<number>, rising.
func (w *Workspaces) numbered(ctx context.Context, repo *repository, prefix string) ([]numberedRef, error) {
	pins, err := w.pins(ctx, repo, prefix)
	if err != nil {
		return nil, err
	}
	var found []numberedRef
	for name, id := range pins {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, prefix)); err == nil {
			found = append(found, numberedRef{n, name, id})
		}
	}
	slices.SortFunc(found, func(a, b numberedRef) int { return cmp.Compare(a.n, b.n) })
	return found, nil
}

// thin drops old snapshots below prefix. Where that does not succeed they stay,
// and go with the next snapshot: it is no reason to do without this one.
func (w *Workspaces) thin(ctx context.Context, repo *repository, prefix string) {
	kept, err := w.numbered(ctx, repo, prefix)
	if err != nil {
		return
	}
	numbers := make([]int, len(kept))
	for i, k := range kept {
		numbers[i] = k.n
	}
	drop := thinned(numbers)
	var updates []refUpdate
	for _, k := range kept {
		if slices.Contains(drop, k.n) {
			updates = append(updates, refUpdate{k.name, absent, k.id})
		}
	}
	_ = w.updateRefs(ctx, repo, "", updates...)
}

// DropSnapshots drops the snapshots of a workspace, and of the runs that worked
// in it: to be called when they can be asked for no more. One that is replaced
// meanwhile stays, and all with it.
func (w *Workspaces) DropSnapshots(ctx context.Context, ws caisson.Workspace) error {
	ours := map[caisson.RunID]bool{"": true, ws.Run: true}
	err := w.dropFrom(ctx, ws, func(name string) (bool, error) {
		rest, of := strings.CutPrefix(name, runRefs)
		text, _, _ := strings.Cut(rest, "/")
		run := caisson.RunID(text)
		if !of {
			run = ""
		}
		if _, asked := ours[run]; !asked {
			r, err := w.opts.Ledger.Run(ctx, run)
			if err != nil && caisson.CodeOf(err) != caisson.CodeNotFound {
				return false, err
			}
			ours[run] = err == nil && r.Spec.Workspace == ws.ID
		}
		return ours[run], nil
	}, demandPrefix(ws), runRefs)
	if err != nil {
		return failed("drop the snapshots", err)
	}
	return nil
}
