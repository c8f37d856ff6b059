//go:build linux

package layout

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
)

// OutsideRoot is what [caisson.InsideRoot] is on the host: above all that
// distributions and container engines hand out (systemd's containers end
// at 1,879,048,191), below 2³¹, which some programs take for negative.
const OutsideRoot = 2_000_000_001

// User is who a box runs as: the ids inside, and what they are on the host.
type User struct {
	Inside, InsideGroup   int
	Outside, OutsideGroup int
	// Mapped: files are lent through idmapped mounts, as Outside's.
	Mapped bool
	// Weaker says why it runs as the kernel's root, if it does.
	Weaker string
}

// CallingUser is the user of a box that this process opens.
func CallingUser() User {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid != 0 {
		return User{Inside: uid, InsideGroup: gid, Outside: uid, OutsideGroup: gid}
	}
	u := User{Inside: caisson.InsideRoot, InsideGroup: caisson.InsideRoot, Outside: 0, OutsideGroup: 0}
	if kernelRoot() {
		u.Outside, u.OutsideGroup, u.Mapped = OutsideRoot, OutsideRoot, true
	}
	return u
}

// kernelRoot tells whether root here is root of the machine, and not of a user
// namespace, where it is an ordinary user: it stays so for the life of a process
// with several threads.
var kernelRoot = sync.OnceValue(func() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(raw))
	return err != nil || len(fields) == 3 && fields[1] == "0" && fields[2] == "4294967295"
})

// asRoot is u where files cannot be lent to another user.
func (u User) asRoot(reason error) User {
	u.Outside, u.OutsideGroup, u.Mapped = 0, 0, false
	u.Weaker = fmt.Sprintf("it runs as the kernel's root without capabilities, because files here cannot be lent to another user: %v", reason)
	return u
}

// set-up needs these, and loses them before anything else runs.
var setUpCapabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP}

// layerCapabilities are those with which the kernel works on a private layer, as
// whoever made it. Programs inside never have them.
var layerCapabilities = []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID}

const allNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Attributes are how a guest is started for u in namespaces of its own, with
// the capabilities that set-up needs.
func (l *Layout) Attributes(u User) *syscall.SysProcAttr {
	capabilities := setUpCapabilities
	if slices.ContainsFunc(l.Plan.Mounts, func(m plan.Mount) bool { return m.Layer }) {
		capabilities = slices.Concat(setUpCapabilities, layerCapabilities)
	}
	attr := &syscall.SysProcAttr{
		Setsid: true, Cloneflags: allNamespaces, AmbientCaps: capabilities,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: u.Inside, HostID: u.Outside, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: u.InsideGroup, HostID: u.OutsideGroup, Size: 1}},
	}
	if os.Geteuid() == 0 {
		// Root's supplementary groups would go on to count inside; root of a user
		// namespace may be kept from dropping them, and then they are its user's.
		drop := mayDropGroups()
		attr.GidMappingsEnableSetgroups = drop
		attr.Credential = &syscall.Credential{Uid: uint32(u.Inside), Gid: uint32(u.InsideGroup), NoSetGroups: !drop}
	}
	return attr
}

// mayDropGroups tells whether the user namespace lets its root do so, which was
// settled before it had one.
var mayDropGroups = sync.OnceValue(func() bool {
	raw, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(raw)) == "allow"
})

// owner is who owns a file on disk.
type owner struct{ uid, gid uint32 }

// Lender lends files to the users of boxes. Safe for concurrent use.
type Lender struct {
	program *Program
	etc     etcList

	mu     sync.Mutex
	idmaps map[owner]*os.File
}

// NewLender returns one whose user namespaces a process of the program makes.
func NewLender(program *Program) *Lender {
	return &Lender{program: program, idmaps: map[owner]*os.File{}}
}

// Close releases what is kept between boxes.
func (d *Lender) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.idmaps {
		f.Close()
	}
	clear(d.idmaps)
	return nil
}

// KeepsGroups tells whether the caller has groups that count inside too: an
// ordinary user may not drop any.
func KeepsGroups() bool {
	if mayDropGroups() && os.Geteuid() == 0 {
		return false
	}
	groups, err := os.Getgroups()
	return err != nil || slices.ContainsFunc(groups, func(g int) bool { return g != os.Getegid() })
}

// Lend opens a copy of the mounts at path, in which no component may be a link,
// whose files, where they belong to the path's owner, belong to the box's user.
func (d *Lender) Lend(path string, u User) (*os.File, error) {
	at, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("copy mount %s: %w", path, err)
	}
	tree := os.NewFile(uintptr(fd), path)
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if u.Mapped {
		var st unix.Stat_t
		if err = unix.Fstat(at, &st); err == nil {
			err = d.mapOwner(&attr, owner{st.Uid, st.Gid}, u)
		}
	}
	if err == nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
		if err != nil && u.Mapped {
			err = &unmappableError{path, err}
		}
	}
	if err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// unmappableError says that a file system does not let its owners be mapped.
type unmappableError struct {
	path string
	err  error
}

func (e *unmappableError) Error() string { return fmt.Sprintf("map owner of %s: %v", e.path, e.err) }
func (e *unmappableError) Unwrap() error { return e.err }

func (d *Lender) mapOwner(attr *unix.MountAttr, o owner, u User) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	file := d.idmaps[o]
	if file == nil {
		var err error
		if file, err = makeIDMap(d.program, o, u); err != nil {
			return err
		}
		d.idmaps[o] = file
	}
	attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
	attr.Userns_fd = uint64(file.Fd())
	return nil
}

// makeIDMap returns a user namespace that says: on disk o, in the box u. A
// guest that is given no plan holds it until it is open.
func makeIDMap(program *Program, o owner, u User) (*os.File, error) {
	hold, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	child, err := program.Start([]*os.File{nil, hold}, &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWUSER, GidMappingsEnableSetgroups: true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.uid), HostID: u.Outside, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.gid), HostID: u.OutsideGroup, Size: 1}},
	})
	hold.Close()
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", child.Pid))
	_ = child.Kill() // it may have ended by itself already
	if _, waitErr := child.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", err)
	}
	return file, nil
}
