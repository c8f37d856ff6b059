package workspace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// LossKind is a kind of thing that would be lost with a workspace.
type LossKind string

// Kinds of losses, in the order in which they are listed.
const (
	LossUnknown   LossKind = "unknown"   // something could not be looked at
	LossDamage    LossKind = "damage"    // the workspace is not as it was made
	LossRun       LossKind = "run"       // a run that is not over and could go on in it
	LossOpen      LossKind = "open"      // a process has its directory or a file of it open
	LossOperation LossKind = "operation" // a merge, rebase, bisect, cherry-pick or revert under way
	LossChange    LossKind = "change"    // a file that is changed, staged, in conflict or not tracked
	LossIgnored   LossKind = "ignored"   // an ignored file that no build makes again
	LossStaged    LossKind = "staged"    // staged by a person, in the worktree's own index
	LossCommit    LossKind = "commit"    // of its branch, and on no other branch and no remote
	LossRef       LossKind = "ref"       // made inside, with what is nowhere else
	LossStash     LossKind = "stash"     // an entry of the stash inside
	LossReflog    LossKind = "reflog"    // a commit that only a log of references knows
)

// Losses returns all kinds, in the order in which they are listed.
func Losses() []LossKind {
	return []LossKind{
		LossUnknown, LossDamage, LossRun, LossOpen, LossOperation, LossChange,
		LossIgnored, LossStaged, LossCommit, LossRef, LossStash, LossReflog,
	}
}

// Loss is one thing that would be lost. Its texts may hold any bytes.
type Loss struct {
	Kind LossKind      `json:"kind"`
	What caisson.Bytes `json:"what"`          // a path, a reference, a commit, a process
	How  caisson.Bytes `json:"how,omitempty"` // in a few words
}

// String is for people: "change a.txt (modified)".
func (l Loss) String() string {
	text := string(l.Kind) + " " + printable(string(l.What))
	if l.How != "" {
		text += " (" + printable(string(l.How)) + ")"
	}
	return text
}

// Pin is an object that is kept in the repository while the workspace is in the
// trash.
type Pin struct {
	Kind string `json:"kind"` // head, ref, stash, reflog, state, index, outside
	ID   string `json:"id"`
}

// Marks are what a later look must find again, all of it taken by the host
// itself: names, modes, sizes, times and inodes of all files, content of those
// that would be lost, the references, and who has what open.
type Marks struct {
	Tree     caisson.Digest `json:"tree"`
	Shadow   caisson.Digest `json:"shadow"`  // without objects, which never change
	Outside  caisson.Digest `json:"outside"` // the worktree's record in the repository, and the branch
	Contents caisson.Digest `json:"contents"`
	Open     []string       `json:"open"`
}

// Inspection is what there is in a workspace at one moment.
type Inspection struct {
	Workspace caisson.Workspace `json:"workspace"`
	Tip       string            `json:"tip"`              // of its branch; "" where there is none
	Driver    string            `json:"driver,omitempty"` // run that works in it now
	Foreign   bool              `json:"foreign"`          // another directory is in its place
	Unstable  bool              `json:"unstable"`         // two looks did not agree
	Losses    []Loss            `json:"losses"`
	Changed   []caisson.Bytes   `json:"changed"` // paths whose content is in the marks
	Pins      []Pin             `json:"pins"`
	Size      int64             `json:"size"` // of the tree and the shadow on disk, in bytes
	Marks     Marks             `json:"marks"`
}

// Digest is of all that was found. It is what a person's word is given for.
func (i Inspection) Digest() caisson.Digest {
	raw, err := caisson.CanonicalOf(i)
	if err != nil { // strings, numbers and times always marshal
		panic(err)
	}
	return caisson.DigestOf(raw)
}

// Has tells whether there is a loss of a kind.
func (i Inspection) Has(kind LossKind) bool {
	return slices.ContainsFunc(i.Losses, func(l Loss) bool { return l.Kind == kind })
}

// Mode is how a workspace may be removed.
type Mode string

// Modes.
const (
	ModeClean   Mode = "clean"   // nothing is lost
	ModeDiscard Mode = "discard" // a person said of exactly this that it may go
	ModeRefused Mode = "refused"
)

// Ask is how a removal is asked for.
type Ask struct {
	// Batch is for more than one workspace, for --yes and where nobody sits at
	// a terminal: nothing is ever discarded.
	Batch bool
	// Word is the digest of the inspection that a person was shown and said to
	// discard; "" where nobody has.
	Word caisson.Digest
}

// Decision is what may be done. A dry run and a removal take the same one.
type Decision struct {
	Mode   Mode         `json:"mode"`
	Code   caisson.Code `json:"code,omitempty"` // why it is refused
	Why    string       `json:"why,omitempty"`
	Hint   string       `json:"hint,omitempty"`
	Losses []Loss       `json:"losses"`
	// Askable: a person may be asked to discard exactly this.
	Askable bool   `json:"askable,omitempty"`
	Permit  Permit `json:"-"` // of a mode that is not refused
}

