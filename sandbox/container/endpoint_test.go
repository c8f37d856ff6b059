package container

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// a place of a test: nothing of this machine is looked at but Docker's settings,
// which are where the environment says.
func at(goos string, env map[string]string, there ...string) place {
	return place{
		goos:   goos,
		env:    func(name string) string { return env[name] },
		exists: func(path string) bool { return slices.Contains(there, path) },
	}
}

func TestFindUsual(t *testing.T) {
	type vars = map[string]string
	linux, mac, windows := vars{"HOME": "/home/u"}, vars{"HOME": "/Users/u"}, vars{"USERPROFILE": `C:\Users\u`}
	session := vars{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/1000"}
	for _, c := range []struct {
		goos, name string
		env        vars
		there      []string
		want       string
	}{
		{"linux", Docker, linux, nil, "unix:///var/run/docker.sock"},
		{"linux", Docker, session, []string{"/run/user/1000/docker.sock"}, "unix:///run/user/1000/docker.sock"},
		{"linux", Docker, session, []string{"/run/user/1000/docker.sock", "/var/run/docker.sock"}, "unix:///var/run/docker.sock"},
		{"linux", Podman, linux, nil, "unix:///run/podman/podman.sock"},
		{"linux", Podman, session, nil, "unix:///run/user/1000/podman/podman.sock"},
		{"linux", Podman, session, []string{"/run/podman/podman.sock"}, "unix:///run/podman/podman.sock"},
		{"linux", Colima, linux, nil, "unix:///home/u/.colima/default/docker.sock"},
		{"linux", Colima, linux, []string{"/home/u/.config/colima/default/docker.sock"}, "unix:///home/u/.config/colima/default/docker.sock"},
		{"linux", Colima, vars{"HOME": "/home/u", "COLIMA_HOME": "/c"}, []string{"/home/u/.colima/default/docker.sock"}, "unix:///c/default/docker.sock"},
		{"linux", DockerDesktop, linux, nil, "unix:///home/u/.docker/desktop/docker.sock"},
		{"darwin", Docker, mac, nil, "unix:///var/run/docker.sock"},
		{"darwin", Podman, mac, nil, "unix:///Users/u/.local/share/containers/podman/machine/podman.sock"},
		{"darwin", Colima, mac, nil, "unix:///Users/u/.colima/default/docker.sock"},
		{"darwin", OrbStack, mac, nil, "unix:///Users/u/.orbstack/run/docker.sock"},
		{"darwin", DockerDesktop, mac, nil, "unix:///Users/u/.docker/run/docker.sock"},
		{"windows", Docker, windows, nil, "npipe:////./pipe/docker_engine"},
		{"windows", DockerDesktop, windows, nil, "npipe:////./pipe/dockerDesktopLinuxEngine"},
		{"windows", Podman, windows, nil, "npipe:////./pipe/podman-machine-default"},
		// An engine's variable speaks for it alone.
		{"linux", Docker, vars{"HOME": "/home/u", "DOCKER_HOST": "unix:///d.sock", "CONTAINER_HOST": "unix:///p.sock"}, nil, "unix:///d.sock"},
		{"linux", Podman, vars{"HOME": "/home/u", "DOCKER_HOST": "unix:///d.sock", "CONTAINER_HOST": "unix:///p.sock"}, nil, "unix:///p.sock"},
		{"linux", Colima, vars{"HOME": "/home/u", "DOCKER_HOST": "unix:///d.sock"}, nil, "unix:///home/u/.colima/default/docker.sock"},
		{"darwin", DockerDesktop, vars{"HOME": "/Users/u", "DOCKER_HOST": "unix:///d.sock"}, nil, "unix:///Users/u/.docker/run/docker.sock"},
		{"windows", Docker, vars{"USERPROFILE": `C:\Users\u`, "DOCKER_HOST": "npipe:////./pipe/other"}, nil, "npipe:////./pipe/other"},
	} {
		if got, err := at(c.goos, c.env, c.there...).find(c.name); err != nil || got != c.want {
			t.Errorf("%s on %s with %v: %q, %v; want %q", c.name, c.goos, c.env, got, err, c.want)
		}
	}
}

// What is not an engine of the system is refused with those that are, and what
// is on another machine, or cannot be, with who said it.
func TestFindRefuses(t *testing.T) {
	home := map[string]string{"HOME": "/home/u"}
	for _, c := range []struct {
		goos, name string
		env        map[string]string
		code       caisson.Code
		says, hint string
	}{
		{"linux", "nonesuch", home, caisson.CodeUnsupported, `no engine "nonesuch"`, "docker, podman, colima, docker-desktop."},
		{"linux", OrbStack, home, caisson.CodeUnsupported, "orbstack", "docker, podman, colima, docker-desktop."},
		{"linux", "namespace", home, caisson.CodeUnsupported, "namespace", "docker, podman, colima, docker-desktop."},
		{"darwin", "", home, caisson.CodeUnsupported, `""`, "docker, podman, colima, orbstack, docker-desktop."},
		{"windows", Colima, home, caisson.CodeUnsupported, "colima", "docker, podman, docker-desktop."},
		{"linux", Docker, map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"}, caisson.CodeEngineUnavailable, `DOCKER_HOST names the engine at "tcp://10.0.0.1:2375"`, "unix://"},
		{"linux", Docker, map[string]string{"DOCKER_HOST": "ssh://host"}, caisson.CodeEngineUnavailable, "ssh://host", "unix://"},
		{"linux", Docker, map[string]string{"DOCKER_HOST": "unix://"}, caisson.CodeEngineUnavailable, "unix://", "unix://"},
		{"linux", Docker, map[string]string{"DOCKER_HOST": "/var/run/docker.sock"}, caisson.CodeEngineUnavailable, "/var/run/docker.sock", "unix://"},
		{"linux", Docker, map[string]string{"DOCKER_HOST": "unix://rel/docker.sock"}, caisson.CodeEngineUnavailable, "unix://rel", "unix://"},
		{"linux", Podman, map[string]string{"CONTAINER_HOST": "ssh://core@localhost:1/run/podman.sock"}, caisson.CodeEngineUnavailable, "CONTAINER_HOST", "unix://"},
	} {
		got, err := at(c.goos, c.env).find(c.name)
		if err == nil {
			t.Errorf("%q on %s with %v: %q", c.name, c.goos, c.env, got)
			continue
		}
		e := caisson.AsError(err)
		if e.Code != c.code || !strings.Contains(e.Error(), c.says) || !strings.Contains(e.HintText(), c.hint) {
			t.Errorf("%q on %s with %v: %q, %v (%s)", c.name, c.goos, c.env, got, err, e.HintText())
		}
	}
}

// Docker's context says where its engine is, unless DOCKER_HOST does; and it
// says so of no other engine.
func TestFindContext(t *testing.T) {
	dir := t.TempDir()
	config := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	context := func(name, text string) {
		t.Helper()
		sum := sha256.Sum256([]byte(name))
		at := filepath.Join(dir, "contexts/meta", hex.EncodeToString(sum[:]))
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "meta.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	context("colima", `{"Name":"colima","Endpoints":{"docker":{"Host":"unix:///c.sock"}}}`)
	context("far", `{"Endpoints":{"docker":{"Host":"ssh://far"}}}`)
	context("cluster", `{"Endpoints":{"kubernetes":{"Host":"https://k"}}}`)
	context("broken", `{"Endpoints":`)
	find := func(name string, env map[string]string) (string, error) {
		env["DOCKER_CONFIG"], env["HOME"] = dir, "/home/u"
		return at("linux", env).find(name)
	}
	const usual = "unix:///var/run/docker.sock"
	for _, c := range []struct {
		config string
		env    map[string]string
		want   string
		says   string
	}{
		{`{}`, nil, usual, ""},
		{`{"currentContext":"default"}`, nil, usual, ""},
		{`{"currentContext":"colima"}`, nil, "unix:///c.sock", ""},
		{`{"currentContext":"colima"}`, map[string]string{"DOCKER_HOST": "unix:///h.sock"}, "unix:///h.sock", ""},
		{`{"currentContext":"colima"}`, map[string]string{"DOCKER_CONTEXT": "default"}, usual, ""},
		{`{}`, map[string]string{"DOCKER_CONTEXT": "colima"}, "unix:///c.sock", ""},
		{`{"currentContext":"far"}`, nil, "", "Docker's context far"},
		{`{"currentContext":"cluster"}`, nil, "", "names no Docker endpoint"},
		{`{"currentContext":"broken"}`, nil, "", "broken"},
		{`{"currentContext":"gone"}`, nil, "", `context "gone"`},
		{`{"currentContext":"../../x"}`, nil, "", "../../x"},
		{`{"currentContext":`, nil, "", "Docker's settings"},
	} {
		config(c.config)
		if c.env == nil {
			c.env = map[string]string{}
		}
		got, err := find(Docker, c.env)
		if c.says == "" && (err != nil || got != c.want) || c.says != "" && (caisson.CodeOf(err) != caisson.CodeEngineUnavailable || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s with %v: %q, %v; want %q %s", c.config, c.env, got, err, c.want, c.says)
		}
	}
	config(`{"currentContext":"far"}`)
	if got, err := find(DockerDesktop, map[string]string{}); err != nil || got != "unix:///home/u/.docker/desktop/docker.sock" {
		t.Errorf("docker-desktop with a context of Docker's: %q, %v", got, err)
	}
	if got, err := find(Podman, map[string]string{}); err != nil || got != "unix:///run/podman/podman.sock" {
		t.Errorf("podman with a context of Docker's: %q, %v", got, err)
	}
}

// Settings that cannot be read are not settings that are not there.
func TestFindUnreadable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "config.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := at("linux", map[string]string{"DOCKER_CONFIG": dir}).find(Docker); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
		t.Errorf("%v, want engine-unavailable", err)
	}
}

func TestNames(t *testing.T) {
	for goos, want := range map[string]string{
		"linux": "docker podman colima docker-desktop", "darwin": "docker podman colima orbstack docker-desktop", "windows": "docker podman docker-desktop", "plan9": "",
	} {
		if got := strings.Join(Names(goos), " "); got != want {
			t.Errorf("%s: %s", goos, got)
		}
	}
	if e := New(Options{Name: "nonesuch"}); !strings.Contains(e.endpoint(), strings.Join(Names(runtime.GOOS), ", ")) && !strings.Contains(e.endpoint(), "no engine") {
		t.Error(e.endpoint())
	}
}
