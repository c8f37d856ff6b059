package host

import (
	"bytes"
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// runsOf lists the runs that worked in a workspace.
func (h *Host) runsOf(ctx context.Context, ws caisson.Workspace) ([]caisson.RunID, error) {
	all, err := h.Ledger.Runs(ctx, caisson.RunFilter{})
	var ids []caisson.RunID
	for _, r := range all {
		if r.Spec.Workspace == ws.ID {
			ids = append(ids, r.ID)
		}
	}
	return ids, err
}

// Diff returns what differs between two states of a workspace, as between says:
// "A..B", "A" for A to now, "" for the base to now. A state is a snapshot
// ("@3"), "base", "now" (the tree as it is, last only) or what git calls a
// commit. What is returned may hold any bytes.
func (h *Host) Diff(ctx context.Context, ref, between string, stat bool) (string, error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return "", err
	}
	from, to, err := ends(between)
	if err != nil {
		return "", err
	}
	return h.diff(ctx, ws, from, to, stat)
}

// RunDiff is Diff of the workspace of a run, with its turns by number:
// "RUN@3..5", "RUN@3" for turn 3 to now, "RUN" for the base to now.
func (h *Host) RunDiff(ctx context.Context, what string, stat bool) (string, error) {
	ref, between, _ := strings.Cut(what, "@")
	r, err := h.FindRun(ctx, ref)
	if err != nil {
		return "", err
	}
	if r.Spec.Workspace == "" {
		return "", caisson.Errorf(caisson.CodeNotFound, "run %s has no workspace", r.ID)
	}
	ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace)
	if err != nil {
		return "", err
	}
	from, to, err := ends(between)
	if err != nil {
		return "", err
	}
	text, err := h.diff(ctx, ws, ofRun(r.ID, from), ofRun(r.ID, to), stat)
	if err != nil && ws.Removed {
		err = h.removedOf(r, ws)
	}
	return text, err
}

// removedOf says that the workspace of a run was removed, and what brings it back.
func (h *Host) removedOf(r caisson.Run, ws caisson.Workspace) error {
	gone := caisson.Errorf(caisson.CodeNotFound, "the workspace of run %s was removed", r.ID)
	if t, none := h.workspaces.FindTrash(string(ws.ID)); none == nil {
		return gone.WithHint("`caisson workspace trash restore %s` brings it back.", t.Workspace.ID)
	}
	return gone.WithHint("It is not in the trash any more.")
}

// LookAt returns why what a run has made cannot be looked at; nil where it can, and
// where the run has no workspace.
func (h *Host) LookAt(ctx context.Context, r caisson.Run) error {
	if r.Spec.Workspace == "" {
		return nil
	}
	ws, err := h.Ledger.Workspace(ctx, r.Spec.Workspace)
	switch {
	case err != nil:
		return err
	case ws.Removed:
		return h.removedOf(r, ws)
	}
	return h.workspaces.Check(ctx, ws)
}

// ofRun makes the number of a turn the name of its snapshot.
func ofRun(run caisson.RunID, word string) string {
	turn := strings.TrimPrefix(word, "@")
	if turn == "" || strings.Trim(turn, "0123456789") != "" {
		return word
	}
	return "@" + string(run) + "/" + turn
}

// ends reads what is compared.
func ends(between string) (from, to string, err error) {
	from, to, _ = strings.Cut(between, "..")
	from, to = cmp.Or(from, "base"), cmp.Or(to, "now")
	if strings.HasPrefix(to, ".") || from == "now" {
		return "", "", caisson.Errorf(caisson.CodeUsage, "%q does not say what to compare", between).
			WithHint("Two states with two dots between: `@3..@5`, `base..@2`, `@3..now`. `now` comes last.")
	}
	return from, to, nil
}

