package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxLogFiles bounds the files in which a shadow's past is looked for.
	maxLogFiles = 2 * maxRefs
	// maxLogTail is how much of the end of one log is read: some 25,000 entries,
	// of which those that an earlier import saw are kept already.
	maxLogTail = 4 << 20
	// maxLogBytes bounds what is read of all logs at once.
	maxLogBytes = 16 << 20
)

// stateFiles hold objects of something that is under way, or was just done, and
// that no reference may hold.
var stateFiles = [...]string{
	"ORIG_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_EXPECTED_REV",
	"rebase-merge/onto", "rebase-merge/orig-head", "rebase-merge/stopped-sha", "rebase-merge/autostash", "rebase-merge/squash-onto", "rebase-merge/amend",
	"rebase-apply/onto", "rebase-apply/orig-head", "rebase-apply/autostash", "rebase-apply/original-commit", "sequencer/head", "sequencer/abort-safety",
}

const (
	// fetchHead holds what was fetched, which can be had again: it is no reason
	// to keep it while the workspace is there.
	fetchHead = "FETCH_HEAD"
	// stashLog has all entries of the stash, the newest last.
	stashLog = "logs/refs/stash"
)

// logged is what the logs of a shadow, and what is under way there, tell of
// commits that its references need not hold: earlier entries of the stash, what
// was amended or reset away, heads of worktrees that were made inside.
type logged struct {
	files  []logFile
	mark   string // of names, sizes and times; the same mark, nothing new
	over   bool   // there is more than is looked at
	unread error  // why something could not be looked at
}

type logFile struct {
	name string
	size int64
	log  bool // entries, the newest last; else ids alone
}

// findLogged lists those files, and others of one line an object, as data: no
// link is followed out of the shadow, and counts are bounded.
func findLogged(root *os.Root, others ...string) logged {
	l, sum := logged{}, sha256.New()
	add := func(name string, log bool) {
		if len(l.files) >= maxLogFiles {
			l.over = true
			return
		}
		info, err := root.Lstat(name)
		if l.note(err); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return
		}
		l.files = append(l.files, logFile{name, info.Size(), log})
		fmt.Fprintf(sum, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	tops := []string{"."}
	for _, entry := range l.list(root, "worktrees") {
		if entry.IsDir() {
			tops = append(tops, path.Join("worktrees", entry.Name()))
			add(path.Join("worktrees", entry.Name(), "HEAD"), false)
		}
	}
	for _, top := range tops {
		for _, name := range slices.Concat(stateFiles[:], others) {
			add(path.Join(top, name), false)
		}
		l.walk(root, path.Join(top, "logs"), 0, add)
	}
	l.mark = hex.EncodeToString(sum.Sum(nil))
	return l
}

// note keeps the first error that is not of something that is not there.
func (l *logged) note(err error) {
	if l.unread == nil && !isAny(err, syscall.ENOENT, syscall.ENOTDIR) && !errors.Is(err, io.EOF) {
		l.unread = err
	}
}

func (l *logged) walk(root *os.Root, dir string, depth int, add func(string, bool)) {
	if l.over = l.over || depth > maxRefDepth; l.over {
		return
	}
	for _, entry := range l.list(root, dir) {
		if name := path.Join(dir, entry.Name()); entry.IsDir() {
			l.walk(root, name, depth+1, add)
		} else {
			add(name, true)
		}
	}
}

// list returns the first entries of a directory, in order.
func (l *logged) list(root *os.Root, dir string) []fs.DirEntry {
	f, err := root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if l.note(err); err != nil {
		return nil
	}
	entries, err := f.ReadDir(maxLogFiles + 1) // what could be read is looked at
	l.note(err)
	_ = f.Close()
	if len(entries) > maxLogFiles {
		l.over = true
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// logSeen is how far a log was read, and what it ended with then: one that has
// only grown since is read on from there.
type logSeen struct {
	Size int64  `json:"size"`
	End  string `json:"end"`
}

// logEnd is how much of what was read is compared.
const logEnd = 256

// named returns the objects that a file names, and of a log those that a
// reference was moved to.
func (f logFile) named(raw []byte) (ids, newer []string) {
	if f.log {
		return parseLog(raw)
	}
	for line := range bytes.SplitSeq(raw, []byte{'\n'}) {
		if field := bytes.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' }); len(field) > 0 && isObjectID(string(field[0])) {
			ids = append(ids, string(field[0]))
		}
	}
	return ids, nil
}

// ids reads the object ids that those files name, of the given length, and how
// far it has read. What seen tells of was read before; what cannot be read is
// left out.
func (l *logged) ids(root *os.Root, length int, seen map[string]logSeen) ([]string, map[string]logSeen) {
	found, now, left := map[string]bool{}, map[string]logSeen{}, int64(maxLogBytes)
	for _, file := range l.files {
		raw, upTo, err := readTail(root, file, seen[file.name], min(left, maxLogTail))
		if err != nil {
			continue
		}
		left -= int64(len(raw))
		if file.log {
			now[file.name] = upTo
		}
		ids, _ := file.named(raw)
		for _, id := range ids {
			if len(id) == length {
				found[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), now
}

// readTail reads what a regular file has that was not seen, at most limit bytes
// of its end.
func readTail(root *os.Root, file logFile, seen logSeen, limit int64) ([]byte, logSeen, error) {
	f, err := root.OpenFile(file.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, logSeen{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: file.name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return nil, logSeen{}, err
	}
	end := func(at int64) string {
		raw := make([]byte, min(at, logEnd))
		n, _ := f.ReadAt(raw, at-int64(len(raw)))
		return hashOf(string(raw[:n]))
	}
	size, from := info.Size(), int64(0)
	if file.log && seen.Size > 0 && seen.Size <= size && end(seen.Size) == seen.End {
		from = seen.Size
	}
	from = max(from, size-limit)
	raw := make([]byte, size-from)
	n, err := f.ReadAt(raw, from)
	if errors.Is(err, io.EOF) { // cut off meanwhile
		err = nil
	}
	return raw[:n], logSeen{size, end(size)}, err
}
