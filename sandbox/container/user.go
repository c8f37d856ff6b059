package container

import (
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
)

const (
	userName = "agent"
	// insideOther is the uid and gid inside where the caller has none that
	// counts there.
	insideOther = 1000
	// insideRoot is what they are where the caller is this machine's root: the
	// kernel's own ids, as the engine makes no user namespace. They are above all
	// that distributions and engines hand out, and below 2³¹.
	insideRoot = 2_000_000_001
)

// user is who a box runs as.
type user struct {
	uid, gid int // inside
	mode     container.UsernsMode
	// mapped: the files that are lent are shown as the box's user's own.
	mapped bool
	// weaker says why it runs as the kernel's root, if it does.
	weaker string
}

func (u user) String() string { return fmt.Sprintf("%d:%d", u.uid, u.gid) }

// userFor returns who a box of this caller's runs as. Where an engine maps
// users, files of the caller's must stay the box's own.
func userFor(uid, gid int, engine string, info system.Info) user {
	switch {
	case secured(info, "rootless") && engine == Podman && uid > 0:
		return user{uid: uid, gid: gid, mode: "keep-id"}
	case secured(info, "rootless"):
		// Its root is the caller, an ordinary user of this machine.
		return user{}
	case uid < 0: // this system has no such ids
		return user{uid: insideOther, gid: insideOther}
	case uid == 0:
		return user{uid: insideRoot, gid: insideRoot, mode: unmapped(info), mapped: true}
	}
	return user{uid: uid, gid: gid, mode: unmapped(info)}
}

// unmapped keeps an engine that would map users from doing so: a workspace
// would belong to nobody inside.
func unmapped(info system.Info) container.UsernsMode {
	if secured(info, "userns") {
		return "host"
	}
	return ""
}

// asRoot is u where files cannot be shown as another user's.
func (u user) asRoot(reason error) user {
	return user{mode: u.mode, weaker: fmt.Sprintf("it runs as the kernel's root without capabilities, because files here cannot be lent to another user: %v", reason)}
}
