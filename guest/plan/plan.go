// Package plan holds what the host asks of a box's set-up and what the set-up
// answers: one JSON document each way over an inherited socket. Nothing of it
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
	ID string `json:"id"`
	// UID and GID are the only ids inside; User is their name, Home its directory.
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	User string `json:"user"`
	Home string `json:"home"`
	// Workspace is the working directory of commands.
	Workspace string `json:"workspace"`
	// Private are directories of the box's own, each a tmpfs of Tmp bytes.
	Private []string `json:"private,omitempty"`
	Tmp     int64    `json:"tmp"`
	// Mounts are made in this order.
	Mounts []Mount `json:"mounts"`
	// System are read-only directories of the host, shown at the same path.
	// One that is a link on the host is the same link inside.
	System []string `json:"system"`
	// Etc are files and directories of the host's /etc that are shown inside.
	Etc []string `json:"etc"`
	// Limits for every process inside.
	Files int64 `json:"files"`
	Size  int64 `json:"size"`
	// Pids bounds the processes of the box's user, or 0.
	Pids int64 `json:"pids"`
	// CPUs binds the box to that many processors, or 0.
	CPUs int64 `json:"cpus"`
	// Proof is the path of a file on the box's root, or of a directory, that the
	// guest's user may read and that is granted to nobody: reading it shows whether
	// Landlock enforces anything.
	Proof string `json:"proof"`
	// Mask are the places of an empty file and an empty directory that nobody
	// may read, for the host to mount over others; empty for none.
	Mask Mask `json:"mask,omitzero"`
	// Ptrace lets programs inside trace each other.
	Ptrace bool `json:"ptrace,omitempty"`
	// Outlet is the way out, or nil.
	Outlet *outlet.Options `json:"outlet,omitempty"`
	// OutletAt is the path inside of a SOCK_SEQPACKET socket on which the host
	// waits for the way out, where the guest cannot be started with OutletFD. The
	// host takes one connection, the guest's, which comes before any program runs.
	OutletAt string `json:"outlet_at,omitempty"`
	// Outside are paths of the host that must not be there inside.
	Outside []string `json:"outside"`
	// Socket is the name of an abstract unix socket on which the host listens
	// during the set-up; empty for none.
	Socket string `json:"socket,omitempty"`
	// Needs are paths that must be there in a box that somebody else made.
	Needs []string `json:"needs,omitempty"`
}

// Mask is an empty file and an empty directory at the top of the box.
type Mask struct {
	File string `json:"file"`
	Dir  string `json:"dir"`
}

// Mount is a path shown inside.
type Mount struct {
	// FD is an open_tree descriptor that the guest was started with; 0 means
	// that the set-up opens Source itself.
	FD     int    `json:"fd,omitempty"`
	Source string `json:"source,omitempty"`
	Target string `json:"target"`
	Write  bool   `json:"write,omitempty"`
	// Layer puts what is written into a private layer over it.
	Layer bool `json:"layer,omitempty"`
	// Dir says that it is a directory.
	Dir bool `json:"dir,omitempty"`
	// Dev and Ino are what the host saw at Source: where a wrapper makes the
	// mounts, they must be found at Target, with no link on the way.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// Writable tells whether programs inside can write there.
func (m Mount) Writable() bool { return m.Write || m.Layer }

// Report is the answer.
type Report struct {
	// Failed is the step that did not succeed, empty if all did.
	Failed string `json:"failed,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Error  string `json:"error,omitempty"`
	// Landlock is the version of Landlock's interface, 0 where there is none.
	Landlock int `json:"landlock"`
	// Tests are the forbidden things that were tried.
	Tests []Test `json:"tests"`
	// Seen is of a box that somebody else made.
	Seen *Seen `json:"seen,omitempty"`
}

// Test is a forbidden thing that was tried after the set-up.
type Test struct {
	Control string `json:"control"`
	Tried   string `json:"tried"`
	// Read says that what is in force was read back, and nothing tried.
	Read bool `json:"read,omitempty"`
	// Broke says how it succeeded; empty: it was refused.
	Broke string `json:"broke,omitempty"`
}