// Permit is proof that a workspace may be removed as it was when it was looked
// at. [Workspaces.Remove] looks again.
type Permit struct {
	Inspection Inspection     `json:"inspection"`
	Mode       Mode           `json:"mode"`
	Digest     caisson.Digest `json:"digest"`
}

// permitDigest binds an inspection to a mode.
func permitDigest(i Inspection, mode Mode) caisson.Digest {
	return caisson.DigestOf([]byte(string(mode) + "\n" + string(i.Digest())))
}

// valid tells whether the permit is of its own inspection, and of a mode that
// permits.
func (p Permit) valid() bool {
	return (p.Mode == ModeClean || p.Mode == ModeDiscard) && p.Digest == permitDigest(p.Inspection, p.Mode)
}

// Decide says what may be done with a workspace. It looks at nothing: what was
// not found out is a loss like any other.
func Decide(i Inspection, ask Ask) Decision {
	name := i.Workspace.Name
	refuse := func(code caisson.Code, why, hint string) Decision {
		return Decision{Mode: ModeRefused, Code: code, Why: why, Hint: hint, Losses: i.Losses}
	}
	switch {
	case i.Driver != "":
		return refuse(caisson.CodeLeaseHeld, fmt.Sprintf("run %s works in workspace %s", i.Driver, name), "Wait for it, or end it: `caisson runs cancel "+i.Driver+"`, or where it is a sandbox that is kept open `caisson sandbox rm "+i.Driver+"`.")
	case i.Foreign:
		return refuse(caisson.CodeWorkspaceBindingLost, fmt.Sprintf("another directory is in the place of workspace %s", name), "Move it away, then remove the workspace again.")
	case i.Unstable:
		return refuse(caisson.CodeWorkspaceDirty, fmt.Sprintf("workspace %s was changed while it was looked at", name), "End what works in it, then try again.")
	case len(i.Losses) == 0:
		return permit(i, ModeClean)
	}
	why := fmt.Sprintf("%s would be lost with workspace %s", Tally(i.Losses), name)
	if ask.Batch {
		return refuse(caisson.CodeWorkspaceDirty, why, Ending(i.Losses)+"Remove it by itself, at a terminal: there you are asked.")
	}
	if ask.Word != "" && ask.Word == i.Digest() {
		return permit(i, ModeDiscard)
	}
	d := refuse(caisson.CodeWorkspaceDirty, why, "Keep it, or say that it may go.")
	if ask.Word != "" {
		d.Why = fmt.Sprintf("workspace %s is not as it was when you were asked", name)
	}
	d.Askable = true
	return d
}

// Ending says how the runs are ended that could go on in a workspace.
func Ending(losses []Loss) string {
	var end []string
	for _, l := range losses {
		if run, is := strings.CutPrefix(string(l.What), "run "); is && l.Kind == LossRun {
			end = append(end, "`caisson runs cancel "+run+"`")
		}
	}
	if len(end) == 0 {
		return ""
	}
	return "End what could go on in it: " + strings.Join(end, ", ") + ". "
}

func permit(i Inspection, mode Mode) Decision {
	return Decision{Mode: mode, Losses: i.Losses, Permit: Permit{Inspection: i, Mode: mode, Digest: permitDigest(i, mode)}}
}

// Err is the error of a refusal; nil of a permission.
func (d Decision) Err() error {
	if d.Mode != ModeRefused {
		return nil
	}
	return caisson.Errorf(d.Code, "%s", d.Why).WithHint("%s", d.Hint).With("losses", d.Losses)
}

// nouns are what losses are called when they are counted.
var nouns = map[LossKind][2]string{
	LossUnknown: {"something that could not be looked at", "things that could not be looked at"}, LossDamage: {"a damage", "damages"},
	LossRun: {"a run that is not over", "runs that are not over"}, LossOpen: {"the work of a process", "the work of processes"},
	LossOperation: {"an operation under way", "operations under way"}, LossChange: {"a change that is not committed", "changes that are not committed"},
	LossIgnored: {"an ignored file", "ignored files"}, LossStaged: {"what you staged", "what you staged"},
	LossCommit: {"a commit that is nowhere else", "commits that are nowhere else"}, LossRef: {"a reference", "references"},
	LossStash: {"a stash", "stashes"}, LossReflog: {"a commit that only a log knows", "commits that only a log knows"},
}

// Tally counts losses in words.
func Tally(losses []Loss) string {
	count := map[LossKind]int{}
	for _, l := range losses {
		count[l.Kind]++
	}
	var parts []string
	for _, kind := range Losses() {
		switch n := count[kind]; n {
		case 0:
		case 1:
			parts = append(parts, nouns[kind][0])
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, nouns[kind][1]))
		}
	}
	return strings.Join(parts, ", ")
}
