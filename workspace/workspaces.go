package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson"
)

// Store is where workspaces are recorded.
type Store interface {
	PutWorkspace(ctx context.Context, w caisson.Workspace) error
	Workspace(ctx context.Context, id caisson.WorkspaceID) (caisson.Workspace, error)
	Workspaces(ctx context.Context, filter caisson.WorkspaceFilter) ([]caisson.Workspace, error)
	Run(ctx context.Context, id caisson.RunID) (caisson.Run, error)
}

// gitVersionBound is long for a machine that is loaded.
const gitVersionBound = 10 * time.Second

// Box is the boundary in which an agent's tree is looked at.
type Box interface {
	Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error)
}

// OpenedBox is a box that was opened just for one look.
type OpenedBox interface {
	Box
	Close() error
}

// Options are what Workspaces need.
type Options struct {
	StateDir string // absolute; ours alone
	Ledger   Store
	// Box opens a box around a workspace where a method was given none.
	Box func(ctx context.Context, w caisson.Workspace) (OpenedBox, error)
	Git string // path of the git program; "" finds it on PATH
	Env []string
	// GitMemory is how many bytes of memory a git command of the host may have
	// of its own; 0: 2 GiB. One that needs more does not succeed.
	GitMemory int64
}

// Workspaces makes, keeps and merges workspaces. Safe for concurrent use, also
// by several processes with one state directory.
type Workspaces struct {
	opts Options

	mu    sync.Mutex
	git   *program
	repos map[string]*repository // by common directory
}

// New returns Workspaces. The disk is touched on first use.
func New(opts Options) *Workspaces {
	if opts.Env == nil {
		opts.Env = os.Environ()
	}
	return &Workspaces{opts: opts, repos: map[string]*repository{}}
}

// program returns the host's git, found once.
func (w *Workspaces) program(ctx context.Context) (*program, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.git != nil {
		return w.git, nil
	}
	empty := filepath.Join(w.opts.StateDir, "views", "empty")
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return nil, unmade("make the state directory", err)
	}
	git, err := findGit(ctx, w.opts.Git, w.opts.Env, empty, cmp.Or(w.opts.GitMemory, gitMemory))
	if err != nil {
		return nil, err
	}
	w.git = git
	return git, nil
}

// GitVersion returns the version of the host's git; CodeGitMissing where there
// is none that is new enough.
func (w *Workspaces) GitVersion(ctx context.Context) (string, error) {
	git, err := w.program(ctx)
	if err != nil {
		return "", err
	}
	answer, err := git.line(ctx, invocation{args: []string{"version"}, bound: gitVersionBound})
	return strings.TrimPrefix(answer, "git version "), err
}

// box returns the given box, or opens one; close gives back what was opened.
func (w *Workspaces) box(ctx context.Context, ws caisson.Workspace, given Box) (Box, func() error, error) {
	if given != nil {
		return given, func() error { return nil }, nil
	}
	if w.opts.Box == nil {
		return nil, nil, caisson.Errorf(caisson.CodeUnsupported, "no box can be opened here, and %s is looked at from inside only", ws.Name)
	}
	opened, err := w.opts.Box(ctx, ws)
	if err != nil {
		return nil, nil, err
	}
	// What stood at the paths when it was opened is what is in it.
	if err := w.Check(ctx, ws); err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	return opened, opened.Close, nil
}

// Repository returns the common git directory of the repository that dir is in;
// CodeNoRepository where it is in none.
func (w *Workspaces) Repository(ctx context.Context, dir string) (string, error) {
	at, err := w.discover(ctx, dir)
	return at.common, err
}

// List returns the workspaces of the repository that dir is in, newest first;
// all of them where dir is in none, or is "".
func (w *Workspaces) List(ctx context.Context, dir string) ([]caisson.Workspace, error) {
	filter := caisson.WorkspaceFilter{}
	if dir != "" {
		place, err := w.discover(ctx, dir)
		switch {
		case err == nil:
			filter.CommonDir = place.common
		case caisson.CodeOf(err) != caisson.CodeNoRepository:
			return nil, err
		}
	}
	return w.opts.Ledger.Workspaces(ctx, filter)
}

// Find returns the workspace that ref means among those of [Workspaces.List]: its
// id; else, exactly, a branch (also with refs/heads/ before it), a name or a run;
// else its number in the listing, from 1; else the beginning of an id, a run or a
// name. Where none of those is meant, one of another repository by its exact id
// or run, which no two share. What was removed is not found. CodeNotFound,
// CodeAmbiguous with the candidates in detail "candidates".
func (w *Workspaces) Find(ctx context.Context, dir, ref string) (caisson.Workspace, error) {
	all, err := w.List(ctx, dir)
	if err != nil {
		return caisson.Workspace{}, err
	}
	found, err := choose(all, ref, hasID, isCalled, isNumber, begins)
	if caisson.CodeOf(err) == caisson.CodeNotFound && dir != "" {
		if all, err = w.opts.Ledger.Workspaces(ctx, caisson.WorkspaceFilter{}); err != nil {
			return caisson.Workspace{}, err
		}
		found, err = choose(all, ref, hasID, isOfRun)
	}
	if caisson.CodeOf(err) != caisson.CodeNotFound {
		return found, err
	}
	if t, none := w.FindTrash(ref); none == nil {
		err = caisson.AsError(err).WithHint("One of that name was removed at %s: `caisson workspace trash restore %s` brings it back.", t.At.Local().Format(time.DateTime), t.Workspace.ID)
	}
	return caisson.Workspace{}, err
}

// Ways in which a reference can mean the workspace with a number in a listing.

func hasID(_ int, ws caisson.Workspace, ref string) bool { return string(ws.ID) == ref }

func isOfRun(_ int, ws caisson.Workspace, ref string) bool { return string(ws.Run) == ref }

func isCalled(_ int, ws caisson.Workspace, ref string) bool {
	return ws.Branch == ref || "refs/heads/"+ws.Branch == ref || ws.Name == ref || string(ws.Run) == ref
}

func isNumber(i int, _ caisson.Workspace, ref string) bool { return strconv.Itoa(i+1) == ref }

func begins(_ int, ws caisson.Workspace, ref string) bool {
	return strings.HasPrefix(string(ws.ID), ref) || strings.HasPrefix(string(ws.Run), ref) || strings.HasPrefix(ws.Name, ref)
}

// maxShown is how many characters of what fits nothing are said back.
const maxShown = 200

// choose finds the one workspace that ref means in the first of the ways in which
// it means any.
func choose(all []caisson.Workspace, ref string, ways ...func(i int, ws caisson.Workspace, ref string) bool) (caisson.Workspace, error) {
	shown := ref
	if r := []rune(ref); len(r) > maxShown {
		shown = string(r[:maxShown]) + "…"
	}
	for _, means := range ways {
		var found []caisson.Workspace
		var names []string
		for i, ws := range all {
			if ref != "" && means(i, ws, ref) {
				found, names = append(found, ws), append(names, fmt.Sprintf("%s (%s)", ws.ID, ws.Branch))
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return caisson.Workspace{}, caisson.Errorf(caisson.CodeAmbiguous, "%q fits %d workspaces: %s", shown, len(found), strings.Join(names, ", ")).
				WithHint("Name it by its id.").With("candidates", names)
		}
	}
	return caisson.Workspace{}, caisson.Errorf(caisson.CodeNotFound, "no workspace %q", shown).WithHint("`caisson workspace ls` shows them.")
}
