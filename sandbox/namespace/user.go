//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
)

const (
	// insideRoot is the uid and gid inside when the caller is root: programs
	// that refuse to run as root, or that take root for permission, must not
	// meet it.
	insideRoot = 1000
	// outsideRoot is what they are on the host then: above all that
	// distributions and container engines hand out (systemd's containers end
	// at 1,879,048,191), below 2³¹, which some programs take for negative.
	outsideRoot = 2_000_000_001
)

// user is who a box runs as.
type user struct {
	inside, insideGroup   int
	outside, outsideGroup int
	// mapped: files are lent through idmapped mounts.
	mapped bool
	// weaker says why it runs as the kernel's root, if it does.
	weaker string
}

func callingUser() user {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid != 0 {
		return user{inside: uid, insideGroup: gid, outside: uid, outsideGroup: gid}
	}
	u := user{inside: insideRoot, insideGroup: insideRoot, outside: 0, outsideGroup: 0}
	if kernelRoot() {
		u.outside, u.outsideGroup, u.mapped = outsideRoot, outsideRoot, true
	}
	return u
}

// kernelRoot tells whether root here is root of the machine, and not of a user
// namespace, where it is an ordinary user.
func kernelRoot() bool {
	raw, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(raw))
	return err != nil || len(fields) == 3 && fields[1] == "0" && fields[2] == "4294967295"
}

// asRoot is u where files cannot be lent to another user.
func (u user) asRoot(reason error) user {
	u.outside, u.outsideGroup, u.mapped = 0, 0, false
	u.weaker = fmt.Sprintf("it runs as the kernel's root without capabilities, because files here cannot be lent to another user: %v", reason)
	return u
}

// set-up needs these, and loses them before anything else runs.
var setUpCapabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}

const allNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// attributes are how the guest is started for u.
func (u user) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid: true, Cloneflags: allNamespaces, AmbientCaps: setUpCapabilities,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: u.inside, HostID: u.outside, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: u.insideGroup, HostID: u.outsideGroup, Size: 1}},
	}
	if os.Geteuid() == 0 {
		// Root's supplementary groups would go on to count inside; root of a user
		// namespace may be kept from dropping them, and then they are its user's.
		drop := mayDropGroups()
		attr.GidMappingsEnableSetgroups = drop
		attr.Credential = &syscall.Credential{Uid: uint32(u.inside), Gid: uint32(u.insideGroup), NoSetGroups: !drop}
	}
	return attr
}

func mayDropGroups() bool {
	raw, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(raw)) == "allow"
}

// lend opens a copy of the mounts at path whose files, where they belong to
// the path's owner, belong to the box's user.
func (e *Engine) lend(path string, u user) (*os.File, error) {
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
	if u.mapped {
		var st unix.Stat_t
		if err = unix.Fstat(at, &st); err == nil {
			err = e.mapOwner(&attr, owner{st.Uid, st.Gid}, u)
		}
	}
	if err == nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
		if err != nil && u.mapped {
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

func (e *Engine) mapOwner(attr *unix.MountAttr, o owner, u user) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	file := e.idmaps[o]
	if file == nil {
		program := e.program
		if program == nil {
			return errors.New("the engine is closed")
		}
		var err error
		if file, err = e.makeIDMap(program, o, u); err != nil {
			return err
		}
		e.idmaps[o] = file
	}
	attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
	attr.Userns_fd = uint64(file.Fd())
	return nil
}

// makeIDMap returns a user namespace that says: on disk o, in the box u. A
// guest that is given no plan holds it until it is open.
func (e *Engine) makeIDMap(program *os.File, o owner, u user) (*os.File, error) {
	hold, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	child, err := e.start(program, []*os.File{nil, hold}, &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWUSER, GidMappingsEnableSetgroups: true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.uid), HostID: u.outside, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.gid), HostID: u.outsideGroup, Size: 1}},
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

// start runs the guest program with an empty environment, /dev/null as its
// first three descriptors, and files after them.
func (e *Engine) start(program *os.File, files []*os.File, attr *syscall.SysProcAttr) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	all := append([]*os.File{null, null, null}, files...)
	if len(all) > process.FirstFreeFD {
		return nil, caisson.Errorf(caisson.CodePathInvalid, "at most %d paths can be lent to a sandbox", process.FirstFreeFD-plan.MountFD)
	}
	return e.cloner.Start(process.Program{
		Path: fmt.Sprintf("/proc/self/fd/%d", program.Fd()), Argv: []string{"caisson-guest", plan.Argument}, Dir: "/", Files: all, Attr: attr,
	})
}
