package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

// modules looks at submodules. What is changed in them is a change of the tree
// too; what only they know are ignored files. Commits made in a submodule of the
// base stay in the repository that it borrows from; those of one that was added
// inside are kept with the workspace alone.
func (l *look) modules(ctx context.Context, box Box) error {
	root, err := boundShadow(l.ws)
	if err != nil {
		return err
	}
	defer root.Close()
	made := map[string]caisson.Submodule{}
	for _, m := range l.ws.Submodules {
		if m.Empty == "" {
			made[m.GitDir] = m
		}
	}
	for _, name := range moduleDirs(root) {
		m, ours := made[filepath.Join(l.ws.Shadow, name)]
		if !ours {
			l.lose(LossRef, name, "a submodule that was added inside")
			continue
		}
		if err := l.ignoredIn(ctx, box, m); err != nil {
			l.unknown("the submodule at "+printable(m.Path), err)
		}
	}
	return nil
}

// ignoredIn lists the ignored files of a submodule.
func (l *look) ignoredIn(ctx context.Context, box Box, m caisson.Submodule) error {
	trees, err := os.OpenRoot(filepath.Join(l.at.private, "modules"))
	if err != nil {
		return err
	}
	defer trees.Close()
	rel, err := filepath.Rel(filepath.Join(filepath.Dir(l.ws.Home), "modules"), m.Tree)
	if err != nil {
		return err
	}
	root, err := trees.OpenRoot(rel) // of a nested one an agent writes the way there
	if err != nil {
		return err
	}
	defer root.Close()
	out := &limitedBuffer{limit: maxOutput}
	said, err := l.w.insideCommand(ctx, l.ws, box, caisson.Command{
		Argv: statusArgs[:], Stdout: out, Env: []string{"GIT_DIR=" + m.GitDir, "GIT_WORK_TREE=" + filepath.Join(l.ws.Path, m.Path)},
	})
	if err != nil {
		return err
	}
	if unlooked.MatchString(said) {
		l.lose(LossUnknown, "a part of the submodule at "+printable(m.Path), said)
	}
	for _, item := range splitZ(out.Bytes()) {
		kind, rest, ok := strings.Cut(item, " ")
		if !ok {
			return errors.New("git inside gave no status")
		}
		if kind != "!" {
			continue
		}
		if why := worthKeeping(root, rest); why != "" {
			l.lose(LossIgnored, m.Path+"/"+rest, why)
		}
	}
	return nil
}
