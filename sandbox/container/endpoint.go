package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// The engines' names in settings and records.
const (
	Docker        = "docker"
	Podman        = "podman"
	Colima        = "colima"
	OrbStack      = "orbstack"
	DockerDesktop = "docker-desktop"
)

// Names returns the engines of this package that an operating system can have,
// in order of preference.
func Names(goos string) []string {
	return slices.DeleteFunc(caisson.EngineNames(goos), func(name string) bool {
		return !slices.Contains([]string{Docker, Podman, Colima, OrbStack, DockerDesktop}, name)
	})
}

// place is where endpoints are looked for.
type place struct {
	goos   string
	env    func(string) string
	exists func(path string) bool
}

func here(goos string, env func(string) string) place {
	return place{goos: goos, env: env, exists: func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}}
}

// find returns the endpoint of an engine: what the engine's own variable or
// context says, else the first of its usual places where there is something,
// else the first of them. An engine's variable never speaks for another.
func (p place) find(name string) (string, error) {
	if !slices.Contains(Names(p.goos), name) {
		return "", caisson.Errorf(caisson.CodeUnsupported, "there is no engine %q on this system", name).
			WithHint("Container engines supported here: %s.", strings.Join(Names(p.goos), ", "))
	}
	said, by, err := p.said(name)
	if err != nil {
		return "", err
	}
	if said != "" {
		return said, local(said, by)
	}
	usual := p.usual(name)
	for _, path := range usual {
		if p.exists(path) {
			return p.url(path), nil
		}
	}
	return p.url(usual[0]), nil
}

// local refuses an endpoint on another machine: a workspace of this one cannot
// be shown there.
func local(endpoint, by string) error {
	for _, scheme := range []string{"unix:///", "npipe://"} {
		if rest, is := strings.CutPrefix(endpoint, scheme); is && rest != "" {
			return nil
		}
	}
	return caisson.Errorf(caisson.CodeEngineUnavailable, "%s names the engine at %q, and only engines of this machine, at a socket, can show a workspace of it", by, endpoint).
		WithHint("Unset it, or name a unix:// socket.")
}

func (p place) url(path string) string {
	if p.goos == "windows" {
		return "npipe://" + strings.ReplaceAll(path, `\`, "/")
	}
	return "unix://" + path
}

// said is what the engine's own settings say, and which of them.
func (p place) said(name string) (endpoint, by string, err error) {
	switch name {
	case Docker:
		if host := p.env("DOCKER_HOST"); host != "" {
			return host, "DOCKER_HOST", nil
		}
		return p.context()
	case Podman:
		if host := p.env("CONTAINER_HOST"); host != "" {
			return host, "CONTAINER_HOST", nil
		}
	}
	return "", "", nil
}

// context returns the endpoint of Docker's current context; "" for the default one.
func (p place) context() (endpoint, by string, err error) {
	dir := p.env("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(p.home(), ".docker")
	}
	name := p.env("DOCKER_CONTEXT")
	if name == "" {
		raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return "", "", nil // the default context is meant
		}
		if err != nil {
			return "", "", caisson.Errorf(caisson.CodeEngineUnavailable, "read Docker's settings: %w", err)
		}
		var settings struct{ CurrentContext string }
		if err := json.Unmarshal(raw, &settings); err != nil {
			return "", "", caisson.Errorf(caisson.CodeEngineUnavailable, "read Docker's settings in %s: %w", dir, err)
		}
		name = settings.CurrentContext
	}
	if name == "" || name == "default" {
		return "", "", nil
	}
	sum := sha256.Sum256([]byte(name))
	raw, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return "", "", caisson.Errorf(caisson.CodeEngineUnavailable, "Docker's context %q cannot be read: %w", name, err).
			WithHint("`docker context ls` lists those there are.")
	}
	endpoint = meta.Endpoints["docker"].Host
	if endpoint == "" {
		return "", "", caisson.Errorf(caisson.CodeEngineUnavailable, "Docker's context %q names no Docker endpoint", name).
			WithHint("`docker context ls` lists those there are.")
	}
	return endpoint, "Docker's context " + name, nil
}

func (p place) home() string {
	if p.goos == "windows" {
		return p.env("USERPROFILE")
	}
	return p.env("HOME")
}

// usual are the places where an engine listens if nobody says otherwise.
func (p place) usual(name string) []string {
	home := p.home()
	run := p.env("XDG_RUNTIME_DIR")
	if p.goos == "windows" {
		pipes := map[string]string{Docker: "docker_engine", DockerDesktop: "dockerDesktopLinuxEngine", Podman: "podman-machine-default"}
		return []string{`//./pipe/` + pipes[name]}
	}
	var paths []string
	switch name {
	case Docker:
		paths = append(paths, "/var/run/docker.sock")
		if run != "" {
			paths = append(paths, run+"/docker.sock")
		}
	case Podman:
		if run != "" {
			paths = append(paths, run+"/podman/podman.sock")
		}
		paths = append(paths, "/run/podman/podman.sock")
		if p.goos == "darwin" {
			paths = []string{home + "/.local/share/containers/podman/machine/podman.sock"}
		}
	case Colima:
		if dir := p.env("COLIMA_HOME"); dir != "" {
			return []string{dir + "/default/docker.sock"}
		}
		paths = append(paths, home+"/.colima/default/docker.sock", home+"/.config/colima/default/docker.sock")
	case OrbStack:
		paths = append(paths, home+"/.orbstack/run/docker.sock")
	case DockerDesktop:
		paths = append(paths, home+"/.docker/run/docker.sock")
		if p.goos == "linux" {
			paths = []string{home + "/.docker/desktop/docker.sock"}
		}
	}
	return paths
}
