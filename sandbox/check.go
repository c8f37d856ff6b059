package sandbox

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/glob"
)

// PrivateWorkspace is the working directory of a box that has no workspace.
const PrivateWorkspace = "/workspace"

var (
	validID  = regexp.MustCompile(`^s[0-9a-z]{1,40}$`)
	validEnv = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// reserved are the paths that an engine fills itself: nothing may be mounted
// over them or, for those that end in a slash, below them.
var reserved = []string{"/", "/proc/", "/sys/", "/dev/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/tmp", "/var", "/run"}

// Check returns the spec with its defaults filled in, or an error:
// CodePathInvalid for a path that cannot be lent, CodeLimitInvalid,
// CodeConfigInvalid for environment and controls.
func Check(spec caisson.SandboxSpec) (caisson.SandboxSpec, error) {
	if !validID.MatchString(string(spec.ID)) {
		return spec, caisson.Errorf(caisson.CodeUsage, "%q is not the id of a sandbox", string(spec.ID))
	}
	if spec.Require == nil {
		spec.Require = DefaultRequire()
	}
	if err := checkControls(spec.Require); err != nil {
		return spec, err
	}
	for _, kv := range spec.Env {
		if !validEnv.MatchString(kv) || strings.ContainsRune(kv, 0) {
			name, _, _ := strings.Cut(kv, "=") // not the value: it may be a secret
			return spec, caisson.Errorf(caisson.CodeConfigInvalid, "%q cannot be set in an environment", name)
		}
	}
	limits, err := checkLimits(spec.Limits)
	if err != nil {
		return spec, err
	}
	spec.Limits = limits
	if err := checkHide(spec.Hide); err != nil {
		return spec, err
	}
	spec.Mounts = slices.Clone(spec.Mounts)
	for i := range spec.Mounts {
		if m := spec.Mounts[i]; m.Layer && (m.Write || m.Source == "" && m.Target == "") {
			return spec, caisson.Errorf(caisson.CodePathInvalid, "a private layer at %q cannot also write to what it covers, and needs a place", m.Target)
		}
		if spec.Mounts[i].Target == "" {
			spec.Mounts[i].Target = spec.Mounts[i].Source
		}
	}
	return spec, checkPaths(spec)
}

// maxHide is how many patterns may be hidden: each is matched against every path.
const maxHide = 256

func checkHide(patterns []string) error {
	if len(patterns) > maxHide {
		return caisson.Errorf(caisson.CodeConfigInvalid, "%d patterns are to be hidden, more than %d", len(patterns), maxHide)
	}
	for _, p := range patterns {
		if _, err := glob.Beneath(p); err != nil {
			return caisson.Errorf(caisson.CodeConfigInvalid, "hide: %w", err)
		}
	}
	return nil
}

// Feature is what a spec may ask for and not every engine has.
type Feature string

// Features.
const (
	Hide   Feature = "hide"    // files of a workspace that are hidden
	Layers Feature = "caches"  // directories lent under a private layer
	Egress Feature = "network" // a way out
)

// Refuse is for an engine without these features: nil unless the spec asks for
// one of them.
func Refuse(engine string, spec caisson.SandboxSpec, without ...Feature) error {
	for _, feature := range without {
		switch {
		case feature == Hide && len(spec.Hide) > 0:
			return caisson.Errorf(caisson.CodeUnsupported, "the engine %s cannot hide files of a workspace (`hide`)", engine).
				WithHint("Use the engine namespace, bubblewrap or a container engine, or leave `hide` out of the config.")
		case feature == Layers && slices.ContainsFunc(spec.Mounts, func(m caisson.Mount) bool { return m.Layer }):
			return caisson.Errorf(caisson.CodeUnsupported, "the engine %s lends no directory under a private layer (`caches`)", engine).
				WithHint("Use the engine namespace, or leave `caches` out of your config.")
		case feature == Egress && spec.Egress != nil:
			return caisson.Errorf(caisson.CodeUnsupported, "the engine %s gives no way out to the network (`network`)", engine).
				WithHint("Use the engine namespace, bubblewrap or a container engine, or leave `network` out of your config.")
		}
	}
	return nil
}

func checkLimits(l caisson.Limits) (caisson.Limits, error) {
	for _, field := range []struct {
		name  string
		value *int64
		def   int64
	}{
		{"memory", &l.Memory, 4 << 30},
		{"pids", &l.Pids, 512},
		{"cpus", &l.CPUs, int64(max(1, runtime.NumCPU()-1))},
		{"files", &l.Files, 4096},
		{"size", &l.Size, 16 << 30},
		{"tmp", &l.Tmp, 1 << 30},
	} {
		if *field.value < 0 {
			return l, caisson.Errorf(caisson.CodeLimitInvalid, "the limit of %s is %d; it must be positive", field.name, *field.value)
		}
		*field.value = cmp.Or(*field.value, field.def)
	}
	// Fewer than this, and the guest itself cannot start a command.
	if l.Pids < 16 || l.Memory < 16<<20 || l.Files < 64 {
		return l, caisson.Errorf(caisson.CodeLimitInvalid, "a sandbox needs at least 16 processes and threads, 16 MiB of memory and 64 open files")
	}
	l.Tmp = min(l.Tmp, max(least, (l.Memory-guestMemory)/inMemory))
	return l, nil
}

// Files outlive who wrote them. Where they fill a sandbox's memory, nothing is left
// there that could be ended for it but the guest, and the sandbox with it. So what a
// box has in memory, /tmp, /var/tmp and /dev/shm, leaves the guest room. Layers and the
// volumes that an image declares are not counted.
const (
	inMemory    = 3
	guestMemory = 16 << 20
	least       = 1 << 20
)

func checkPaths(spec caisson.SandboxSpec) error {
	dirs := append([]string{spec.Workspace, spec.GitDir, spec.Home, spec.Programs}, spec.GitObjects...)
	for _, path := range dirs {
		if path == "" {
			continue
		}
		info, err := checkSource(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return caisson.Errorf(caisson.CodePathInvalid, "%s is not a directory", path)
		}
	}
	if spec.GitCover != "" {
		info, err := checkSource(spec.GitCover)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || spec.Workspace == "" {
			return caisson.Errorf(caisson.CodePathInvalid, "%s cannot be shown in place of the workspace's .git", spec.GitCover)
		}
	}
	targets := append([]string{spec.Workspace, spec.GitDir}, spec.GitObjects...)
	if spec.Programs != "" {
		targets = append(targets, caisson.ProgramsDir)
	}
	for _, m := range spec.GitTrees {
		if spec.Workspace == "" || !strings.HasPrefix(m.Target, spec.Workspace+"/") || m.Layer {
			return caisson.Errorf(caisson.CodePathInvalid, "%s is no place in the workspace for a submodule", m.Target)
		}
	}
	for _, m := range append(slices.Clone(spec.Mounts), spec.GitTrees...) {
		targets = append(targets, m.Target)
		if m.Source == "" && m.Layer {
			continue
		}
		info, err := checkSource(m.Source)
		if err != nil {
			return err
		}
		if m.Layer && !info.IsDir() {
			return caisson.Errorf(caisson.CodePathInvalid, "%s is not a directory: only one can have a private layer", m.Source)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return caisson.Errorf(caisson.CodePathInvalid, "%s is neither a file nor a directory: sockets and devices of the host are not lent", m.Source)
		}
	}
	if err := checkTargets(targets); err != nil {
		return err
	}
	return checkPoints(Mounts(spec))
}

// Mounts lists what a checked spec lends but for HOME, parents before what
// lies in them.
func Mounts(spec caisson.SandboxSpec) []caisson.Mount {
	mounts := slices.Clone(spec.Mounts)
	if spec.Workspace != "" {
		mounts = append(mounts, caisson.Mount{Source: spec.Workspace, Target: spec.Workspace, Write: !spec.ReadOnly})
	}
	if spec.GitCover != "" {
		mounts = append(mounts, caisson.Mount{Source: spec.GitCover, Target: filepath.Join(spec.Workspace, ".git")})
	}
	if spec.GitDir != "" && (spec.Workspace == "" || !strings.HasPrefix(spec.GitDir, spec.Workspace+"/")) {
		mounts = append(mounts, caisson.Mount{Source: spec.GitDir, Target: spec.GitDir, Write: true})
	}
	for _, m := range spec.GitTrees {
		mounts = append(mounts, caisson.Mount{Source: m.Source, Target: m.Target, Write: !spec.ReadOnly})
	}
	for _, path := range spec.GitObjects {
		mounts = append(mounts, caisson.Mount{Source: path, Target: path})
	}
	if spec.Programs != "" {
		mounts = append(mounts, caisson.Mount{Source: spec.Programs, Target: caisson.ProgramsDir})
	}
	slices.SortStableFunc(mounts, func(a, b caisson.Mount) int { return strings.Compare(a.Target, b.Target) })
	return mounts
}

// checkPoints sees to it that what is mounted inside of something lent has a
// place there: none is ever made on the host.
func checkPoints(mounts []caisson.Mount) error {
	for i, m := range mounts {
		for _, outer := range slices.Backward(mounts[:i]) {
			rest, within := strings.CutPrefix(m.Target, outer.Target+"/")
			if !within {
				continue
			}
			if outer.Source == "" {
				break // its own, in which a place is made
			}
			point := filepath.Join(outer.Source, rest)
			info, err := checkSource(point)
			if err != nil {
				return err
			}
			isDir := true
			if m.Source != "" {
				what, err := os.Lstat(m.Source)
				if err != nil {
					return caisson.Errorf(caisson.CodePathInvalid, "%s cannot be looked at: %w", m.Source, err)
				}
				isDir = what.IsDir()
			}
			if info.IsDir() != isDir {
				return caisson.Errorf(caisson.CodePathInvalid, "%s cannot be shown in place of %s: one is a directory", m.Source, point)
			}
			break
		}
	}
	return nil
}

// checkSource looks at a path of the host that is to be lent.
func checkSource(path string) (fs.FileInfo, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "%s is not there: %w", path, err).WithHint("Make it first; nothing is created for a sandbox.")
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "%s cannot be looked at: %w", path, err)
	}
	if real != path {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "%s goes through a link", path).WithHint("Name what it leads to: %s.", real)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "%s cannot be looked at: %w", path, err)
	}
	return info, nil
}

func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return caisson.Errorf(caisson.CodePathInvalid, "%q is not an absolute path in its shortest form", path)
	}
	// Plans and records are JSON, in which such a name becomes that of another file.
	if !utf8.ValidString(path) {
		return caisson.Errorf(caisson.CodePathInvalid, "%q is not UTF-8", path).WithHint("Rename it; files inside may have any name.")
	}
	return nil
}

func checkTargets(targets []string) error {
	seen := map[string]bool{}
	for _, path := range targets {
		if path == "" {
			continue
		}
		if err := checkPath(path); err != nil {
			return err
		}
		for _, r := range reserved {
			if path == strings.TrimSuffix(r, "/") || path == r || len(r) > 1 && strings.HasSuffix(r, "/") && strings.HasPrefix(path, r) {
				return caisson.Errorf(caisson.CodePathInvalid, "nothing can be mounted at %s: the sandbox has its own", path)
			}
		}
		if seen[path] {
			return caisson.Errorf(caisson.CodePathInvalid, "%s is wanted twice", path)
		}
		seen[path] = true
	}
	return nil
}

// Overlap tells whether one of two clean absolute paths is the other or lies in it.
func Overlap(a, b string) bool {
	return a == b || a == "/" || b == "/" || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}
