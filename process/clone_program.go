package process

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Cloner starts programs in new namespaces. The zero value is ready. A process
// should have one.
//
// It does what os.StartProcess does, with two differences. A program in a new
// user namespace costs the same however much memory this process has: os copies
// the page tables for it, which for 300 MiB takes longer than all the rest. And
// no descriptor but those named reaches the program.
type Cloner struct {
	mu       sync.Mutex
	children int // between clone and execve
	dumpable int // what this process was before the first of them
}

// FirstFreeFD is above all descriptors that a program can be started with. What
// is executed by its number must be at or above it.
const FirstFreeFD = 200

// Program is what is started.
type Program struct {
	Path  string // absolute, or of /proc/self/fd
	Argv  []string
	Env   []string // all of it
	Dir   string
	Files []*os.File // become descriptors 0, 1, 2, …; at most FirstFreeFD; nil is not open
	// TimerSlack is by how much its timers may be late, so that fewer of them
	// interrupt it; 0: what this process has. What the program starts inherits it.
	TimerSlack time.Duration
	// Turn is how long it shall have the processor at once where others want it
	// too, at least 0.1 ms; who wants it for a shorter time gets it sooner, and no
	// more of it. 0: what this process has. What the program starts inherits it.
	// Before Linux 6.12 all have the same.
	Turn time.Duration
	// Attr is honoured as by os.StartProcess in Setsid, Cloneflags, UidMappings,
	// GidMappings, GidMappingsEnableSetgroups, Credential (without Groups),
	// AmbientCaps, UseCgroupFD and CgroupFD, and in nothing else.
	Attr *syscall.SysProcAttr
}
