package tool

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/capture"
)

// spillFloor is what whole outputs leave free on their disk, where the record
// lies too: what a program inside prints is for it to say.
const spillFloor = 2 << 30

// spillCap returns how much of an output may be kept in a directory, which need
// not be there yet; 0: nothing. Outputs that are under way at the same time do
// not know of each other.
func spillCap(dir string) int64 {
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil {
			return capFor(int64(st.Bavail) * int64(st.Bsize)) //nolint:gosec,unconvert // no disk is that large; the type differs by system
		}
		if dir == filepath.Dir(dir) {
			return capture.DefaultSpillCap // a system that does not tell is not full
		}
	}
}

func capFor(free int64) int64 { return max(0, min(free-spillFloor, capture.DefaultSpillCap)) }
