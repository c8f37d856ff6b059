// Package plan holds what the host asks of a box's set-up and what the set-up
// answers: one packed value each way over an inherited socket. Nothing of it
// is ever in an argument list or an environment, where any process of the same
// user could read it.
//
// The host is trusted with the plan; the answer comes from a process that has
// not run anything of the box's yet.
package plan

import "github.com/caisson-run/caisson/guest/outlet"

// Argument is what the guest program is started with to build a box first.
const Argument = "box"

// Descriptors that the guest is started with. 0, 1 and 2 are /dev/null; from
// MountFD on come the mounts that the host has prepared.
const (
	StreamFD  = 3         // the host's stream, for as long as the sandbox lives
	ControlFD = 4         // the plan in, the report out, then closed
	OutletFD  = outlet.FD // the socket of the way out; closed where there is none
	MountFD   = 6
)

// NoCore is RLIMIT_CORE inside, in bytes: no dump has room in it. Where the kernel
// hands dumps to a program of the host's, which it runs as root outside of
// every box, it asks for no size, and takes this one value as a no (core(5) has it
// that limits do not count there; fs/coredump.c looks for 1). 0 would mean yes.
const NoCore = 1

// ScorePath is where a process says how soon the kernel shall end it when memory
// runs out.
const ScorePath = "/proc/self/oom_score_adj"

// Plan is everything that the set-up needs to know.
type Plan struct {
	// ID is the sandbox's; the box's host name is made of it.
	ID string
	// UID and GID are the only ids inside; User is their name, Home its directory.
	UID  int
	GID  int
	User string
	Home string
	// Workspace is the working directory of commands.
	Workspace string
	// Private are directories of the box's own, each a tmpfs of Tmp bytes.
	Private []string
	Tmp     int64
	// Mounts are made in this order.
	Mounts []Mount
	// System are read-only directories of the host, shown at the same path.
	// One that is a link on the host is the same link inside.
	System []string
	// Etc are files and directories of the host's /etc that are shown inside.
	Etc []string
	// Limits for every process inside.
	Files int64
	Size  int64
	// Pids bounds the processes of the box's user, or 0.
	Pids int64
	// CPUs binds the box to that many processors, or 0.
	CPUs int64
	// Proof is the path of a file on the box's root, or of a directory, that the
	// guest's user may read and that is granted to nobody: reading it shows whether
	// Landlock enforces anything.
	Proof string
	// Mask are the places of an empty file and an empty directory that nobody
	// may read, for the host to mount over others; empty for none.
	Mask Mask
	// Ptrace lets programs inside trace each other.
	Ptrace bool
	// Outlet is the way out, or nil.
	Outlet *outlet.Options
	// OutletAt is the path inside of a SOCK_SEQPACKET socket on which the host
	// waits for the way out, where the guest cannot be started with OutletFD. The
	// host takes one connection, the guest's, which comes before any program runs.
	OutletAt string
	// Outside are paths of the host that must not be there inside.
	Outside []string
	// Socket is the name of an abstract unix socket on which the host listens
	// during the set-up; empty for none.
	Socket string
	// Needs are paths that must be there in a box that somebody else made.
	Needs []string
}

// Mask is an empty file and an empty directory at the top of the box.
type Mask struct {
	File string
	Dir  string
}

// Mount is a path shown inside.
type Mount struct {
	// FD is an open_tree descriptor that the guest was started with; 0 means
	// that the set-up opens Source itself.
	FD     int
	Source string
	Target string
	Write  bool
	// Layer puts what is written into a private layer over it.
	Layer bool
	// Dir says that it is a directory.
	Dir bool
	// Dev and Ino are what the host saw at Source: where a wrapper makes the
	// mounts, they must be found at Target, with no link on the way.
	Dev uint64
	Ino uint64
}

// Writable tells whether programs inside can write there.
func (m Mount) Writable() bool { return m.Write || m.Layer }

// Report is the answer.
type Report struct {
	// Failed is the step that did not succeed, empty if all did.
	Failed string
	Errno  int
	Error  string
	// Point is where nothing can be mounted, if that is why: Errno says how it is.
	Point string
	// Landlock is the version of Landlock's interface, 0 where there is none.
	Landlock int
	// Tests are the forbidden things that were tried.
	Tests []Test
	// Seen is of a box that somebody else made.
	Seen *Seen
}

// Test is a forbidden thing that was tried after the set-up.
type Test struct {
	Control string
	Tried   string
	// Read says that what is in force was read back, and nothing tried.
	Read bool
	// Broke says how it succeeded; empty: it was refused.
	Broke string
}
