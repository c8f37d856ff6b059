package caisson

import "time"

// ProcessIdentity names one process for as long as its host is up: a pid alone
// names none, as it is used again. Source: boot id from
// /proc/sys/kernel/random/boot_id, start time from field 22 of /proc/PID/stat.
type ProcessIdentity struct {
	Host   string `json:"host"`             // host name, for people
	Boot   string `json:"boot"`             // boot id
	PIDNS  uint64 `json:"pidns"`            // inode of the pid namespace that PID is counted in
	PID    int    `json:"pid"`              //
	Start  uint64 `json:"start"`            // clock ticks since boot
	Cgroup string `json:"cgroup,omitempty"` // path of a cgroup that holds it and all it started, where there is one
}

// Instance is one running caisson process.
type Instance struct {
	ID      InstanceID      `json:"id"`
	Process ProcessIdentity `json:"process"`
	Lock    string          `json:"lock"` // path of its lock file, held as long as it lives
	Program string          `json:"program"`
	Started time.Time       `json:"started"`
}

// Liveness is what can be told of an instance. Unknown is never treated as dead.
type Liveness string

// Livenesses.
const (
	Alive           Liveness = "alive"
	Dead            Liveness = "dead"
	LivenessUnknown Liveness = "unknown"
)

// Lease is the right of one instance to drive a run.
type Lease struct {
	Run      RunID      `json:"run"`
	Instance InstanceID `json:"instance"` // empty: released
	Fence    Fence      `json:"fence"`
	Taken    time.Time  `json:"taken"`
}
