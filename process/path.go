package process

import (
	"path/filepath"
	"strings"
)

// SafePath returns the directories of a PATH in which programs may be looked for:
// not those that mean another one wherever one stands, which may be a
// repository's, and not those below state, where agents write.
func SafePath(path, state string) string {
	var safe []string
	if resolved, err := filepath.EvalSymlinks(state); err == nil {
		state = resolved
	}
	for _, dir := range filepath.SplitList(path) {
		if resolved, err := filepath.EvalSymlinks(dir); filepath.IsAbs(dir) && err == nil && !strings.HasPrefix(resolved+"/", state+"/") {
			safe = append(safe, dir)
		}
	}
	return strings.Join(safe, string(filepath.ListSeparator))
}
