package workspace

import (
	"bytes"
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

const (
	// maxLogs bounds what is read of the logs of references; a log grows by a
	// line of about 150 bytes with each move.
	maxLogs = 32 << 20
	// maxLogged bounds how many commits logs may name.
	maxLogged = 100_000
)

// operations are what git keeps in a git directory while it is not done.
var operations = [...]struct{ file, name string }{
	{"MERGE_HEAD", "merge"},
	{"rebase-merge", "rebase"},
	{"rebase-apply", "rebase or am"},
	{"CHERRY_PICK_HEAD", "cherry-pick"},
	{"REVERT_HEAD", "revert"},
	{"BISECT_LOG", "bisect"},
	{"BISECT_START", "bisect"},
	{"sequencer", "sequence of commits"},
}

// gitState is what a git directory keeps beside its references, read as data.
type gitState struct {
	operations []string
	state      []string // objects that operations name
	stashes    []string // newest first
	logged     []string // commits that logs name
}

// underWay lists the operations that are not done in a git directory.
func underWay(root *os.Root) []string {
	var found []string
	for _, op := range operations {
		if _, err := root.Lstat(op.file); err == nil && !slices.Contains(found, op.name) {
			found = append(found, op.name)
		}
	}
	return found
}

func tooManyLogs() error {
	return caisson.Errorf(caisson.CodeImportHeld, "the logs of references are too large to be looked at")
}

// readGitState reads all of it, or tells why it could not. Everything may have
// been written to deceive: nothing is followed out of root, and sizes and counts
// are bounded.
func readGitState(root *os.Root) (gitState, error) {
	s := gitState{operations: underWay(root)}
	l := findLogged(root, fetchHead)
	if l.over {
		return s, tooManyLogs()
	}
	if l.unread != nil {
		return s, l.unread
	}
	left, state, logged := int64(maxLogs), map[string]bool{}, map[string]bool{}
	for _, file := range l.files {
		if file.size > left {
			return s, tooManyLogs()
		}
		raw, upTo, err := readTail(root, file, logSeen{}, left)
		if err != nil {
			return s, err
		}
		if left -= upTo.Size; left < 0 { // it has grown
			return s, tooManyLogs()
		}
		ids, newer := file.named(raw)
		switch {
		case !file.log:
			s.state = appendNew(s.state, state, ids)
		case file.name == stashLog:
			slices.Reverse(newer)
			s.stashes = newer
		default:
			s.logged = appendNew(s.logged, logged, ids)
		}
	}
	if len(s.state) > maxRefs || len(s.logged) > maxLogged {
		return s, tooManyLogs()
	}
	return s, nil
}

// appendNew appends those of ids that were not seen.
func appendNew(to []string, seen map[string]bool, ids []string) []string {
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			to = append(to, id)
		}
	}
	return to
}

// parseLog returns the objects that a log names, and of those the ones that a
// reference was moved to. A line that is no entry is left out.
func parseLog(raw []byte) (ids, newer []string) {
	for line := range bytes.SplitSeq(raw, []byte{'\n'}) {
		old, rest, ok := strings.Cut(string(line), " ")
		to, _, ok2 := strings.Cut(rest, " ")
		if !ok || !ok2 || len(old) != len(to) {
			continue
		}
		if isObjectID(old) {
			ids = append(ids, old)
		}
		if isObjectID(to) {
			ids, newer = append(ids, to), append(newer, to)
		}
	}
	return ids, newer
}
