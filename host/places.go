package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// ListWorkspaces lists the workspaces of the repository that the person stands
// in, or of all.
func (h *Host) ListWorkspaces(ctx context.Context, all bool) ([]caisson.Workspace, error) {
	if all {
		return h.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{})
	}
	return h.workspaces.List(ctx, h.dir)
}

// MergeRequest says what goes where; empty fields are the defaults.
type MergeRequest struct {
	Into, Mode, Message string
	// Commit commits what is not committed in the workspace first, as the
	// person; without it such changes are refused with CodeWorkspaceDirty.
	Commit bool
}

// Merged is what a merge did.
type Merged struct {
	workspace.Merged
	Branch string `json:"branch"`
}

// Says tells a person what happened.
func (m Merged) Says() string {
	if m.Old == m.New {
		return fmt.Sprintf("Nothing to merge: %s has all of %s.", m.Into, m.Branch)
	}
	return fmt.Sprintf("Merged %s into %s: %s → %s.", m.Branch, m.Into, m.Old[:min(12, len(m.Old))], m.New[:min(12, len(m.New))])
}

// Merge merges a workspace's commits. The tree is looked at in a box first, so
// that work which nobody committed is not left behind unnoticed.
func (h *Host) Merge(ctx context.Context, ref string, want MergeRequest) (Merged, error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return Merged{}, err
	}
	if err := h.idle(ctx, ws); err != nil {
		return Merged{}, err
	}
	if err := h.gather(ctx, ws, want); err != nil {
		return Merged{}, err
	}
	merged, err := h.workspaces.Merge(ctx, ws, workspace.MergeOptions{Into: want.Into, Mode: workspace.MergeMode(want.Mode), Message: want.Message})
	return Merged{merged, ws.Branch}, err
}

// ExportRequest says where patches go.
type ExportRequest struct {
	Dir     string // empty: all of them, as one mailbox, are returned
	Message string // of Commit
	Commit  bool   // as of MergeRequest
}

// Exported is what was exported.
type Exported struct {
	workspace.Exported
	Branch string        `json:"branch"`
	Mbox   caisson.Bytes `json:"mbox,omitempty"`
}

// ExportPatches writes a workspace's commits since its base as patches. Work that
// nobody committed is treated as by Merge.
func (h *Host) ExportPatches(ctx context.Context, ref string, want ExportRequest) (Exported, error) {
	ws, err := h.workspaces.Find(ctx, h.dir, ref)
	if err != nil {
		return Exported{}, err
	}
	if err := h.idle(ctx, ws); err != nil {
		return Exported{}, err
	}
	if err := h.gather(ctx, ws, MergeRequest{Commit: want.Commit, Message: want.Message}); err != nil {
		return Exported{}, err
	}
	var mbox bytes.Buffer
	opts := workspace.ExportOptions{Out: &mbox}
	if want.Dir != "" {
		if opts.Dir = want.Dir; !filepath.IsAbs(opts.Dir) {
			opts.Dir = filepath.Join(h.dir, opts.Dir)
		}
	}
	exported, err := h.workspaces.Export(ctx, ws, opts)
	return Exported{exported, ws.Branch, caisson.Bytes(mbox.String())}, err
}

// Unfinished tells of merges that were killed and that a person has to look at.
func (h *Host) Unfinished() []string { return h.workspaces.Unfinished() }

// idle refuses while a run works in the workspace: what is merged would be cut
// off at any point.
func (h *Host) idle(ctx context.Context, ws caisson.Workspace) error {
	r, busy, err := h.occupant(ctx, ws)
	if err != nil {
		return err
	}
	if busy && (r.State == caisson.RunRunning || r.State == caisson.RunCancelling) {
		err := caisson.Errorf(caisson.CodeStateInvalid, "run %s is at work in it", r.ID)
		if isServed(r) { // cancelling it would remove the sandbox
			return err.WithHint("It is a sandbox that is kept open: `caisson sandbox stop %s`, and `start` afterwards.", r.ID)
		}
		return err.WithHint("Wait for it, or `caisson runs cancel %s`.", r.ID)
	}
	return nil
}

