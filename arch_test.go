package caisson_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/caisson-run/caisson"

// layers is the architecture: a package may import packages of a lower layer,
// and its own parent. A package that is not listed may not exist.
var layers = map[string]int{
	"":                     0,
	"internal/atomicfile":  0,
	"internal/localsocket": 0,
	"internal/lockfile":    0,
	"internal/proctree":    0,
	"internal/scratch":     0,
	"internal/fault":       -1, // below all: any package may have a place to die
	"internal/strictyaml":  0,
	"internal/glob":        0,
	"capture":              0,
	"guest/outlet":         -1, // below guest/plan and guest/wire, which carry its options
	"guest/pack":           -1,
	"guest/plan":           0,
	"process":              1,
	"guest/wire":           0,
	"guest/ctl":            0,
	"guest":                1,
	"guest/inside":         1,
	"guest/box":            1,
	"control/channel":      2,
	"config":               1,
	"gate":                 1,
	"gate/shell":           0,
	"ledger":               1,
	"ledger/sqlite":        1,
	"ledger/ledgertest":    1,
	"model":                1,
	"sandbox":              1,
	"schema":               1,
	"sandbox/sandboxtest":  2,
	"sandbox/mask":         1,
	"sandbox/layout":       2,
	"sandbox/namespace":    3,
	"sandbox/container":    3,
	"sandbox/egress":       2,
	"sandbox/egress/rule":  0,
	"sandbox/bubblewrap":   3,
	"sandbox/landlock":     3,
	"workspace":            2,
	"airlock":              2,
	"terminal":             1,
	"tool":                 2,
	"verb":                 3,
	"verb/declared":        0,
	"login":                3,
	"kernel":               3,
	"control":              3,
	"agent":                3,
	"task":                 5,
	"task/flow":            4,
	"host":                 6,
	"internal/cli":         8,
	"internal/docs":        9,
	"internal/testreport":  9,
	"cmd/caisson":          9,
	"cmd/caisson-guest":    9,
	"bench":                9,
	"demo":                 9,
}

// guestImports are the modules that the guest may be linked from beside ours
// and the standard library: it is the code that hostile programs talk to first.
var guestImports = []string{"golang.org/x/sys"}

func TestImportsGoDown(t *testing.T) {
	for _, dir := range packageDirs(t) {
		level, listed := layers[dir]
		if !listed {
			t.Errorf("package %q is not in the layer table", dir)
			continue
		}
		for _, imported := range imports(t, dir) {
			if imported == dir {
				continue
			}
			target := layers[imported]
			if target < level || imported == filepath.Dir(dir) || imported == "" {
				continue
			}
			t.Errorf("%q (layer %d) imports %q (layer %d): imports go down", dir, level, imported, target)
		}
	}
}

func TestGuestIsSmall(t *testing.T) {
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		if path == "net/http" {
			t.Error("the guest imports net/http")
		}
		first, _, _ := strings.Cut(path, "/")
		ours := path == module || strings.HasPrefix(path, module+"/")
		if strings.Contains(first, ".") && !ours {
			for _, allowed := range guestImports {
				if path == allowed || strings.HasPrefix(path, allowed+"/") {
					return
				}
			}
			t.Errorf("the guest imports %s", path)
			return
		}
		if !ours {
			if path == "C" || strings.HasPrefix(path, "vendor/") || strings.HasPrefix(path, "golang_org/") {
				return
			}
			if pkg, err := build.Import(path, "", 0); err == nil {
				for _, p := range pkg.Imports {
					visit(p)
				}
			}
			return
		}
		pkg, err := build.ImportDir("."+strings.TrimPrefix(path, module), 0)
		if err != nil {
			t.Fatalf("read %s: %v", path, err)
		}
		for _, p := range pkg.Imports {
			visit(p)
		}
	}
	visit(module + "/cmd/caisson-guest")
}

func packageDirs(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := d.Name()
		if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" || name == "examples" || name == "bin") {
			return filepath.SkipDir
		}
		if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) > 0 {
			if path == "." {
				path = ""
			}
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// imports returns the packages of this module that the package in dir imports,
// its tests left out: a test may look sideways at the real thing.
func imports(t *testing.T, dir string) []string {
	t.Helper()
	pkg, err := build.ImportDir("./"+dir, 0)
	if err != nil {
		if _, none := err.(*build.NoGoError); none { //nolint:errorlint // go/build returns it bare
			return nil
		}
		t.Fatalf("read %s: %v", dir, err)
	}
	var ours []string
	for _, path := range pkg.Imports {
		if path == module {
			ours = append(ours, "")
		} else if rest, ok := strings.CutPrefix(path, module+"/"); ok {
			ours = append(ours, rest)
		}
	}
	return ours
}
