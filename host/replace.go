package host

import (
	"context"

	"github.com/caisson-run/caisson"
)

// noteReplace notes, when the old boundary has come to rest, that another takes
// its place: its generation, and the workspace's tree that it is to find.
func (s *session) noteReplace(ctx context.Context, tree string) error {
	err := s.host.noteJournal(ctx, journal{Run: s.run.ID, Op: journalReplace, Generation: s.record.Generation + 1, Tree: tree})
	pass("host.replace.noted")
	return err
}

// replacing brings the record of a sandbox to the generation that was begun, by
// this process or one that was killed.
func (s *session) replacing(record *caisson.SandboxRecord) error {
	j, there, err := s.host.journals().read(string(s.run.ID))
	if err != nil || !there || j.Op != journalReplace {
		return err
	}
	pass("host.replace.closed")
	s.served.fresh, s.served.expect = true, j.Tree
	record.Generation = max(record.Generation, j.Generation)
	return nil
}

// replacedWell ends the replacing, once the workspace was compared, however that
// came out: who is told that it differs decides what to do.
func (s *session) replacedWell(ctx context.Context) error {
	if !s.served.fresh {
		return nil
	}
	pass("host.replace.opened")
	err := s.sameTree(ctx)
	if err != nil && caisson.CodeOf(err) != caisson.CodeWorkspaceDirty {
		return err
	}
	pass("host.replace.compared")
	if dropErr := s.host.journals().drop(string(s.run.ID)); err == nil {
		err = dropErr
	}
	return err
}
