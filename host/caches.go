package host

import (
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// cachesDir is where caches are inside.
const cachesDir = "/caches"

// cache is what a toolchain keeps between builds: nothing of it says who the
// person is. What lies beside it may (cargo's credentials, npm's logs), and is
// not lent.
type cache struct {
	variable string // that names its place to the toolchain
	dir      string // in cachesDir
	home     string // the same of the person's, if the variable is not set
	// parts are the directories of home that are lent; none: home itself.
	parts []string
}

func cachesOf(toolchain string) []cache {
	return map[string][]cache{
		"go": {
			{"GOMODCACHE", "go-mod", "go/pkg/mod", nil},
			{"GOCACHE", "go-build", ".cache/go-build", nil},
		},
		"npm":   {{"npm_config_cache", "npm", ".npm", []string{"_cacache"}}},
		"pip":   {{"PIP_CACHE_DIR", "pip", ".cache/pip", nil}},
		"cargo": {{"CARGO_HOME", "cargo", ".cargo", []string{"registry", "git"}}},
	}[toolchain]
}

// lendCaches lends the person's caches under private layers, and tells the
// toolchains inside where they are. One that the person does not have is empty.
func lendCaches(spec *caisson.SandboxSpec, names []string, env func(string) string) {
	for _, name := range names {
		for _, c := range cachesOf(name) {
			at := filepath.Join(cachesDir, c.dir)
			spec.Env = append(spec.Env, c.variable+"="+at)
			from := c.place(env)
			if len(c.parts) == 0 {
				spec.Mounts = append(spec.Mounts, caisson.Mount{Source: from, Target: at, Layer: true})
				continue
			}
			spec.Mounts = append(spec.Mounts, caisson.Mount{Target: at, Layer: true})
			for _, part := range c.parts {
				if dir := directory(filepath.Join(from, part)); from != "" && dir != "" {
					spec.Mounts = append(spec.Mounts, caisson.Mount{Source: dir, Target: filepath.Join(at, part), Layer: true})
				}
			}
		}
	}
}

// place returns where the person has the cache, empty for nowhere.
func (c cache) place(env func(string) string) string {
	if dir := env(c.variable); filepath.IsAbs(dir) {
		return directory(dir)
	}
	home := env("HOME")
	if !filepath.IsAbs(home) {
		return ""
	}
	if c.variable == "GOMODCACHE" {
		if path := filepath.SplitList(env("GOPATH")); len(path) > 0 && filepath.IsAbs(path[0]) {
			return directory(filepath.Join(path[0], "pkg/mod"))
		}
	}
	return directory(filepath.Join(home, c.home))
}

// directory resolves the links of a directory's path, which the person may use;
// empty if it is none.
func directory(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return ""
	}
	return real
}
