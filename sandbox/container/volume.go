package container

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/image"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox"
)

// maxVolumes is more than images have; each gets a private directory.
const maxVolumes = 32

// volumes puts a private directory wherever the image wants a volume: an engine
// would make one of its own there, without bounds, that can be written to. Where
// the image wants one in what is lent, or over what a box is made of, it is
// refused: the engine cannot be told to leave it out.
func (l *plans) volumes(img image.InspectResponse, name string, limits caisson.Limits, u user, engine string) error {
	if img.Config == nil {
		return nil
	}
	wanted := slices.Sorted(maps.Keys(img.Config.Volumes))
	if len(wanted) > maxVolumes {
		return unusable("image %s has %d volumes, more than %d", name, len(wanted), maxVolumes).WithHint("Name an image without volumes with `containers.image`.")
	}
	for _, volume := range wanted {
		at := path.Clean("/" + volume)
		if l.has(at) {
			continue
		}
		if in := l.inTheWay(at); in != "" {
			return unusable("image %s has a volume at %s, in the way of %s", name, volume, in).WithHint("Name an image without that volume with `containers.image`.")
		}
		l.tmpfs[at] = tmpfs(at, limits.Tmp, u, engine)
		l.plan.Private = append(l.plan.Private, at)
	}
	return nil
}

// has tells whether something of the box is mounted exactly there.
func (l *plans) has(at string) bool {
	if _, private := l.tmpfs[at]; private {
		return true
	}
	for _, b := range l.binds {
		if b.Target == at {
			return true
		}
	}
	return false
}

// inTheWay is what a directory at a path would cover.
func (l *plans) inTheWay(at string) string {
	for _, m := range l.plan.Mounts {
		if strings.HasPrefix(at, m.Target+"/") {
			return "what is lent at " + m.Target
		}
	}
	for _, own := range []string{"/proc", "/sys", "/dev", plan.GivenDir} {
		if sandbox.Overlap(at, own) {
			return own
		}
	}
	for _, system := range []string{"/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/run"} {
		if at == system {
			return system
		}
	}
	return ""
}
