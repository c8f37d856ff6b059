package host

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate"
)

// ExecRequest is a command of a person's own in a sandbox. Empty fields are the
// config's.
type ExecRequest struct {
	Ref         string // of a workspace; empty: the only one of the repository
	NoWorkspace bool
	Argv        []string // empty: a shell
	Session     caisson.Session
	Engine      string
	Require     []caisson.Control
	Env         []string // names
	Network     []string // as of a run
	Deadline    time.Duration
}

// boundary tells whether the request says something of a boundary of its own.
func (want ExecRequest) boundary() bool {
	return want.Engine != "" || len(want.Require) > 0 || len(want.Network) > 0
}

// shellArgv is the best shell that there is inside.
func shellArgv() []string {
	return []string{"/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec /bin/sh -i"}
}

// isShell tells whether a session is a shell and not a command of the person's.
func isShell(spec caisson.RunSpec) bool {
	argv := shellArgv()
	if spec.Session == "" || len(spec.Argv) != len(argv) {
		return false
	}
	for i, arg := range spec.Argv {
		if string(arg) != argv[i] {
			return false
		}
	}
	return true
}

// NewExec checks what can be checked and records a session: a run without an
// agent. Its commands are judged by the person's policy as sandboxed calls, as
// the person who would be asked is the one who asks.
func (h *Host) NewExec(ctx context.Context, want ExecRequest) (caisson.Run, error) {
	if want.NoWorkspace && want.Ref != "" {
		return caisson.Run{}, caisson.Errorf(caisson.CodeUsage, "%q names a workspace: leave out --no-workspace", want.Ref)
	}
	if len(want.Argv) == 0 {
		want.Argv = shellArgv()
	}
	ref, err := h.unnumbered(ctx, want.Ref)
	if err != nil {
		return caisson.Run{}, err
	}
	want.Ref = ref
	in, err := h.servedFor(ctx, want)
	if err != nil {
		return caisson.Run{}, err
	}
	if in != nil {
		return h.newGuest(ctx, want, *in)
	}
	request := RunRequest{
		Argv: want.Argv, Engine: want.Engine, Require: want.Require, Env: want.Env, Network: want.Network, NoWorkspace: want.NoWorkspace,
		Preset: string(gate.Sandboxed), Budget: caisson.Budget{Wall: want.Deadline},
	}
	if err := request.check(); err != nil {
		return caisson.Run{}, err
	}
	var ws caisson.Workspace
	var repo repoFiles
	if !want.NoWorkspace {
		if ws, repo, err = h.vacant(ctx, want.Ref); err != nil {
			return caisson.Run{}, err
		}
	}
	c, err := h.configWith(repo)
	if err != nil {
		return caisson.Run{}, err
	}
	spec, isolation, err := h.spec(ctx, request, c)
	if err != nil {
		return caisson.Run{}, err
	}
	spec.Session, spec.Workspace, spec.RepoPolicy = want.Session, ws.ID, repo.digest()
	spec.Budget = request.Budget // those of the config are for agents
	if err := h.checkSpec(ctx, spec, c, repo); err != nil {
		return caisson.Run{}, err
	}
	if err := h.prepareEngine(ctx, spec.Engine, isolation); err != nil {
		return caisson.Run{}, err
	}
	id := caisson.NewRunID()
	spec.Root = id
	return h.Ledger.CreateRun(ctx, id, spec)
}

// vacant finds a workspace in which nobody works, and its repository's settings.
func (h *Host) vacant(ctx context.Context, ref string) (caisson.Workspace, repoFiles, error) {
	ws, err := h.placeOf(ctx, ref)
	if err != nil {
		return ws, repoFiles{}, err
	}
	if err := h.workspaces.Check(ctx, ws); err != nil {
		return ws, repoFiles{}, err
	}
	if err := h.occupied(ctx, ws); err != nil {
		return ws, repoFiles{}, err
	}
	repo, err := h.settingsOf(ctx, ws)
	return ws, repo, err
}

// workspaceOf returns the workspace that ref means; without one, that in which
// the person stands, or the only one of the repository in which the person stands.
func (h *Host) workspaceOf(ctx context.Context, ref string) (caisson.Workspace, error) {
	if ref != "" {
		return h.workspaces.Find(ctx, h.dir, ref)
	}
	if _, err := h.workspaces.Repository(ctx, h.dir); caisson.CodeOf(err) == caisson.CodeNoRepository {
		return caisson.Workspace{}, caisson.Errorf(caisson.CodeNoRepository, "no workspace is named, and %s is in no git repository", h.dir).
			WithHint("Name one (`caisson workspace ls --all`), or say --no-workspace.")
	}
	list, err := h.workspaces.List(ctx, h.dir)
	if err != nil {
		return caisson.Workspace{}, err
	}
	var names []string
	for _, ws := range list {
		if h.dir == ws.Path || strings.HasPrefix(h.dir, ws.Path+string(filepath.Separator)) {
			return ws, nil
		}
		names = append(names, ws.Branch)
	}
	switch len(list) {
	case 0:
		return caisson.Workspace{}, caisson.Errorf(caisson.CodeNotFound, "this repository has no workspace").
			WithHint("`caisson run` makes one; --no-workspace goes without.")
	case 1:
		return list[0], nil
	}
	return caisson.Workspace{}, caisson.Errorf(caisson.CodeAmbiguous, "this repository has %d workspaces: %s", len(list), strings.Join(names, ", ")).
		WithHint("Name one by its branch, or a sandbox by its number in `caisson sandbox ls`.").With("candidates", names)
}
