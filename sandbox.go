package caisson

import (
	"context"
	"io"
	"time"
)

// Control is something a boundary can enforce.
type Control string

// Controls.
const (
	ControlFiles      Control = "files"      // sees and writes only what it was given
	ControlNetwork    Control = "network"    // reaches only what it was allowed
	ControlProcesses  Control = "processes"  // sees and signals only its own; all end with it
	ControlMemory     Control = "memory"     //
	ControlPids       Control = "pids"       //
	ControlCPU        Control = "cpu"        //
	ControlDisk       Control = "disk"       // size of its private tmp
	ControlPrivileges Control = "privileges" // no capabilities, none to be gained
	ControlSyscalls   Control = "syscalls"   // filtered
)

// Controls returns all controls in the order of reports.
func Controls() []Control {
	return []Control{
		ControlFiles, ControlNetwork, ControlProcesses, ControlMemory, ControlPids,
		ControlCPU, ControlDisk, ControlPrivileges, ControlSyscalls,
	}
}

// Enforcement is one row of an isolation report.
type Enforcement struct {
	Control  Control `json:"control"`
	Enforced bool    `json:"enforced"`
	By       string  `json:"by,omitempty"`   // mechanism: "mount namespace, Landlock"
	Test     string  `json:"test,omitempty"` // the self-test that showed it
	Why      string  `json:"why,omitempty"`  // why not, or why weaker
	Fix      string  `json:"fix,omitempty"`  // what to do on this host
}

// Isolation says what a boundary enforces.
type Isolation struct {
	Engine   string        `json:"engine"`
	Controls []Enforcement `json:"controls"`
	// Pending is what Probe found that the first sandbox must wait for, as text for
	// people; empty: one opens at once.
	Pending string `json:"pending,omitempty"`
	// NoCover is why a file cannot be shown in place of a workspace's .git, as
	// text for people; empty: it can. A workspace that is a clone needs none.
	NoCover string `json:"no_cover,omitempty"`
}

// Enforces tells whether all of the controls are enforced.
func (i Isolation) Enforces(controls ...Control) bool {
	for _, c := range controls {
		if !i.Row(c).Enforced {
			return false
		}
	}
	return true
}

// Row returns the row of a control; one that says "not reported" if there is none.
func (i Isolation) Row(c Control) Enforcement {
	for _, row := range i.Controls {
		if row.Control == c {
			return row
		}
	}
	return Enforcement{Control: c, Why: "not reported"}
}

// InsideRoot is the uid and gid inside of what is root's outside: programs that
// refuse to run as root, or that take root for permission, must not meet it. Where
// an engine cannot lend files to another user, root's are root's inside too.
const InsideRoot = 1000

// Limits bound what runs inside. Zero means the default of the field; a
// negative one is refused with CodeLimitInvalid.
type Limits struct {
	Memory int64 `json:"memory,omitempty"` // bytes, all processes together; default 4 GiB
	Pids   int64 `json:"pids,omitempty"`   // processes and threads; default 512
	CPUs   int64 `json:"cpus,omitempty"`   // default host − 1, at least 1
	Files  int64 `json:"files,omitempty"`  // open files per process; default 4096
	Size   int64 `json:"size,omitempty"`   // of one file, bytes; default 16 GiB
	Tmp    int64 `json:"tmp,omitempty"`    // of each private directory, as /tmp, bytes; default 1 GiB; at most (Memory − 16 MiB) / 3
}

// Mount is a path lent to a sandbox.
type Mount struct {
	Source string // absolute, no links in it
	Target string // absolute inside; empty means Source
	Write  bool
	// Layer: what is written there goes to a private layer that ends with the
	// sandbox, and Source, a directory, stays as it is. Without a Source it is a
	// private directory. An engine that cannot do it refuses with CodeUnsupported.
	Layer bool
}

// SandboxSpec says what boundary is wanted.
type SandboxSpec struct {
	ID SandboxID
	// Workspace is the absolute path of the tree, the same inside and outside,
	// read-write. Empty: a private empty directory, of which nothing is kept.
	Workspace string
	// ReadOnly makes the workspace read-only.
	ReadOnly bool
	// GitCover is a file on the host that is shown, read-only, in place of
	// Workspace/.git. Empty: nothing is covered.
	GitCover string
	// GitDir is the git directory that is used inside, read-write at the same
	// path. One in Workspace is a part of that, and is not mounted.
	GitDir string
	// GitObjects are object directories borrowed read-only at the same paths.
	GitObjects []string
	// GitTrees are directories of the host that are shown, read-write, in place
	// of empty ones in the workspace, which must be there: trees of submodules.
	// An engine that cannot show one thing in the place of another leaves them
	// empty.
	GitTrees []Mount
	// Home is a directory of the workspace's own that is HOME inside. Empty: a
	// private one that ends with the sandbox.
	Home    string
	Mounts  []Mount
	Env     []string // KEY=value, beside the fixed allow-list; never on an argv
	Limits  Limits
	Require []Control // default: files, network, processes
	// Programs is a directory of the host with programs for those inside: shown
	// read-only at ProgramsDir, or at its own path by an engine that cannot show
	// one thing in the place of another, and the last in PATH. Empty: none.
	Programs string
	// Hide are patterns of files of the workspace that are masked (** crosses
	// directories); they are looked for again before each command.
	Hide []string
	// Ptrace lets programs inside trace each other, as debuggers do.
	Ptrace bool
	// Egress is the only way out. Nil: there is none.
	Egress Egress
}

