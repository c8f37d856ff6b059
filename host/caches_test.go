package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
)

func TestLendCaches(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"go/pkg/mod", "builds", ".npm/_cacache", ".npm/_logs", ".cargo/registry", ".cargo/bin", "real-pip", ".cache"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../real-pip", filepath.Join(home, ".cache/pip")); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(home, name) }
	vars := map[string]string{"HOME": home, "GOCACHE": at("builds")}
	var spec caisson.SandboxSpec
	lendCaches(&spec, []string{"go", "npm", "pip", "cargo"}, func(name string) string { return vars[name] })
	want := []caisson.Mount{
		{Source: at("go/pkg/mod"), Target: "/caches/go-mod", Layer: true},
		{Source: at("builds"), Target: "/caches/go-build", Layer: true},
		{Target: "/caches/npm", Layer: true},
		{Source: at(".npm/_cacache"), Target: "/caches/npm/_cacache", Layer: true},
		{Source: at("real-pip"), Target: "/caches/pip", Layer: true},
		{Target: "/caches/cargo", Layer: true},
		{Source: at(".cargo/registry"), Target: "/caches/cargo/registry", Layer: true},
	}
	if diff := cmp.Diff(want, spec.Mounts); diff != "" {
		t.Error(diff)
	}
	env := []string{
		"GOMODCACHE=/caches/go-mod", "GOCACHE=/caches/go-build", "npm_config_cache=/caches/npm",
		"PIP_CACHE_DIR=/caches/pip", "CARGO_HOME=/caches/cargo",
	}
	if diff := cmp.Diff(env, spec.Env); diff != "" {
		t.Error(diff)
	}
	// A person without any gets empty ones, and nothing is made.
	vars, spec = map[string]string{"HOME": t.TempDir()}, caisson.SandboxSpec{}
	lendCaches(&spec, []string{"go"}, func(name string) string { return vars[name] })
	if len(spec.Mounts) != 2 || spec.Mounts[0].Source != "" || !spec.Mounts[0].Layer {
		t.Errorf("%+v", spec.Mounts)
	}
}
