package workspace

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// mountedIn lists what a person has mounted at directories or below them, as this
// process sees it: the paths, each as it is called in its directory. What is there
// is not the workspace's. It is moved along with a tree that is renamed, and would
// be removed with it. What is mounted where only other processes are is not moved,
// and is not listed.
func mountedIn(dirs ...string) ([]string, error) {
	all, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range dirs {
		dir, err := realPath(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // there is no such part
		}
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			if within(m.point, dir) {
				found = append(found, filepath.Clean("./"+strings.TrimPrefix(m.point, dir)))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// nothingMounted refuses where something is mounted in a directory that is to be
// removed with all that is in it.
func nothingMounted(dir string) error {
	found, err := mountedIn(dir)
	if err != nil {
		return failed("look what is mounted in "+dir, err)
	}
	if len(found) == 0 {
		return nil
	}
	at := filepath.Join(dir, found[0])
	return caisson.Errorf(caisson.CodeWorkspaceDirty, "something is mounted at %s, and would be removed too", printable(at)).
		WithHint("Unmount it (`umount %s`), then try again.", quoted(at))
}
