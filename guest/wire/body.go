package wire

import (
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
)

// Hello is the first frame of each side.
type Hello struct {
	Version int
	Nonce   string // the host's, given back by the guest
	// The rest is the host's.
	Workspace string
	Env       []caisson.Bytes
	Files     int64 // open files per process
	Size      int64 // of one file, bytes
	Threads   int   // to make when the first command begins
	// Outlet is the way out, whose socket is outlet.FD at the guest.
	Outlet *outlet.Options
	// Mode is the guest's: how connections are caught, where there is an Outlet.
	Mode outlet.Mode
}

// Hold asks for a held process.
type Hold struct {
	Argv   []caisson.Bytes
	Line   caisson.Bytes
	Dir    caisson.Bytes
	Env    []caisson.Bytes
	Stdin  bool // else /dev/null
	Merge  bool // stderr into stdout, in order
	PTY    *caisson.Winsize
	Stdout bool // wanted
	Stderr bool // wanted
}

// Held says that the process is there and held.
type Held struct {
	Holder int // as numbered inside: the parent of PID, reaper of all that it starts
	PID    int // as numbered inside
}

// Stop asks for the end of a command's tree.
type Stop struct {
	Grace time.Duration
}

// Signal asks for a signal to the command's process group.
type Signal struct {
	Signal int
}

// Resize gives a terminal another size.
type Resize struct{ Size caisson.Winsize }

// Ended says how a command ended, once all that it started has ended too.
type Ended struct {
	Code   int
	Signal int
	CPU    time.Duration
	MaxRSS int64
	Left   int // processes that were left over and ended
	// Exec says why the program could not begin; Code is then 126 or 127.
	Exec string
	// Closed says that the output was sent too: no closed frame follows.
	Closed bool
}

// Operations on files.
const (
	OpRead  = "read"
	OpWrite = "write"
	OpStat  = "stat"
	OpGlob  = "glob"
	OpGrep  = "grep"
)

// File asks for an operation on files. The content to write follows as in
// frames; content that was read and lists come as out frames before done.
type File struct {
	Op      string
	Path    caisson.Bytes
	Pattern caisson.Bytes
	Include caisson.Bytes
	Offset  int64
	Limit   int64
	Context int
	Size    int64 // of what follows
	Expect  caisson.Digest
	Create  bool
	Mode    uint32
	Parents bool
}

// Info is caisson.FileInfo without the path, which the host knows.
type Info struct {
	Size    int64
	Mode    uint32
	Kind    string
	ModTime time.Time
	Digest  caisson.Digest
}

// Done ends a file operation.
type Done struct {
	Info    *Info
	Total   int
	Skipped int
}

// Match is one element of the list that grep sends.
type Match struct {
	Path    caisson.Bytes `json:"p"`
	Line    int           `json:"n"`
	Text    caisson.Bytes `json:"t"`
	Context bool          `json:"c,omitempty"`
}

// Bytes converts strings for the wire.
func Bytes(in []string) []caisson.Bytes {
	out := make([]caisson.Bytes, len(in))
	for i, s := range in {
		out[i] = caisson.Bytes(s)
	}
	return out
}

// Strings converts strings from the wire.
func Strings(in []caisson.Bytes) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

// Failed says why a stream could not be opened, or an operation did not succeed.
type Failed struct {
	Code          caisson.Code
	Message, Hint string
}

// FailedOf is err for the wire: what its detail says is the host's alone.
func FailedOf(err error) *Failed {
	e := caisson.AsError(err)
	return &Failed{e.Code, e.Error(), e.HintText()}
}

// Decode reads a control body: an empty one is v's zero.
func Decode(body []byte, v pack.Value) error {
	if len(body) == 0 {
		return nil
	}
	return pack.Read(body, v)
}
