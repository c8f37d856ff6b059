//go:build linux

package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// watchedBox tells of each command that is about to look, and of its program.
type watchedBox struct {
	workspace.OpenedBox
	before func(argv []string)
	mu     *sync.Mutex
}

func (b watchedBox) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before(cmd.Argv)
	return b.OpenedBox.Hold(ctx, cmd)
}

// watched returns Workspaces whose boxes tell of their commands.
func (wd *world) watched(before func(argv []string)) *workspace.Workspaces {
	return workspace.New(workspace.Options{StateDir: wd.state, Ledger: wd.store, Env: wd.env(), Box: func(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) {
		opened, err := openBox(ctx, ws)
		if err != nil {
			return nil, err
		}
		return watchedBox{opened, before, &sync.Mutex{}}, nil
	}})
}

// A tree or a git directory inside that is changed while it is looked at is no
// basis for a removal, also where git inside would say the same of both.
func TestChangedWhileLookedAt(t *testing.T) {
	for name, change := range map[string]func(wd *world, ws caisson.Workspace) error{
		"a file that is ignored": func(_ *world, ws caisson.Workspace) error {
			return os.WriteFile(filepath.Join(ws.Path, "new.log"), []byte("x"), 0o644)
		},
		"a file and back": func(_ *world, ws caisson.Workspace) error {
			at := filepath.Join(ws.Path, "sub", "b.txt")
			was, err := os.ReadFile(at)
			if err == nil {
				err = os.WriteFile(at, []byte("six\n"), 0o644)
			}
			if err != nil {
				return err
			}
			return os.WriteFile(at, was, 0o644)
		},
		"the configuration inside": func(_ *world, ws caisson.Workspace) error {
			f, err := os.OpenFile(filepath.Join(ws.Shadow, "config"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if _, err := f.WriteString("[core]\n"); err != nil {
				return err
			}
			return f.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := trashWorld(t, "true")
			once := false
			w := wd.watched(func(argv []string) {
				if !once {
					once = true
					wd.must(change(wd, ws))
				}
			})
			found, err := w.Inspect(t.Context(), ws, workspace.InspectOptions{})
			wd.must(err)
			if !once || !found.Unstable {
				t.Errorf("looked %v, unstable %v", once, found.Unstable)
			}
			if found := wd.inspect(ws); found.Unstable {
				t.Error("unstable for ever")
			}
		})
	}
}

// A look at a workspace in which nothing was done starts one program inside:
// what is known outside is not asked for there.
func TestLookAtCleanIsShort(t *testing.T) {
	wd, ws := trashWorld(t, "true")
	var asked []string
	found, err := wd.watched(func(argv []string) { asked = append(asked, strings.Join(argv, " ")) }).Inspect(t.Context(), ws, workspace.InspectOptions{})
	wd.must(err)
	if len(found.Losses) > 0 || found.Unstable {
		t.Errorf("found %v", found.Losses)
	}
	if len(asked) != 1 {
		t.Errorf("asked inside: %q", asked)
	}
	if !slices.ContainsFunc(found.Pins, func(p workspace.Pin) bool { return p.ID == ws.Base }) {
		t.Errorf("pins %v", found.Pins)
	}
}

// What is staged is held by a commit also where the files are as they were.
func TestStagedAloneIsPinned(t *testing.T) {
	for name, line := range map[string]string{
		"and taken out of the tree": "echo staged >a.txt && git add a.txt && git show HEAD:a.txt >a.txt",
		"before the first commit":   "git checkout -q --orphan other && git rm -rq --cached . && echo staged >a.txt && git add a.txt",
		"beside an ignored file":    "echo staged >x.log && git add -f x.log && rm x.log",
	} {
		t.Run(name, func(t *testing.T) {
			wd, ws := trashWorld(t, line)
			found := wd.inspect(ws)
			if !slices.ContainsFunc(found.Pins, func(p workspace.Pin) bool {
				if p.Kind != "index" {
					return false
				}
				text, err := wd.tryGit(wd.repo, "grep", "-h", "staged", p.ID)
				return err == nil && strings.Contains(text, "staged")
			}) {
				t.Errorf("no pin holds what is staged: %v %v", found.Pins, found.Losses)
			}
		})
	}
}

// Git that reads an index in two parts sets the time of one of them. A look at a
// workspace whose agent keeps its index so is no change of it.
func TestLookAtIndexInParts(t *testing.T) {
	wd, ws := trashWorld(t, "git config core.splitIndex true && echo x >n1 && git add n1 && sleep 0.05 && ls $(git rev-parse --git-dir)/sharedindex.*")
	permit := discard(t, wd.inspect(ws))
	if _, err := wd.w.Remove(t.Context(), permit, "ada"); err != nil {
		t.Fatal(err)
	}
	wd.restore(ws)
	if found := wd.inspect(ws); found.Unstable || !found.Has(workspace.LossChange) {
		t.Errorf("unstable %v, found %v", found.Unstable, found.Losses)
	}
}
