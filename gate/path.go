package gate

import (
	"errors"
	"path"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/gate/shell"
)

// cleaned returns a path without . and .. and double slashes; links are not
// resolved.
func cleaned(p string) string { return path.Clean(p) }

// pathPattern matches paths segment by segment; ** is any number of segments.
type pathPattern struct {
	absolute bool
	segments []string
}

func parsePathPattern(s string) (pathPattern, error) {
	switch {
	case s == "" || s == "/":
		return pathPattern{}, errors.New("names no path")
	case strings.HasPrefix(s, "~"):
		return pathPattern{}, errors.New("write the path out; ~ is not read")
	case cleaned(s) != s:
		return pathPattern{}, errors.New("write it clean: without . or .. or double or last slashes")
	}
	p := pathPattern{absolute: strings.HasPrefix(s, "/"), segments: strings.Split(strings.TrimPrefix(s, "/"), "/")}
	for _, segment := range p.segments {
		if segment == "**" {
			continue
		}
		if strings.Contains(segment, "**") {
			return p, errors.New("** must be a segment of its own")
		}
		if _, err := path.Match(segment, ""); err != nil {
			return p, errors.New("brackets or backslash do not end")
		}
	}
	return p, nil
}

// match tells whether an absolute path fits. A relative pattern is meant from
// the workspace; one that begins with ** from anywhere.
func (p pathPattern) match(file, workspace string) bool {
	if p.absolute {
		return segmentsMatch(p.segments, split(file))
	}
	if rest, ok := inside(file, workspace); ok && segmentsMatch(p.segments, split(rest)) {
		return true
	}
	return p.segments[0] == "**" && segmentsMatch(p.segments, split(file))
}

func inside(file, workspace string) (rest string, ok bool) {
	if workspace == "" {
		return "", false
	}
	if file == workspace {
		return "", true
	}
	return strings.CutPrefix(file, strings.TrimSuffix(workspace, "/")+"/")
}

func split(p string) []string {
	p = strings.Trim(p, "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// segmentsMatch goes back at most to the last **: what came before it can only
// be worse elsewhere, so the time is bounded by the product of the lengths.
func segmentsMatch(pattern, segments []string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(segments) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			star, mark = i, j
			i++
		case i < len(pattern) && segmentMatch(pattern[i], segments[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

func segmentMatch(pattern, segment string) bool {
	ok, err := path.Match(pattern, segment)
	return ok && err == nil
}

// use is a path that a call uses. One that is not known may be any path.
type use struct {
	caisson.PathUse
	known bool
}

// uses gathers the paths of a call: those that the tool names, and the targets
// of redirections.
func uses(call caisson.Call, workspace string, readings []shell.Reading) []use {
	out := make([]use, 0, len(call.Facets.Paths))
	for _, p := range call.Facets.Paths {
		out = append(out, use{caisson.PathUse{Path: cleaned(p.Path), Write: p.Write}, strings.HasPrefix(p.Path, "/")})
	}
	dir := call.Facets.Dir
	if dir == "" {
		dir = workspace
	}
	for _, r := range readings {
		for _, t := range r.Targets {
			out = append(out, target(t, dir, r.Moves))
		}
	}
	return out
}

func target(t shell.Target, dir string, moves bool) use {
	u := use{caisson.PathUse{Path: t.Word.Text, Write: t.Write}, t.Word.Known && !t.Word.Tilde}
	switch {
	case !u.known:
	case path.IsAbs(u.Path):
		u.Path = cleaned(u.Path)
	case moves || dir == "":
		u.known = false
	default:
		u.Path = path.Join(dir, u.Path)
	}
	return u
}

// pathsCaught tells whether one of the uses may fit one of the patterns.
func (r *rule) pathsCaught(all []use, workspace string) bool {
	for _, u := range all {
		if r.Write && !u.Write {
			continue
		}
		if !u.known || r.fits(u, workspace) {
			return true
		}
	}
	return false
}

// pathsCovered tells whether every use is known and fits a pattern; with
// write: true, whether one of them writes, too.
func (r *rule) pathsCovered(all []use, workspace string) bool {
	writes := false
	for _, u := range all {
		if !u.known || !r.fits(u, workspace) {
			return false
		}
		writes = writes || u.Write
	}
	return len(all) > 0 && (writes || !r.Write)
}

func (r *rule) fits(u use, workspace string) bool {
	for _, p := range r.paths {
		if p.match(u.Path, workspace) {
			return true
		}
	}
	return false
}