// Egress judges every name that programs inside look up, and carries every
// connection that they make to the outside. Safe for concurrent use; what calls
// it must expect hostile names.
type Egress interface {
	// Resolvable tells whether a name may be looked up inside. What is answered
	// there is never the name's own address, and no look-up leaves the sandbox.
	Resolvable(ctx context.Context, name string) bool
	// Ports are those of the rules in force now, for engines that cannot
	// redirect all of them.
	Ports() []uint16
	// Carry serves a connection from inside to its end and closes it. target is
	// the name:port that the program dialled, or empty where it dialled the
	// proxy and tells it (HTTP, CONNECT or SOCKS5). It ends when ctx does. conn
	// is a net.Conn; this package does not name that one, as the guest is linked
	// from it and must not carry a resolver.
	Carry(ctx context.Context, conn io.ReadWriteCloser, target string)
}

// Engine is a way to make a boundary. Safe for concurrent use.
type Engine interface {
	Name() string
	// Probe tries what this host can enforce; it does not guess.
	Probe(ctx context.Context) (Isolation, error)
	// Open makes a boundary and proves it. CodeIsolationUnavailable, with the
	// reason and the fix, where a required control cannot be enforced; then
	// nothing was made. The sandbox ends with this process.
	Open(ctx context.Context, spec SandboxSpec) (Sandbox, error)
	// Sweep ends and removes everything that an ended process of ours left of
	// a sandbox. What it cannot end is an error of CodeOrphanAlive that names it.
	Sweep(ctx context.Context, record SandboxRecord) error
	// Remnants lists what exists of this user's sandboxes at the engine now,
	// whichever process of ours made it: asked of the kernel or the engine,
	// never of a record or of memory. It changes nothing.
	Remnants(ctx context.Context) ([]Remnant, error)
}

// Remnant is one thing of ours that exists on the host.
type Remnant struct {
	Kind string `json:"kind"` // process, mount, cgroup, netns, container, socket, lock, file, directory
	Name string `json:"name"` // what the kernel or the engine calls it: a path, "pid 4711", a container's id
	// Sandbox is the one it belongs to; empty where it bears no id.
	Sandbox SandboxID `json:"sandbox,omitempty"`
	// Live: its holder lives, or it cannot be told that it does not. Then it
	// is no residue, and nobody removes it.
	Live bool   `json:"live"`
	Why  string `json:"why"` // how that is known
}

// SandboxRecord is what the ledger keeps of a sandbox: enough for another
// process to end all of it.
type SandboxRecord struct {
	ID        SandboxID   `json:"id"`
	Run       RunID       `json:"run,omitempty"`
	Workspace WorkspaceID `json:"workspace,omitempty"`
	Instance  InstanceID  `json:"instance"`
	Engine    string      `json:"engine"`
	// EngineInstance tells one installation of the engine from another at the
	// same place; empty where the engine is this program itself. Only the one
	// that made a sandbox is believed when it says that there is none.
	EngineInstance string           `json:"engine_instance,omitempty"`
	State          SandboxState     `json:"state"`
	Generation     int64            `json:"generation"`
	Guest          *ProcessIdentity `json:"guest,omitempty"`
	Leftovers      []string         `json:"leftovers,omitempty"` // directories and cgroups of the engine's own
	Isolation      Isolation        `json:"isolation"`
	At             time.Time        `json:"at"`
}

// Sandbox is an open boundary with our guest as its first process. Safe for
// concurrent use.
type Sandbox interface {
	ID() SandboxID
	Isolation() Isolation
	// Record is what another process needs to end this sandbox.
	Record() SandboxRecord
	// Hold creates a process that is held before its program begins.
	Hold(ctx context.Context, cmd Command) (Process, error)
	// Files reads and writes files through the guest, inside the boundary.
	Files() Files
	// Done is closed when the sandbox has ended, whoever ended it.
	Done() <-chan struct{}
	// Close ends every process and removes what the engine made. It works
	// after the context of Open has ended, and a second time.
	Close() error
}

