package inside

import (
	"bytes"
	"container/heap"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/glob"
)

const (
	maxGrepFile = 4 << 20 // larger ones are data, not text that a person wrote
	maxLine     = 2000    // bytes of a line that are shown
	maxFound    = 4 << 20 // bytes of all lines together
	maxContext  = 50
	maxDepth    = 512
	sniff       = 8 << 10 // a NUL byte this early makes a file binary
)

func compileGlob(pattern string) (*regexp.Regexp, error) {
	re, err := glob.Compile(pattern)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeCallInvalid, "the pattern %q cannot be read: %w", pattern, err)
	}
	return re, nil
}

// walk visits every file beneath dir in order of names; links are visited, not
// followed; .git is left out. Paths are relative to the workspace.
func (o *fileOp) walk(visit func(path string, d fs.DirEntry) error) error {
	path := string(o.req.Path)
	start, err := o.s.relative(path)
	if err != nil {
		return err
	}
	top, err := o.s.openFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	entries, err := top.ReadDir(-1)
	_ = top.Close()
	if err != nil {
		return pathError(path, err)
	}
	return o.visit(start, entries, visit, 0)
}

func (o *fileOp) visit(dir string, entries []fs.DirEntry, visit func(string, fs.DirEntry) error, depth int) error {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if o.dropped.Load() {
			return errDropped
		}
		if e.Name() == ".git" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err := visit(path, e); err != nil {
			return err
		}
		if !e.IsDir() || depth > maxDepth {
			continue
		}
		// A directory that cannot be read, or has gone, holds nothing to find.
		f, err := o.s.openFile(path, os.O_RDONLY)
		if err != nil {
			continue
		}
		below, _ := f.ReadDir(-1)
		_ = f.Close()
		if err := o.visit(path, below, visit, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// beneath returns path as seen from the directory of the request.
func (o *fileOp) beneath(path string) string {
	start, err := o.s.relative(string(o.req.Path))
	if err != nil || start == "." {
		return path
	}
	return strings.TrimPrefix(path, start+"/")
}

// newest is a heap of the newest files, the oldest on top.
type newest []found

type found struct {
	path string
	at   time.Time
}

func (n newest) Len() int { return len(n) }
func (n newest) Less(i, j int) bool {
	if n[i].at.Equal(n[j].at) {
		return n[i].path > n[j].path
	}
	return n[i].at.Before(n[j].at)
}
func (n newest) Swap(i, j int) { n[i], n[j] = n[j], n[i] }

// Push implements heap.Interface.
func (n *newest) Push(x any) { *n = append(*n, x.(found)) } // only found is pushed

// Pop implements heap.Interface.
func (n *newest) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

func (o *fileOp) glob() (wire.Done, error) {
	re, err := compileGlob(string(o.req.Pattern))
	if err != nil {
		return wire.Done{}, err
	}
	limit := int(min(max(o.req.Limit, 1), 100_000))
	best, total := &newest{}, 0
	err = o.walk(func(path string, d fs.DirEntry) error {
		if d.IsDir() || !re.MatchString(o.beneath(path)) {
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return nil // gone meanwhile
		}
		total++
		heap.Push(best, found{path, st.ModTime()})
		if best.Len() > limit {
			heap.Pop(best)
		}
		return nil
	})
	if err != nil {
		return wire.Done{}, err
	}
	paths := make([]caisson.Bytes, best.Len())
	for i := len(paths) - 1; i >= 0; i-- {
		paths[i] = caisson.Bytes(heap.Pop(best).(found).path) // only found is pushed
	}
	return wire.Done{Total: total}, o.list(paths)
}

// grepper is one search.
type grepper struct {
	re      *regexp.Regexp
	context int
	limit   int
	bytes   int
	matches []wire.Match
	shown   int
	total   int
	skipped int
}

func (o *fileOp) grep() (wire.Done, error) {
	re, err := regexp.Compile(string(o.req.Pattern))
	if err != nil {
		return wire.Done{}, caisson.Errorf(caisson.CodeCallInvalid, "the expression cannot be read: %w", err)
	}
	include, err := compileGlob(string(o.req.Include))
	if err != nil {
		return wire.Done{}, err
	}
	g := &grepper{re: re, context: min(max(o.req.Context, 0), maxContext), limit: int(min(max(o.req.Limit, 1), 10_000))}
	var buf bytes.Buffer
	look := func(path string) {
		wanted := filepath.Base(path)
		if strings.Contains(string(o.req.Include), "/") {
			wanted = o.beneath(path)
		}
		if o.req.Include != "" && !include.MatchString(wanted) {
			return
		}
		if text, ok := o.text(path, &buf); ok {
			g.search(path, text)
		} else {
			g.skipped++
		}
	}
	if err := o.grepAll(look); err != nil {
		return wire.Done{}, err
	}
	return wire.Done{Total: g.total, Skipped: g.skipped}, o.list(g.matches)
}

// grepAll looks at one file, or at all below a directory.
func (o *fileOp) grepAll(look func(string)) error {
	path := string(o.req.Path)
	f, err := o.s.openFile(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	_ = f.Close()
	if err != nil {
		return pathError(path, err)
	}
	if st.Mode().IsRegular() {
		rel, err := o.s.relative(path)
		if err == nil {
			look(rel)
		}
		return err
	}
	return o.walk(func(path string, d fs.DirEntry) error {
		if d.Type().IsRegular() {
			look(path)
		}
		return nil
	})
}

// text reads a text file that is not too large.
func (o *fileOp) text(path string, buf *bytes.Buffer) ([]byte, bool) {
	f, st, err := o.s.regular(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if st.Size() > maxGrepFile {
		return nil, false
	}
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(f, maxGrepFile+1)); err != nil && !errors.Is(err, io.EOF) || buf.Len() > maxGrepFile {
		return nil, false
	}
	text := buf.Bytes()
	return text, bytes.IndexByte(text[:min(len(text), sniff)], 0) < 0
}

// search looks for the expression in each line.
func (g *grepper) search(path string, text []byte) {
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	next := 0 // first line that was not shown yet
	for i, line := range lines {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if !g.re.Match(line) {
			continue
		}
		g.total++
		if g.shown >= g.limit || g.bytes > maxFound {
			continue
		}
		g.shown++
		for j := max(next, i-g.context); j < i; j++ {
			g.add(path, j, lines[j], true)
		}
		if i >= next {
			g.add(path, i, line, false)
		} else { // shown as context of the one before
			g.matches[len(g.matches)-(next-i)].Context = false
		}
		end := min(i+g.context, len(lines)-1)
		for j := max(next, i+1); j <= end; j++ {
			g.add(path, j, lines[j], true)
		}
		next = max(next, end+1)
	}
}

func (g *grepper) add(path string, at int, line []byte, context bool) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > maxLine {
		cut := maxLine
		for cut > maxLine-utf8.UTFMax && !utf8.RuneStart(line[cut]) {
			cut--
		}
		line = line[:cut]
	}
	g.bytes += len(line) + len(path)
	g.matches = append(g.matches, wire.Match{Path: caisson.Bytes(path), Line: at + 1, Text: caisson.Bytes(line), Context: context})
}
