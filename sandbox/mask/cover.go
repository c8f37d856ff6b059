//go:build linux

package mask

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The box's mounts can be changed by nobody in it: its programs, and the guest,
// have no capability. A child of this process goes into its namespaces, mounts
// and ends. It is not in the box's pid namespace, where it could be seen or
// signalled. As the kernel lets only a process of one thread into a user
// namespace, it is a plain fork that runs no Go: no allocation, no growth of the
// stack, no locks, only raw system calls on what was prepared.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// script is what the child does.
type script struct {
	user      uintptr // the user namespace that owns the mounts; 0: the one that we are in
	mounts    uintptr
	workspace *byte
	file, dir *byte
	paths     []*byte
	empty     [1]byte
	how       unix.OpenHow
	masks     [2]unix.Stat_t // of file and dir
	st        unix.Stat_t
	results   []uint32 // errno of each path, then of the start; shared with the child
}

// atCWD is AT_FDCWD as an argument.
const atCWD = ^uintptr(99)

// notDone is the result of a path that the child did not come to.
const notDone = uint32(unix.EIO)

// cover hides paths of the workspace and returns an errno for each.
func (m *Mask) cover(paths []string) []unix.Errno {
	errnos := make([]unix.Errno, len(paths))
	fail := func(err error) []unix.Errno {
		errno := unix.EIO
		_ = errors.As(err, &errno)
		for i := range errnos {
			errnos[i] = errno
		}
		return errnos
	}
	user, mounts, err := m.namespaces()
	if err != nil {
		return fail(err)
	}
	if user != 0 {
		defer unix.Close(user)
	}
	defer unix.Close(mounts)
	s, release, err := m.prepare(paths)
	if err != nil {
		return fail(err)
	}
	defer release()
	s.user, s.mounts = uintptr(user), uintptr(mounts)
	pid, errno := fork(s)
	if errno != 0 {
		return fail(errno)
	}
	for {
		if _, err := unix.Wait4(int(pid), nil, unix.WALL, nil); err != unix.EINTR {
			break
		}
	}
	if start := s.results[len(paths)]; start != 0 {
		return fail(unix.Errno(start))
	}
	for i := range paths {
		errnos[i] = unix.Errno(s.results[i])
	}
	return errnos
}

// namespaces opens the box's mount namespace, and the user namespace that owns
// it, which need not be the one that the guest is in.
func (m *Mask) namespaces() (user, mounts int, err error) {
	mounts, err = unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", m.opts.Guest), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	// While the guest is there, nobody else has had its number.
	if err = unix.PidfdSendSignal(m.guest, 0, nil, 0); err == nil {
		user, err = unix.IoctlRetInt(mounts, unix.NS_GET_USERNS)
	}
	if err != nil {
		_ = unix.Close(mounts)
		return -1, -1, err
	}
	unix.CloseOnExec(user)
	if ours, err := sameAsOurs(user); err != nil || ours {
		_ = unix.Close(user)
		return 0, mounts, err
	}
	return user, mounts, nil
}

// sameAsOurs tells whether a user namespace is the one that this process is in,
// which the kernel lets nobody enter again.
func sameAsOurs(user int) (bool, error) {
	var theirs, ours unix.Stat_t
	if err := unix.Fstat(user, &theirs); err != nil {
		return false, err
	}
	err := unix.Stat("/proc/self/ns/user", &ours)
	return ours.Dev == theirs.Dev && ours.Ino == theirs.Ino, err
}

// prepare makes everything that the child needs.
func (m *Mask) prepare(paths []string) (*script, func(), error) {
	size := 4 * (len(paths) + 1)
	shared, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, err
	}
	s := &script{
		paths:   make([]*byte, len(paths)),
		how:     unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS},
		results: unsafe.Slice((*uint32)(unsafe.Pointer(&shared[0])), len(paths)+1),
	}
	for i := range s.results {
		s.results[i] = notDone
	}
	for _, name := range []struct {
		to   **byte
		path string
	}{{&s.workspace, m.opts.Workspace}, {&s.file, m.opts.File}, {&s.dir, m.opts.Dir}} {
		if *name.to, err = unix.BytePtrFromString(name.path); err != nil {
			break
		}
	}
	for i := range paths {
		if err == nil {
			s.paths[i], err = unix.BytePtrFromString(paths[i])
		}
	}
	release := func() { _ = unix.Munmap(shared) }
	if err != nil {
		release()
		return nil, nil, err
	}
	return s, release, nil
}

// fork starts the child. Between the two calls nothing may need more stack.
//
//go:noinline
//go:norace
func fork(s *script) (uintptr, syscall.Errno) {
	syscall.ForkLock.Lock()
	beforeFork() // blocks signals: the child must not run this program's handlers
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		s.start()
		for {
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	afterFork()
	syscall.ForkLock.Unlock()
	return pid, errno
}

// start is the child.
//
//go:nosplit
//go:norace
func (s *script) start() {
	start := &s.results[len(s.paths)]
	e := syscall.Errno(0)
	if s.user != 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETNS, s.user, unix.CLONE_NEWUSER, 0)
	}
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETNS, s.mounts, unix.CLONE_NEWNS, 0)
	}
	if e != 0 {
		*start = uint32(e)
		return
	}
	at, _, e := syscall.RawSyscall6(unix.SYS_OPENAT, atCWD, uintptr(unsafe.Pointer(s.workspace)), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0, 0, 0)
	if e == 0 {
		_, _, e = syscall.RawSyscall6(sysFstatat, atCWD, uintptr(unsafe.Pointer(s.file)), uintptr(unsafe.Pointer(&s.masks[0])), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	}
	if e == 0 {
		_, _, e = syscall.RawSyscall6(sysFstatat, atCWD, uintptr(unsafe.Pointer(s.dir)), uintptr(unsafe.Pointer(&s.masks[1])), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	}
	*start = uint32(e)
	if e != 0 {
		return
	}
	for i := range s.paths {
		s.results[i] = uint32(s.coverOne(at, uintptr(unsafe.Pointer(s.paths[i]))))
	}
}

//go:nosplit
//go:norace
func (s *script) coverOne(at, path uintptr) syscall.Errno {
	fd, _, e := syscall.RawSyscall6(unix.SYS_OPENAT2, at, path, uintptr(unsafe.Pointer(&s.how)), unsafe.Sizeof(s.how), 0, 0)
	if e != 0 {
		return e
	}
	e = s.mount(fd)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	return e
}

//go:nosplit
//go:norace
func (s *script) mount(fd uintptr) syscall.Errno {
	empty := uintptr(unsafe.Pointer(&s.empty))
	if _, _, e := syscall.RawSyscall6(sysFstatat, fd, empty, uintptr(unsafe.Pointer(&s.st)), unix.AT_EMPTY_PATH, 0, 0); e != 0 {
		return e
	}
	with := s.file
	switch s.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return 0 // what it leads to is hidden
	case unix.S_IFDIR:
		with = s.dir
	}
	for i := range s.masks {
		if s.st.Dev == s.masks[i].Dev && s.st.Ino == s.masks[i].Ino {
			return 0 // hidden already
		}
	}
	tree, _, e := syscall.RawSyscall(unix.SYS_OPEN_TREE, atCWD, uintptr(unsafe.Pointer(with)), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if e != 0 {
		return e
	}
	_, _, e = syscall.RawSyscall6(unix.SYS_MOVE_MOUNT, tree, empty, fd, empty, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, tree, 0, 0)
	return e
}
