package plan

// GivenArgument is what the guest program is started with as the first process
// of a box that somebody else made, a container engine for one. Its standard
// input and output are the host's stream: a plan comes in and a report goes
// out, each after its length in four bytes, high byte first; then it serves.
const GivenArgument = "given"

// GivenDir is the directory inside that holds the guest program and the proof.
// Programs inside cannot read it where Landlock is enforced.
const GivenDir = "/.caisson"

// MaxMessage bounds a plan and a report in a given box.
const MaxMessage = 1 << 20

// Seen is what the set-up found in a box that somebody else made.
type Seen struct {
	Boot  string // the kernel's boot id
	Proof string // content of the plan's proof
	Arch  string
	// Memory, Pids and CPUs are the limits of the box's cgroup as it sees them
	// itself: bytes, processes, thousandths of a processor. 0: none is seen.
	Memory int64
	Pids   int64
	CPUs   int64
	// Missing are paths of the plan's Needs that are not there.
	Missing []string
	// Inodes are those of the plan's mounts, in their order.
	Inodes []uint64
	// Foreign are writable mounts that do not belong to the box's user.
	Foreign []string
}