// Command is a program to run inside.
type Command struct {
	// Argv is the program and its arguments, any bytes but NUL. Line is a
	// shell line for /bin/sh -c (bash where there is one). Exactly one is set.
	Argv []string
	Line string
	// Dir must resolve inside the workspace; empty means the workspace.
	Dir string
	Env []string // KEY=value, over the sandbox's
	// Stdin is /dev/null unless given.
	Stdin io.Reader
	// Stdout and Stderr receive the output as it comes; nil discards it. The
	// same value for both keeps their order. A writer that blocks holds the
	// command back, never the guest.
	Stdout, Stderr io.Writer
	// PTY runs it on a terminal of this size; Stdin and Stdout are its two
	// directions, Stderr is unused.
	PTY *Winsize
	// Deadline bounds its time; 0 is no bound of its own.
	Deadline time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means 3 s.
	Grace time.Duration
}

// Winsize is the size of a terminal in characters.
type Winsize struct{ Rows, Cols uint16 }

// Process is a command inside, held, running or ended.
type Process interface {
	Identity() ProcessIdentity // as seen from the host
	// Release lets the program begin. Called at most once.
	Release() error
	// Wait returns when the command and everything it started have ended and
	// its output was delivered. When ctx ends, or the deadline passes, the
	// tree is stopped; Wait returns within grace + 100 ms, with the cause from
	// context.Cause(ctx) if that is a CauseError, else CauseUnknown. An error
	// means that the end was not seen (CodeSandboxLost).
	Wait(ctx context.Context) (Exit, error)
	// Stop asks for the tree's end with a cause. The first cause wins.
	Stop(cause Cause)
	Resize(Winsize) error
	Signal(sig int) error // to the command's process group
	// Drop ends a process that was not released; after Release it is Stop.
	Drop()
}

// Exit is how a command ended.
type Exit struct {
	Code   int           `json:"code"`             // 128+n for a signal, 124 for a deadline
	Signal int           `json:"signal,omitempty"` // that ended the direct child
	Cause  Cause         `json:"cause,omitempty"`  // why it was stopped, if it was
	OOM    bool          `json:"oom,omitempty"`    // the kernel ended it for memory
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	MaxRSS int64         `json:"max_rss"` // bytes, largest process
	Ended  int           `json:"ended"`   // processes left over and ended with it
}

// Files reads and writes files inside the boundary. Paths are absolute or
// relative to the workspace and must stay inside it: one that leads out, also
// through a link, is CodePathOutside. Names may hold any byte but NUL.
type Files interface {
	// Read reads up to limit bytes at offset (limit 0: all, up to 64 MiB).
	Read(ctx context.Context, path string, offset, limit int64) (FileContent, error)
	// Write replaces or creates a file atomically and never follows a link.
	Write(ctx context.Context, path string, data []byte, opts WriteOptions) (FileInfo, error)
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Glob lists paths that match a pattern (** crosses directories), newest
	// first, at most limit (0: 1,000); .git is left out.
	Glob(ctx context.Context, dir, pattern string, limit int) (GlobResult, error)
	// Grep searches file contents for an RE2 expression.
	Grep(ctx context.Context, q GrepQuery) (GrepResult, error)
}

// FileInfo describes a file.
type FileInfo struct {
	Path    string    `json:"path"` // as asked
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // Unix permission bits
	Kind    string    `json:"kind"` // file, dir, link, other
	ModTime time.Time `json:"mod_time"`
	Digest  Digest    `json:"digest,omitempty"` // of the content, of files up to 64 MiB
}

// FileContent is what Read returns.
type FileContent struct {
	Info FileInfo
	Data []byte
}

// WriteOptions say what must hold for a write.
type WriteOptions struct {
	Expect  Digest // the content must have this digest now, else CodeFileChanged
	Create  bool   // the file must not exist now, else CodeAlreadyExists
	Mode    uint32 // for a new file; 0 means 0644
	Parents bool   // make missing directories
}

// GlobResult is what Glob returns.
type GlobResult struct {
	Paths []string
	Total int // found, also those left out
}

// GrepQuery is a search.
type GrepQuery struct {
	Dir     string
	Pattern string // RE2
	Include string // glob on file names; empty: all
	Context int    // lines around a match
	Limit   int    // matches at most; 0: 200
}

// GrepResult is what Grep returns.
type GrepResult struct {
	Matches []GrepMatch
	Total   int // found, also those left out
	Skipped int // files left out: binary, or over 4 MiB
}

// GrepMatch is one line, or a context line.
type GrepMatch struct {
	Path    string
	Line    int // from 1
	Text    string
	Context bool
}
