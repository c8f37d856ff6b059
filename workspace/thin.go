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
	out, err := w.git.run(ctx, repo.in("for-each-ref", "--format=%(refname) %(objectname)", prefix))
	if err != nil {
		return nil, failed("list the snapshots", err)
	}
	var found []numberedRef
	for line := range strings.Lines(string(out)) {
		name, id, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
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

// DropSnapshots drops the snapshots of runs and those that were taken on demand
// of a workspace: to be called when they can be asked for no more. One that is
// replaced meanwhile stays, and all with it.
func (w *Workspaces) DropSnapshots(ctx context.Context, ws caisson.Workspace, runs ...caisson.RunID) error {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return err
	}
	prefixes := []string{demandPrefix(ws)}
	for _, run := range append([]caisson.RunID{ws.Run}, runs...) {
		if prefix := turnPrefix(run); run != "" && isRefName(prefix+"1") && !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	var updates []refUpdate
	for _, prefix := range prefixes {
		kept, err := w.numbered(ctx, repo, prefix)
		if err != nil {
			return err
		}
		for _, k := range kept {
			updates = append(updates, refUpdate{k.name, absent, k.id})
		}
	}
	if err := w.updateRefs(ctx, repo, "", updates...); err != nil {
		return failed("drop the snapshots", err)
	}
	return nil
}
