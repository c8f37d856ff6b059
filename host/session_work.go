package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/workspace"
)

// ofAgent is how the commits of an agent are taken: it amends and rebases its
// own branch, and what that leaves behind is pinned.
var ofAgent = workspace.ImportOptions{AllowRewrite: true}

// importWork brings the agent's commits into the repository. What is held
// back or diverged is told in the record and is no error of the run.
func (s *session) importWork(ctx context.Context) error {
	if s.ws == nil {
		return nil
	}
	imported, err := s.host.workspaces.Import(ctx, *s.ws, s.box, ofAgent)
	if ofInside(ctx, err) {
		return s.note(ctx, err.Error())
	}
	if err != nil {
		return err
	}
	told := ""
	if imported.Diverged != "" {
		told = fmt.Sprintf("the branch could not take the agent's commits (%s); they are kept on %s", imported.Why, imported.Diverged)
	}
	if imported.Unkept != "" {
		told = strings.TrimPrefix(told+"; not everything made inside could be kept: "+imported.Unkept, "; ")
	}
	s.telling.Lock()
	news := told != s.told
	s.told = told
	s.telling.Unlock()
	if news && told != "" {
		if err := s.note(ctx, told); err != nil {
			return err
		}
	}
	if imported.Moved || imported.Diverged != "" && news || len(imported.Pinned) > 0 {
		return s.host.Ledger.Append(ctx, s.drive, caisson.EventImported, imported)
	}
	return nil
}

// ofInside tells whether an error may be the work of what runs inside, or of its
// taking longer than a run may take to end. It is noted, and is no reason for
// the run not to end: an agent could keep its run from ending otherwise. What
// was committed is still in the shadow.
func ofInside(ctx context.Context, err error) bool {
	switch caisson.CodeOf(err) {
	case caisson.CodeImportHeld, caisson.CodeGitFailed, caisson.CodeDeadline, caisson.CodePathInvalid, caisson.CodeNotFound, caisson.CodeHostFull, caisson.CodeSandboxPaused:
		return true
	default:
		return err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	}
}

func (s *session) note(ctx context.Context, text string) error {
	if hide := redact(s.config); hide != nil {
		text = hide(text)
	}
	return s.host.Ledger.Append(context.WithoutCancel(ctx), s.drive, caisson.EventNote, map[string]any{"text": text})
}

// turnEnd brings the turn's work home: commits always, a snapshot of the tree
// if the turn did more than read.
func (s *session) turnEnd(ctx context.Context, turn caisson.Turn, settled airlock.Settled) error {
	way := s.network
	if s.within != nil {
		way = s.within.network
	}
	if err := way.flush(ctx); err != nil {
		return err
	}
	if s.ws == nil {
		return nil
	}
	if err := s.importWork(ctx); err != nil {
		return err
	}
	began := func(c caisson.CallRecord) bool { return c.Attempts > 0 && c.Call.Effect != caisson.EffectRead }
	if !slices.ContainsFunc(settled.Records, began) {
		return nil
	}
	snapshot, err := s.host.workspaces.Snapshot(ctx, *s.ws, s.box, s.run.ID, turn.N)
	if ofInside(ctx, err) {
		return s.note(ctx, fmt.Sprintf("the tree after turn %d was not kept: %v", turn.N, err))
	}
	if err != nil {
		return err
	}
	missing := snapshot.Missing()
	if missing != "" && missing != s.missing {
		if err := s.note(ctx, fmt.Sprintf("not all of the tree after turn %d was kept: %s", turn.N, missing)); err != nil {
			return err
		}
	}
	s.missing = missing
	return s.host.Ledger.Append(ctx, s.drive, caisson.EventSnapshot, map[string]any{"turn": turn.N, "commit": snapshot.Commit})
}
