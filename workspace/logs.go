package workspace

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

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

// stateFiles name commits that an operation, or the last one, needs.
var stateFiles = [...]string{
	"ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "FETCH_HEAD", "BISECT_EXPECTED_REV", "AUTO_MERGE", "MERGE_AUTOSTASH",
	"rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/stopped-sha", "rebase-merge/autostash", "rebase-merge/squash-onto",
	"rebase-apply/onto", "rebase-apply/orig-head", "rebase-apply/autostash", "sequencer/head", "sequencer/abort-safety",
}

// gitState is what a git directory keeps beside its references, read as data.
type gitState struct {
	operations []string
	state      []string // objects that operations name
	stashes    []string // newest first
	logged     []string // commits that logs name
}

// readGitState reads it. Everything may have been written to deceive: nothing
// is followed out of root, and sizes and counts are bounded.
func readGitState(root *os.Root) (gitState, error) {
	var s gitState
	for _, op := range operations {
		if _, err := root.Lstat(op.file); err == nil && !slices.Contains(s.operations, op.name) {
			s.operations = append(s.operations, op.name)
		}
	}
	for _, name := range stateFiles {
		raw, err := readRegular(root, name, 1<<20)
		if err != nil {
			continue // not there; else git inside has no use for it either
		}
		for line := range strings.SplitSeq(string(raw), "\n") {
			id, _, _ := strings.Cut(line, "\t")
			if id = strings.TrimSpace(id); isObjectID(id) && !slices.Contains(s.state, id) && len(s.state) < maxRefs {
				s.state = append(s.state, id)
			}
		}
	}
	l := &logReader{root: root, seen: map[string]bool{}}
	if err := l.read("logs", 0); err != nil {
		return s, err
	}
	slices.Reverse(l.stashes)
	s.stashes, s.logged = l.stashes, l.ids
	return s, nil
}

// logReader reads logs of references.
type logReader struct {
	root    *os.Root
	bytes   int64
	files   int
	seen    map[string]bool
	ids     []string
	stashes []string // oldest first
}

func tooManyLogs() error {
	return caisson.Errorf(caisson.CodeImportHeld, "the logs of references are too large to be looked at")
}

func (l *logReader) read(dir string, depth int) error {
	f, err := l.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(4*maxRefs + 1)
	_ = f.Close()
	if err != nil && !errors.Is(err, io.EOF) { // which is that of an empty one
		return err
	}
	if l.files += len(entries); l.files > 4*maxRefs || depth > maxRefDepth {
		return tooManyLogs()
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		switch {
		case entry.IsDir():
			err = l.read(name, depth+1)
		case entry.Type().IsRegular():
			err = l.log(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *logReader) log(name string) error {
	raw, err := readRegular(l.root, name, maxLogs-l.bytes)
	if err != nil {
		if info, statErr := l.root.Lstat(name); statErr == nil && info.Size() > maxLogs-l.bytes {
			return tooManyLogs()
		}
		return err
	}
	l.bytes += int64(len(raw))
	ids, newer := parseLog(raw)
	if name == "logs/refs/stash" {
		l.stashes = newer
		return nil
	}
	for _, id := range ids {
		if l.seen[id] {
			continue
		}
		if len(l.ids) >= maxLogged {
			return tooManyLogs()
		}
		l.seen[id] = true
		l.ids = append(l.ids, id)
	}
	return nil
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
