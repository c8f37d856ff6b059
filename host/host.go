// Package host is the composition: it opens config, ledger, engines and
// workspaces of this machine and drives runs with them. `run`, `serve` and
// `worker` all start it.
//
// It promises that a run is driven by at most one process, and that everything
// an earlier driver left behind has ended before the run goes on.
package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/verb"
	"github.com/caisson-run/caisson/workspace"
)

// Options say where a host stands.
type Options struct {
	Env func(string) string
	Dir string // working directory of the person
	// Notice tells the person, in a line, what is waited for. Nil: nobody is told.
	Notice func(text string)
	// Leave: what ended processes left stays as it is.
	Leave bool
	// Unread makes a config that cannot be read no error: it is told, and what is
	// built in holds, but for the state directory. For what only lists or ends
	// things; nothing is cleared away then. Nil: it is an error.
	Unread func(why error)
	// KeepTrash: nothing goes from the trash for want of room on the disk.
	KeepTrash bool
}

// Host is one opened machine. Its fields are read-only.
type Host struct {
	Ledger caisson.Ledger
	Config config.Config // of the user alone; a run's may be tighter
	Paths  config.Dirs

	env        func(string) string
	dir        string
	notice     func(text string)
	unread     func(why error)
	keepTrash  bool
	salvaged   bool // Config is not the user's
	workspaces *workspace.Workspaces
	engines    []caisson.Engine
	outside    *verb.Outside
	controls   controls
	mirrors    mirrors
	instance   *process.Registration // registered when this process first drives
	left       error                 // why what killed processes left could not all be removed
}

// Open reads the settings and opens the ledger. Opening is recovery: what an
// ended process left behind is swept when a run of its is next driven.
func Open(ctx context.Context, opts Options) (*Host, error) {
	paths, err := config.Paths(opts.Env)
	if err != nil {
		return nil, err
	}
	h := &Host{Paths: paths, env: opts.Env, dir: opts.Dir, notice: opts.Notice, unread: opts.Unread, keepTrash: opts.KeepTrash}
	if h.Config, err = h.configWith(repoFiles{}); err != nil {
		return nil, err
	}
	h.Paths = paths.WithState(h.Config.StateDir)
	paths = h.Paths
	if err := os.MkdirAll(paths.State, 0o700); err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make the state directory: %w", err)
	}
	if paths.State, err = filepath.EvalSymlinks(paths.State); err != nil { // nothing that goes through a link is lent to a sandbox
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "find the state directory: %w", err)
	}
	h.Paths = paths
	h.Ledger, err = sqlite.Open(ctx, sqlite.Options{Path: paths.Ledger()})
	if err != nil {
		return nil, err
	}
	h.engines, h.outside = h.openEngines(), verb.NewOutside(h.guest)
	h.workspaces = workspace.New(workspace.Options{StateDir: paths.State, Ledger: h.Ledger, Box: h.boxFor})
	if !opts.Leave && !h.salvaged {
		h.left = h.tidy(ctx)
	}
	return h, nil
}

// Close releases the ledger and the instance lock.
func (h *Host) Close() error {
	err := h.controls.close()
	h.mirrors.close()
	if h.instance != nil {
		err = errors.Join(err, h.instance.Close())
	}
	err = errors.Join(err, h.outside.Close())
	for _, engine := range h.engines {
		if closer, ok := engine.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
	}
	return errors.Join(err, h.Ledger.Close())
}

// Person names who gives a decision: the login name of this process's user.
func Person() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// FindRun returns the run whose id is ref or begins with it.
func (h *Host) FindRun(ctx context.Context, ref string) (caisson.Run, error) {
	if ref == "" {
		return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "no run is named").WithHint("`caisson runs ls` lists them.")
	}
	runs, err := h.Ledger.Runs(ctx, caisson.RunFilter{Prefix: ref, Limit: fewRuns + 1})
	if err != nil {
		return caisson.Run{}, err
	}
	switch {
	case len(runs) == 0:
		return caisson.Run{}, caisson.Errorf(caisson.CodeNotFound, "there is no run %q", ref).WithHint("`caisson runs ls` lists them.")
	case len(runs) == 1:
		return runs[0], nil
	}
	var ids []string
	for _, r := range runs {
		if string(r.ID) == ref {
			return r, nil
		}
		ids = append(ids, string(r.ID))
	}
	return caisson.Run{}, caisson.Errorf(caisson.CodeAmbiguous, "%q fits more than one run: %s", ref, few(ids)).With("candidates", ids)
}

// fewRuns is how many are named where a reference fits more.
const fewRuns = 5

// few is ids in a sentence, of which there may be more.
func few(ids []string) string { return fewer(ids, fewRuns) }

// fewer is at most n words of a list in a sentence.
func fewer(words []string, n int) string {
	if len(words) > n {
		return strings.Join(words[:n], ", ") + ", …"
	}
	return strings.Join(words, ", ")
}
