package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// turnPrefix begins the references of a run's snapshots.
func turnPrefix(run caisson.RunID) string { return runRefs + string(run) + "/" }

// demandPrefix begins the references of a workspace's snapshots on demand.
func demandPrefix(ws caisson.Workspace) string { return pin(ws.ID, "snapshots/") }

// turnName is what a person calls the snapshot after a turn.
func turnName(ws caisson.Workspace, run caisson.RunID, turn int) string {
	if run == ws.Run {
		return "@" + strconv.Itoa(turn)
	}
	return "@" + string(run) + "/" + strconv.Itoa(turn)
}

// takeNow takes a snapshot on demand, under the next number.
func (t *treeLook) takeNow(ctx context.Context, why string) (Snapshot, error) {
	snap, err := t.pinTree(ctx, why)
	if err != nil {
		return snap, err
	}
	return snap, t.counted(ctx)
}

// counted has the snapshot that was pinned count as the last one, beside which old
// ones are thinned.
func (t *treeLook) counted(ctx context.Context) error {
	t.thin(ctx, demandPrefix(t.ws))
	return t.note()
}

// pinTree is takeNow of a snapshot that does not count yet: unpin takes it back.
func (t *treeLook) pinTree(ctx context.Context, why string) (Snapshot, error) {
	snap, err := t.take(ctx, why)
	if err != nil {
		return snap, err
	}
	if !snap.Changed { // when and why it was asked for is told all the same
		var on []string
		if isObjectID(t.seen.Snapshot.Head) {
			on = []string{t.seen.Snapshot.Head}
		}
		if snap.Commit, err = t.made(ctx, snap.Commit+"^{tree}", why, on...); err != nil {
			return snap, err
		}
	}
	if snap.Ref, snap.Name, err = t.pinNow(ctx, snap.Commit); err != nil {
		return snap, err
	}
	return snap, t.keepModules(ctx, snap.Ref, why, &snap)
}

// unpin takes a snapshot back, with what is kept of submodules.
func (t *treeLook) unpin(ctx context.Context, ref string) error {
	repos := []*repository{t.repo}
	for _, m := range madeModules(t.ws) {
		if repo, err := t.w.repositoryOf(ctx, m); err == nil { // else nothing of it was kept
			repos = append(repos, repo)
		}
	}
	for _, repo := range repos {
		pins, err := t.w.pins(ctx, repo, ref)
		if id := pins[ref]; err == nil && id != "" {
			err = t.w.updateRefs(ctx, repo, "", refUpdate{ref, absent, id})
		}
		if err != nil {
			return failed("take back a snapshot", err)
		}
	}
	return nil
}

// pinNow keeps a commit as a snapshot on demand.
func (t *treeLook) pinNow(ctx context.Context, commit string) (ref, name string, err error) {
	prefix := demandPrefix(t.ws)
	kept, err := t.w.numbered(ctx, t.repo, prefix)
	if err != nil {
		return "", "", err
	}
	n := 1
	if len(kept) > 0 {
		n = kept[len(kept)-1].n + 1
	}
	ref = prefix + strconv.Itoa(n)
	if err := t.w.updateRefs(ctx, t.repo, "", refUpdate{ref, commit, absent}); err != nil {
		return "", "", failed("keep the snapshot", err)
	}
	return ref, "@s" + strconv.Itoa(n), nil
}

// keep keeps a snapshot under ref. Another one that is there is kept on demand.
func (t *treeLook) keep(ctx context.Context, ref, commit string) error {
	w := t.w
	err := w.updateRefs(ctx, t.repo, "", refUpdate{ref, commit, absent})
	if err == nil {
		return nil
	}
	old, lookErr := w.git.line(ctx, t.repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", ref))
	if lookErr != nil {
		return failed("keep the snapshot", err)
	}
	if old == commit {
		return nil
	}
	moved, _, err := t.pinNow(ctx, old)
	if err != nil {
		return err
	}
	if err := t.moveModules(ctx, ref, moved); err != nil {
		return err
	}
	if err := w.updateRefs(ctx, t.repo, "", refUpdate{ref, commit, old}); err != nil {
		return failed("keep the snapshot", err)
	}
	return nil
}

// Kept is a snapshot that is there.
type Kept struct {
	Name    string        `json:"name"` // as of Snapshot
	Run     caisson.RunID `json:"run,omitempty"`
	Turn    int           `json:"turn,omitempty"`
	Commit  string        `json:"commit"`
	On      string        `json:"on,omitempty"` // commit that was checked out inside
	Time    time.Time     `json:"time"`         // when the tree was first seen so
	Why     string        `json:"why,omitempty"`
	Changes []Change      `json:"changes"` // since the snapshot before it in the list; of the first one, since the base

	// Without are the submodules of which it holds no files.
	Without []string `json:"without,omitempty"`

	number    int
	tree, ref string
}

// Change is a file that differs.
type Change struct {
	Kind string        `json:"kind"` // added, changed, removed
	Path caisson.Bytes `json:"path"`
}

// Snapshots lists the snapshots of a workspace and of the runs that worked in
// it, oldest first. Times are what boxes said.
func (w *Workspaces) Snapshots(ctx context.Context, ws caisson.Workspace, runs ...caisson.RunID) ([]Kept, error) {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return nil, err
	}
	kept, err := w.kept(ctx, repo, ws, runs)
	if err != nil {
		return nil, err
	}
	before, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--end-of-options", ws.Base+"^{tree}"))
	if err != nil {
		return nil, failed("look at the base", err)
	}
	for i := range kept {
		if kept[i].Changes, err = w.changes(ctx, repo, before, kept[i].tree); err != nil {
			return nil, err
		}
		before = kept[i].tree
	}
	return kept, w.addModules(ctx, ws, kept)
}

