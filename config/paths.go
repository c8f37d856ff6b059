package config

import (
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// Dirs are the directories of a user.
type Dirs struct {
	Config  string // settings and policy
	State   string // ledger, workspaces, sandboxes, spills, trash
	Runtime string // sockets and instance locks; State where there is no runtime directory
}

// Paths finds the directories by the XDG base directory rules: a variable that
// is not an absolute path counts as unset. getenv is as os.Getenv.
func Paths(getenv func(string) string) (Dirs, error) {
	home := getenv("HOME")
	base := func(variable, fallback string) (string, error) {
		if dir := getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "caisson"), nil
		}
		if !filepath.IsAbs(home) {
			return "", caisson.Errorf(caisson.CodeConfigInvalid, "neither %s nor HOME is an absolute path", variable).
				WithHint("Set HOME.")
		}
		return filepath.Join(home, fallback, "caisson"), nil
	}
	var d Dirs
	var err error
	if d.Config, err = base("XDG_CONFIG_HOME", ".config"); err != nil {
		return Dirs{}, err
	}
	if d.State, err = base("XDG_STATE_HOME", ".local/state"); err != nil {
		return Dirs{}, err
	}
	d.Runtime = d.State
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		d.Runtime = filepath.Join(dir, "caisson")
	}
	return d, nil
}

// WithState returns d with another state directory, as the setting state_dir
// says; empty leaves it.
func (d Dirs) WithState(dir string) Dirs {
	if dir == "" {
		return d
	}
	if d.Runtime == d.State {
		d.Runtime = dir
	}
	d.State = dir
	return d
}

// UserConfig is the user's settings file.
func (d Dirs) UserConfig() string { return filepath.Join(d.Config, "config.yaml") }

// UserPolicy is the user's policy file.
func (d Dirs) UserPolicy() string { return filepath.Join(d.Config, "policy.yaml") }

// Ledger is the SQLite ledger.
func (d Dirs) Ledger() string { return filepath.Join(d.State, "ledger.db") }

// Workspaces holds the worktrees, by repository and name.
func (d Dirs) Workspaces() string { return filepath.Join(d.State, "workspaces") }

// Sandboxes holds a directory for each sandbox.
func (d Dirs) Sandboxes() string { return filepath.Join(d.State, "sandboxes") }

// Programs holds the programs that sandboxes are lent, each by its digest.
func (d Dirs) Programs() string { return filepath.Join(d.State, "programs") }

// Spill holds full outputs, by run and call.
func (d Dirs) Spill() string { return filepath.Join(d.State, "spill") }

// Trash holds removed workspaces until they age out.
func (d Dirs) Trash() string { return filepath.Join(d.State, "trash") }

// Instances holds the locks of running caisson processes.
func (d Dirs) Instances() string { return filepath.Join(d.Runtime, "instances") }

// Files of a repository, relative to its top. They are read as git objects of a
// base commit.
const (
	RepositoryConfig = ".caisson/config.yaml"
	RepositoryPolicy = ".caisson/policy.yaml"
)