// gather commits what is not committed, if that is wanted, and brings all
// commits into the repository. No run begins while it commits: one removes the
// locks of git that it finds.
func (h *Host) gather(ctx context.Context, ws caisson.Workspace, want MergeRequest) (err error) {
	if want.Commit {
		use, busy := h.occupy(ctx, ws, "commit")
		if busy != nil {
			return busy
		}
		defer func() { err = errors.Join(err, use.Close()) }()
	}
	box, err := h.boxFor(ctx, ws)
	if err != nil {
		return err
	}
	defer func() {
		if e := box.Close(); err == nil {
			err = e
		}
	}()
	if err := h.bringHome(ctx, ws, box); err != nil {
		return err
	}
	// The branch outside counts: a person may have committed there.
	var uncommitted bytes.Buffer
	tip := workspace.DiffOptions{From: "refs/heads/" + ws.Branch, Stat: true, Out: &limited{to: &uncommitted, left: 64 << 10}}
	if err := h.workspaces.Diff(ctx, ws, box, tip); err != nil {
		return err
	}
	if uncommitted.Len() > 0 {
		if err := h.committable(ctx, ws); err != nil {
			return err
		}
		if !want.Commit {
			return caisson.Errorf(caisson.CodeWorkspaceDirty, "there are changes in the workspace that are not committed").
				WithHint("Look with `caisson workspace diff`; commit them with `--commit`.").With("stat", uncommitted.String())
		}
		message := cmp.Or(want.Message, "Work of "+ws.Name)
		if err := run(ctx, box, []string{"git", "add", "-A"}, ws.Path); err != nil {
			return err
		}
		if err := run(ctx, box, []string{"git", "commit", "-q", "-m", message}, ws.Path); err != nil {
			return err
		}
	}
	return h.bringHome(ctx, ws, box)
}

// committable refuses where what is in the tree is no work on the workspace's
// branch: a commit of it would go elsewhere, or hold a conflict.
func (h *Host) committable(ctx context.Context, ws caisson.Workspace) error {
	branch, operations, err := h.workspaces.Inside(ctx, ws)
	switch {
	case err != nil:
		return err
	case len(operations) > 0:
		return caisson.Errorf(caisson.CodeWorkspaceDirty, "a %s is under way inside workspace %s", operations[0], ws.Name).
			WithHint("End it there first: `caisson sandbox shell %s`.", ws.Name)
	case branch == ws.Branch:
		return nil
	}
	on := "no branch is checked out"
	if branch != "" {
		on = fmt.Sprintf("branch %q is checked out", branch)
	}
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "inside workspace %s %s, and what it has is not on %s", ws.Name, on, ws.Branch).
		WithHint("Bring it there inside, with `git switch %s` and `git merge`: `caisson sandbox shell %s`.", ws.Branch, ws.Name)
}

// bringHome imports what was committed inside; commits that the branch cannot
// take are said.
func (h *Host) bringHome(ctx context.Context, ws caisson.Workspace, box workspace.Box) error {
	imported, err := h.workspaces.Import(ctx, ws, box, ofAgent)
	if err == nil && imported.Diverged != "" {
		return caisson.Errorf(caisson.CodeImportHeld, "the agent's commits are kept on %s: %s", imported.Diverged, imported.Why).
			WithHint("Merge that with git, or bring the branch back to where the agent's work began and try again.")
	}
	return err
}

// run runs a command in a box; one that does not succeed is an error with what
// it said.
func run(ctx context.Context, box workspace.Box, argv []string, dir string) error {
	var complaint bytes.Buffer
	p, err := box.Hold(ctx, caisson.Command{Argv: argv, Dir: dir, Stderr: &limited{to: &complaint, left: 4 << 10}})
	if err != nil {
		return err
	}
	if err := p.Release(); err != nil {
		p.Drop()
		return err
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return caisson.Errorf(caisson.CodeGitFailed, "%s: status %d: %s", strings.Join(argv, " "), exit.Code, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// limited keeps the first bytes and drops the rest: a box may print for ever.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(l.left, len(p))]
	l.left -= len(keep)
	l.to.Write(keep)
	return len(p), nil
}
