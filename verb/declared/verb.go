// Package declared is how the user's config declares a verb: what a request
// gives, and the program that it becomes. It does no I/O.
package declared

import (
	"time"

	"github.com/caisson-run/caisson"
)

// Verb is a verb of the user's config.
type Verb struct {
	Name        string
	Description string
	Input       []Field // in the order of the file
	Run         []Template
	Dir         string // DirHostRepo or DirWorkspace
	Verdict     caisson.Ruling
	Timeout     time.Duration
	Output      int64    // bytes of the answer's text
	Memory      int64    // bytes that each of its processes may have of its own
	Env         []string // names of the person's variables that it gets beside the fixed ones
}

// Where a verb's program runs.
const (
	DirHostRepo  = "host-repo" // the top of the person's checkout, outside
	DirWorkspace = "workspace" // inside the sandbox
)

// Defaults of a declaration, and the largest it may ask for.
const (
	DefaultTimeout = 60 * time.Second
	MostTimeout    = 24 * time.Hour
	DefaultOutput  = 64 << 10
	MostOutput     = 1 << 20
	DefaultMemory  = 2 << 30
	LeastMemory    = 128 << 20 // what holds the program needs some of it
	MostMemory     = 1 << 40
)
