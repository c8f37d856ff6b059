package mask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/glob"
)

const (
	maxEntries = 2_000_000 // looked at in one pass: some 5 s
	maxFound   = 4096      // hidden: the kernel bounds the mounts of a namespace at 100,000
	maxDepth   = 512
)

// rounds bounds how often a tree is looked at again that changes meanwhile.
const rounds = 16

// patterns are those of one workspace.
type patterns []pattern

// compile reads them.
func compile(texts []string) (patterns, error) {
	var all patterns
	for _, p := range texts {
		re, err := glob.Compile(p)
		if err != nil {
			return nil, caisson.Errorf(caisson.CodeConfigInvalid, "the pattern %q to hide cannot be read", p)
		}
		all = append(all, newPattern(p, re))
	}
	return all, nil
}

func (all patterns) match(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for i := range all {
		if all[i].matches(path, name) {
			return true
		}
	}
	return false
}

// pattern is one that is quick where it speaks of names alone, as most do: an
// expression over whole paths takes a second for each million of them.
type pattern struct {
	re *regexp.Regexp
	// names: it is **/ before what has no slash, and re is of that.
	names bool
	// literal is a name without a special character, else empty.
	literal string
}

func newPattern(text string, re *regexp.Regexp) pattern {
	name, anywhere := strings.CutPrefix(text, "**/")
	if !anywhere || strings.ContainsAny(name, "/") || strings.Contains(name, "**") {
		return pattern{re: re}
	}
	if !strings.ContainsAny(name, `*?[]{},\\`) {
		return pattern{names: true, literal: name}
	}
	if of, err := glob.Compile(name); err == nil {
		return pattern{re: of, names: true}
	}
	return pattern{re: re}
}

func (p *pattern) matches(path, name string) bool {
	switch {
	case p.literal != "":
		return name == p.literal
	case p.names:
		return p.re.MatchString(name)
	}
	return p.re.MatchString(path)
}

// behind returns what links lead to, where that is in the workspace, and forgets
// those that are links no more.
func behind(top string, links map[string]bool) []string {
	var found []string
	for link := range links {
		if _, err := os.Readlink(filepath.Join(top, link)); err != nil {
			delete(links, link)
			continue
		}
		if to, within := target(top, link); within {
			found = append(found, to)
		}
	}
	return found
}

// target returns what a link in the workspace leads to, relative to it, if that
// is in the workspace.
func target(workspace, link string) (string, bool) {
	to, err := filepath.EvalSymlinks(filepath.Join(workspace, link))
	if err != nil {
		return "", false // it leads nowhere
	}
	rel, within := strings.CutPrefix(to, workspace+"/")
	return rel, within
}

// errTooMany is for a tree that is beyond the bounds.
func errTooMany(what string, most int) error {
	return caisson.Errorf(caisson.CodeIsolationUnavailable, "`hide` %s, more than %d", what, most).
		WithHint("Name directories instead of the files in them, or keep fewer files in the workspace.")
}

func errLook(path string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return caisson.Errorf(caisson.CodeCancelled, "cancelled while looking for what to hide: %w", err)
	}
	return caisson.Errorf(caisson.CodeIsolationUnavailable, "%w", fmt.Errorf("look through %q for what to hide: %w", path, err))
}

func errFound(n int) error { return errTooMany(fmt.Sprintf("names %d files", n), maxFound) }

func errMoved() error {
	return caisson.Errorf(caisson.CodeIsolationUnavailable, "what is to be hidden cannot be: it is moved all the time").
		WithHint("Stop what moves it: a job inside, or a program on the host.")
}

func errEnded() error { return caisson.Errorf(caisson.CodeSandboxLost, "the sandbox has ended") }
