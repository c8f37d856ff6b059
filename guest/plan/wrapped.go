package plan

// WrappedArgument is what the guest program is started with by a wrapper that
// has made namespaces and mounts, and StageArgument what it is started with to
// make ready what such a wrapper binds, and then to become it.
const (
	WrappedArgument = "wrapped"
	StageArgument   = "stage"
)

// Descriptors that a wrapper is started with, beside StreamFD, ControlFD and
// OutletFD, which it hands on. 2 is a file for what the wrapper says when it fails. From
// FilesFD on come files that it copies, and the mounts of a stage.
const (
	ArgumentsFD = 6  // its arguments
	InfoFD      = 7  // it writes the number of its child here
	BlockFD     = 8  // its child waits here
	WrapperFD   = 9  // the wrapper's program
	ProgramFD   = 10 // the guest program
	StageFD     = 11 // the Stage, where there is one
	FilesFD     = 12
)

// Stage says what is to be made ready below Dir, in a mount namespace of the
// process's own, before it becomes the wrapper.
type Stage struct {
	Dir     string // a directory that every system has; what is there is covered
	Trees   []StageTree
	Private []StageSpace
	// UID and GID are who becomes the wrapper.
	UID       int
	GID       int
	Arguments []string // of the wrapper, its name first
}

// StageTree is an open_tree descriptor, shown at a name below Dir.
type StageTree struct {
	FD   int
	Name string
	Dir  bool
}

// StageSpace is a directory of the box's own, bounded in bytes and files.
type StageSpace struct {
	Name string
	Size int64
	Mode uint32
}

// Inodes is how many files a private directory of so many bytes may hold.
func Inodes(size int64) int64 { return min(max(size/4096, 1024), 1<<18) }

// Shared tells whether a private directory is one that all users write to.
func Shared(path string) bool { return path == "/tmp" || path == "/dev/shm" || path == "/var/tmp" }