func (w *Workspaces) kept(ctx context.Context, repo *repository, ws caisson.Workspace, runs []caisson.RunID) ([]Kept, error) {
	args := []string{"for-each-ref", "--format=%(refname) %(objectname) %(tree) %(committerdate:unix) %(parent)%00%(subject)%00", demandPrefix(ws)}
	for _, run := range slices.Compact(append([]caisson.RunID{ws.Run}, runs...)) {
		if run != "" {
			args = append(args, turnPrefix(run))
		}
	}
	out, err := w.git.run(ctx, repo.in(args...))
	if err != nil {
		return nil, failed("list the snapshots", err)
	}
	items := strings.Split(string(out), "\x00")
	var all []Kept
	for i := 0; i+1 < len(items); i += 2 {
		f := strings.Fields(items[i])
		if len(f) < 4 {
			continue
		}
		k := Kept{Commit: f[1], tree: f[2], ref: f[0]}
		seconds, _ := strconv.ParseInt(f[3], 10, 64) // what a box says
		k.Time = time.Unix(seconds, 0).UTC()
		if len(f) > 4 {
			k.On = f[4]
		}
		if k.place(ws, f[0]) && !slices.ContainsFunc(all, func(other Kept) bool { return other.Name == k.Name }) {
			if k.Turn == 0 && k.Run == "" {
				k.Why = items[i+1]
			}
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b Kept) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Run, b.Run), cmp.Compare(a.number, b.number))
	})
	return all, nil
}

// place says of which run and turn a reference is.
func (k *Kept) place(ws caisson.Workspace, ref string) bool {
	if rest, is := strings.CutPrefix(ref, demandPrefix(ws)); is {
		n, err := strconv.Atoi(rest)
		k.number, k.Name = n, "@s"+rest
		return err == nil
	}
	run, turn, _ := strings.Cut(strings.TrimPrefix(ref, runRefs), "/")
	n, err := strconv.Atoi(turn)
	k.Run, k.Turn, k.number = caisson.RunID(run), n, n
	k.Name = turnName(ws, k.Run, n)
	return err == nil
}

// changes lists which files differ between two trees.
func (w *Workspaces) changes(ctx context.Context, repo *repository, from, to string) ([]Change, error) {
	entries, err := w.differences(ctx, repo, from, to)
	changes := make([]Change, 0, len(entries))
	for _, e := range entries {
		kind := "changed"
		switch {
		case e.oldMode == noMode:
			kind = "added"
		case e.mode == noMode:
			kind = "removed"
		}
		changes = append(changes, Change{kind, caisson.Bytes(e.path)})
	}
	return changes, err
}

// modes of tree entries.
const (
	noMode  = "000000"
	gitlink = "160000"
)

// difference is an entry that differs between two trees.
type difference struct{ oldMode, mode, oldID, id, path string }

func (w *Workspaces) differences(ctx context.Context, repo *repository, from, to string, paths ...string) ([]difference, error) {
	if from == to {
		return nil, nil
	}
	args := []string{"diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", from, to, "--"}
	out, err := w.git.run(ctx, repo.in(append(args, paths...)...))
	if err != nil {
		return nil, failed("compare two trees", err)
	}
	items := splitZ(out)
	var all []difference
	for i := 0; i+1 < len(items); i += 2 {
		if f := strings.Fields(strings.TrimPrefix(items[i], ":")); len(f) == 5 {
			all = append(all, difference{f[0], f[1], f[2], f[3], items[i+1]})
		}
	}
	return all, nil
}

// Revision returns the commit that a person's word for a state of a workspace
// means: a snapshot (as [Snapshot.Name]), "base", or what git calls it; "" for
// "now", the tree as it is. CodeNotFound, with what there is.
func (w *Workspaces) Revision(ctx context.Context, ws caisson.Workspace, word string, runs ...caisson.RunID) (string, error) {
	switch {
	case word == "now":
		return "", nil
	case word == "base":
		return ws.Base, nil
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(word, "@") {
		return w.resolve(ctx, repo, word)
	}
	all, err := w.kept(ctx, repo, ws, runs)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(all))
	for _, k := range all {
		if k.Name == word || k.Run != "" && "@"+string(k.Run)+"/"+strconv.Itoa(k.Turn) == word {
			return k.Commit, nil
		}
		names = append(names, k.Name)
	}
	e := caisson.Errorf(caisson.CodeNotFound, "workspace %s has no snapshot %s", ws.Name, printable(word)).With("snapshots", names)
	switch {
	case len(names) == 0:
		return "", e.WithHint("None was taken yet: `caisson workspace snapshot %s` takes one.", ws.Name)
	case len(names) > 12:
		names = append([]string{fmt.Sprintf("(%d more)", len(names)-12)}, names[len(names)-12:]...)
	}
	return "", e.WithHint("A turn that only read has none, and old ones are thinned. There are: %s.", strings.Join(names, ", "))
}