func (h *Host) diff(ctx context.Context, ws caisson.Workspace, from, to string, stat bool) (string, error) {
	runs, err := h.runsOf(ctx, ws)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	opts := workspace.DiffOptions{Stat: stat, Out: &out}
	if opts.From, err = h.workspaces.Revision(ctx, ws, from, runs...); err != nil {
		return "", err
	}
	if opts.To, err = h.workspaces.Revision(ctx, ws, to, runs...); err != nil {
		return "", err
	}
	err = h.workspaces.Diff(ctx, ws, nil, opts)
	return out.String(), err
}

// History is what was done in a workspace since its base, newest first.
type History struct {
	Workspace caisson.WorkspaceID `json:"workspace"`
	Branch    string              `json:"branch"`
	Base      string              `json:"base"`
	Entries   []Entry             `json:"entries"`
}

// Entry is either a commit or a snapshot.
type Entry struct {
	Commit   *workspace.Commit `json:"commit,omitempty"`
	Snapshot *workspace.Kept   `json:"snapshot,omitempty"`
}

// Log returns the commits and the snapshots of a workspace. A snapshot stands
// above the commit that was checked out when it was taken: times are what an
// agent says they are.
func (h *Host) Log(ctx context.Context, ref string) (History, error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return History{}, err
	}
	commits, err := h.workspaces.Log(ctx, ws, 0)
	if err != nil {
		return History{}, err
	}
	runs, err := h.runsOf(ctx, ws)
	if err != nil {
		return History{}, err
	}
	kept, err := h.workspaces.Snapshots(ctx, ws, runs...)
	if err != nil {
		return History{}, err
	}
	return History{ws.ID, ws.Branch, ws.Base, interleave(ws.Base, commits, kept)}, nil
}

func interleave(base string, commits []workspace.Commit, kept []workspace.Kept) []Entry {
	known := map[string]bool{base: true}
	for _, c := range commits {
		known[c.ID] = true
	}
	on := map[string][]Entry{}
	for _, k := range slices.Backward(kept) {
		at := k.On
		switch {
		case k.Commit == base:
			at = base
		case !known[at]: // a commit that was rewritten, or is on no branch
			at = ""
		}
		on[at] = append(on[at], Entry{Snapshot: &k})
	}
	entries := slices.Clip(on[""])
	for i := range commits {
		entries = append(entries, on[commits[i].ID]...)
		entries = append(entries, Entry{Commit: &commits[i]})
	}
	return append(entries, on[base]...)
}

// TakeSnapshot keeps the tree of a workspace as it is now.
func (h *Host) TakeSnapshot(ctx context.Context, ref, why string) (workspace.Snapshot, error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return workspace.Snapshot{}, err
	}
	return h.workspaces.SnapshotNow(ctx, ws, nil, cmp.Or(why, "on demand"))
}

// RestoreFiles brings files of a workspace back as a snapshot holds them; the
// whole tree where no path is given. A path is taken from where the person
// stands, if that is in the workspace, else from the top of its tree. Refused
// while a run works there.
func (h *Host) RestoreFiles(ctx context.Context, ref, snapshot string, paths []string) (restored workspace.Restored, err error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return restored, err
	}
	runs, err := h.runsOf(ctx, ws)
	if err != nil {
		return restored, err
	}
	spec := workspace.RestoreSpec{Name: snapshot}
	if spec.Commit, err = h.workspaces.Revision(ctx, ws, snapshot, runs...); err != nil {
		return restored, err
	}
	for _, path := range paths {
		spec.Paths = append(spec.Paths, h.inTree(ws, path))
	}
	use, err := h.occupy(ctx, ws, "restore")
	if err != nil {
		return restored, err
	}
	defer func() {
		if e := use.Close(); err == nil {
			err = e
		}
	}()
	return h.workspaces.RestoreFiles(ctx, ws, nil, spec)
}

// inTree returns a path relative to the workspace's tree. Nothing is followed.
func (h *Host) inTree(ws caisson.Workspace, path string) string {
	if !filepath.IsAbs(path) {
		if rel, err := filepath.Rel(ws.Path, h.dir); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(rel, path)
		}
		return path
	}
	if rel, err := filepath.Rel(ws.Path, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
