package host

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gate"
	"github.com/caisson-run/caisson/model"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/verb"
	"github.com/caisson-run/caisson/verb/declared"
)

// maxSettings bounds a settings or policy file of a repository.
const maxSettings = 1 << 20

// readOwn reads a file of the user's; one that does not exist is none.
func readOwn(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeConfigInvalid, "read %s: %w", path, err)
	}
	return raw, nil
}

// repoFiles are the settings of a repository as its base commit has them.
type repoFiles struct{ config, policy []byte }

// digest pins both files; empty where the repository has none.
func (f repoFiles) digest() caisson.Digest {
	if f.config == nil && f.policy == nil {
		return ""
	}
	return caisson.DigestOf([]byte(caisson.DigestOf(f.config) + caisson.DigestOf(f.policy)))
}

// repository reads the settings of the repository around dir at a revision
// (empty: HEAD), as git objects: never from a tree that an agent writes.
// A dir outside any repository has none.
func (h *Host) repository(ctx context.Context, dir, rev string) (repoFiles, error) {
	files, err := h.workspaces.FilesAt(ctx, dir, rev, maxSettings, config.RepositoryConfig, config.RepositoryPolicy)
	if caisson.CodeOf(err) == caisson.CodeNoRepository {
		return repoFiles{}, nil
	}
	if err != nil {
		return repoFiles{}, err
	}
	return repoFiles{config: files[config.RepositoryConfig], policy: files[config.RepositoryPolicy]}, nil
}

// settingsOf reads the settings of a workspace's repository, as the commit has
// them that a person chose: what an agent names as a base may be its own.
func (h *Host) settingsOf(ctx context.Context, ws caisson.Workspace) (repoFiles, error) {
	return h.repository(ctx, ws.Path, settingsAt(ws))
}

func settingsAt(ws caisson.Workspace) string { return cmp.Or(ws.Settings, ws.Base) }

// configWith returns the settings that hold under a repository's. Where those
// cannot be read, and that is no error for what this host is opened for, it
// returns the user's, or what is left of them.
func (h *Host) configWith(repo repoFiles) (config.Config, error) {
	own := config.File{Name: h.Paths.UserConfig()}
	raw, err := readOwn(own.Name)
	if err == nil {
		own.Data = raw
		c, loadErr := loadConfig(own, repo)
		if loadErr == nil || h.unread == nil {
			return c, loadErr
		}
		err = loadErr
	}
	if h.unread == nil {
		return config.Config{}, err
	}
	h.unread(err)
	if c, ownErr := loadConfig(own, repoFiles{}); ownErr == nil && raw != nil {
		return c, nil // it is the repository's that cannot be read
	}
	h.salvaged = true
	return config.Salvage(own), nil
}

func loadConfig(own config.File, repo repoFiles) (config.Config, error) {
	if own.Data == nil {
		own = config.File{}
	}
	theirs := config.File{}
	if repo.config != nil {
		theirs = config.File{Name: config.RepositoryConfig, Data: repo.config}
	}
	return config.Load(own, theirs)
}

// policyWith loads the policy that holds under a repository's. verbs are the
// declared ones of the very settings that they are offered by: what is offered
// and how it is ruled come from one reading, however long this process has lived.
func (h *Host) policyWith(preset string, repo repoFiles, verbs []declared.Verb) (*gate.Policy, error) {
	src := gate.Sources{Preset: preset, Tools: specsOf(allTools(tool.Options{}), allVerbs(verbs, verb.Scene{})), Verbs: rulings(verbs)}
	raw, err := readOwn(h.Paths.UserPolicy())
	if err != nil {
		return nil, err
	}
	if raw != nil {
		src.User = []gate.File{{Name: h.Paths.UserPolicy(), Data: raw}}
	}
	if repo.policy != nil {
		src.Repository = []gate.File{{Name: config.RepositoryPolicy, Data: repo.policy}}
	}
	return gate.Load(src)
}

func specsOf(all ...[]caisson.Tool) []caisson.ToolSpec {
	var specs []caisson.ToolSpec
	for _, t := range slices.Concat(all...) {
		specs = append(specs, t.Spec())
	}
	return specs
}

// maxSilence is how long a model may say nothing: large ones think for a minute.
const maxSilence = 3 * time.Minute

// openModel opens the model of a run, with retry and a bound on silence.
func (h *Host) openModel(ctx context.Context, spec caisson.RunSpec, c config.Config) (caisson.Model, error) {
	if spec.Model == "" {
		return nil, caisson.Errorf(caisson.CodeModelUnknown, "no model is named").
			WithHint("Name one with --model or `model:` in %s, e.g. anthropic/claude-sonnet-4-5.", h.Paths.UserConfig())
	}
	m, err := model.Open(ctx, spec.Model, model.Options{Getenv: h.env, Prices: c.Prices})
	if err != nil {
		return nil, err
	}
	return model.Retry(model.Idle(m, maxSilence), model.RetryOptions{}), nil
}

// scriptPath makes the path of a scripted model absolute, as a run may be
// taken up from another directory.
func (h *Host) scriptPath(ref string) string {
	const script = "script:"
	if len(ref) > len(script) && ref[:len(script)] == script && !filepath.IsAbs(ref[len(script):]) {
		return script + filepath.Join(h.dir, ref[len(script):])
	}
	return ref
}
