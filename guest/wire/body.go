package wire

import (
	"encoding/json"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/outlet"
)

// Hello is the first frame of each side.
type Hello struct {
	Version int    `json:"version"`
	Nonce   string `json:"nonce"` // the host's, given back by the guest
	// The rest is the host's.
	Workspace string          `json:"workspace,omitempty"`
	Env       []caisson.Bytes `json:"env,omitempty"`
	Files     int64           `json:"files,omitempty"` // open files per process
	Size      int64           `json:"size,omitempty"`  // of one file, bytes
	// Outlet is the way out, whose socket is outlet.FD at the guest.
	Outlet *outlet.Options `json:"outlet,omitempty"`
	// Mode is the guest's: how connections are caught, where there is an Outlet.
	Mode outlet.Mode `json:"mode,omitempty"`
}

// Hold asks for a held process.
type Hold struct {
	Argv   []caisson.Bytes  `json:"argv,omitempty"`
	Line   caisson.Bytes    `json:"line,omitempty"`
	Dir    caisson.Bytes    `json:"dir,omitempty"`
	Env    []caisson.Bytes  `json:"env,omitempty"`
	Stdin  bool             `json:"stdin,omitempty"` // else /dev/null
	Merge  bool             `json:"merge,omitempty"` // stderr into stdout, in order
	PTY    *caisson.Winsize `json:"pty,omitempty"`
	Stdout bool             `json:"stdout,omitempty"` // wanted
	Stderr bool             `json:"stderr,omitempty"` // wanted
}

// Held says that the process is there and held.
type Held struct {
	Holder int `json:"holder"` // as numbered inside: the parent of PID, reaper of all that it starts
	PID    int `json:"pid"`    // as numbered inside
}

// Stop asks for the end of a command's tree.
type Stop struct {
	Grace time.Duration `json:"grace"`
}

// Signal asks for a signal to the command's process group.
type Signal struct {
	Signal int `json:"signal"`
}

// Ended says how a command ended, once all that it started has ended too.
type Ended struct {
	Code   int           `json:"code"`
	Signal int           `json:"signal,omitempty"`
	CPU    time.Duration `json:"cpu"`
	MaxRSS int64         `json:"max_rss"`
	Left   int           `json:"left,omitempty"` // processes that were left over and ended
	// Exec says why the program could not begin; Code is then 126 or 127.
	Exec string `json:"exec,omitempty"`
	// Closed says that the output was sent too: no closed frame follows.
	Closed bool `json:"closed,omitempty"`
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
	Op      string         `json:"op"`
	Path    caisson.Bytes  `json:"path"`
	Pattern caisson.Bytes  `json:"pattern,omitempty"`
	Include caisson.Bytes  `json:"include,omitempty"`
	Offset  int64          `json:"offset,omitempty"`
	Limit   int64          `json:"limit,omitempty"`
	Context int            `json:"context,omitempty"`
	Size    int64          `json:"size,omitempty"` // of what follows
	Expect  caisson.Digest `json:"expect,omitempty"`
	Create  bool           `json:"create,omitempty"`
	Mode    uint32         `json:"mode,omitempty"`
	Parents bool           `json:"parents,omitempty"`
}

// Info is caisson.FileInfo without the path, which the host knows.
type Info struct {
	Size    int64          `json:"size"`
	Mode    uint32         `json:"mode"`
	Kind    string         `json:"kind"`
	ModTime time.Time      `json:"mod_time"`
	Digest  caisson.Digest `json:"digest,omitempty"`
}

// Done ends a file operation.
type Done struct {
	Info    *Info `json:"info,omitempty"`
	Total   int   `json:"total,omitempty"`
	Skipped int   `json:"skipped,omitempty"`
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

// Decode reads a control body strictly enough: an empty body is v's zero.
func Decode(body []byte, v any) error {
	if len(body) == 0 {
		return nil
	}
	return json.Unmarshal(body, v)
}
