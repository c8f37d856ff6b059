package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

const (
	// maxKept is how many commits that only logs know are asked for at once;
	// more are asked for by the next import.
	maxKept = 2_000
	// maxTries bounds how often git inside is asked again for a part of what it
	// could not give.
	maxTries = 64
	// askDeadline bounds the question what git inside has.
	askDeadline = time.Minute
)

// source is a git directory inside whose work is kept, and where: a shadow, or
// that of a submodule in it.
type source struct {
	dir    string // written by whoever is inside
	repo   *repository
	prefix string   // of the references that keep what was made there
	haves  []string // commits that both sides have
	pinned []string // references beside those below prefix that keep commits of it
}

// pins returns the references below prefix.
func (w *Workspaces) pins(ctx context.Context, repo *repository, patterns ...string) (map[string]string, error) {
	out, err := w.git.run(ctx, repo.in(append([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, patterns...)...))
	if err != nil {
		return nil, failed("list what is kept", err)
	}
	return parseRefs(out), nil
}

// dropRefs deletes those references below patterns that are to go, all or none.
// One that is moved meanwhile keeps all.
func (w *Workspaces) dropRefs(ctx context.Context, repo *repository, goes func(name string) (bool, error), patterns ...string) error {
	pins, err := w.pins(ctx, repo, patterns...)
	if err != nil {
		return err
	}
	var updates []refUpdate
	for name, id := range pins {
		going, err := goes(name)
		if err != nil {
			return err
		}
		if going {
			updates = append(updates, refUpdate{name, absent, id})
		}
	}
	return w.updateRefs(ctx, repo, "", updates...)
}

// every is for dropRefs where all go.
func every(string) (bool, error) { return true, nil }

// keepLogged keeps commits that no reference inside holds: earlier entries of
// the stash, what was amended, rebased or reset away, and what is under way.
// Only commits that git inside serves, whole, are kept; what it does not is no
// error of the import, and told. more: there is more than is done at once.
func (w *Workspaces) keepLogged(ctx context.Context, ws caisson.Workspace, box Box, from source, ids []string) (kept []string, unkept string, more bool, err error) {
	if len(ids) == 0 {
		return nil, "", false, nil
	}
	types, err := w.types(ctx, from.repo, ids)
	if err != nil {
		return nil, "", false, err
	}
	var present, missing []string
	for _, id := range ids {
		switch types[id] {
		case "commit":
			present = append(present, id)
		case "":
			missing = append(missing, id)
		}
	}
	if len(missing) > maxKept {
		missing, more = missing[:maxKept], true
	}
	if len(missing) > 0 {
		served, err := w.served(ctx, ws, box, from, missing)
		if err != nil {
			return nil, "", false, err
		}
		tries := maxTries
		got, why, err := w.fetchParts(ctx, ws, box, from, served, &tries)
		if err != nil {
			return nil, "", false, err
		}
		unkept, present = why, append(present, got...)
	}
	tips, err := w.unpinned(ctx, from, present)
	if err != nil || len(tips) == 0 {
		return nil, unkept, more, err
	}
	if len(tips) > maxKept {
		tips, more = tips[:maxKept], true
	}
	var updates []refUpdate
	for _, id := range tips {
		name := from.prefix + "log/" + id
		updates, kept = append(updates, refUpdate{name, id, ""}), append(kept, name)
	}
	if err := w.updateRefs(ctx, from.repo, "", updates...); err != nil {
		return nil, unkept, more, failed("keep what only logs inside know", err)
	}
	return kept, unkept, more, nil
}

// typesInside asks git inside which of ids a git directory there has, and of
// which type. What it said up to where it went wrong is returned with the error.
func (w *Workspaces) typesInside(ctx context.Context, ws caisson.Workspace, box Box, dir string, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out := &limitedBuffer{limit: (len(ids) + 1) * 128}
	_, err := w.insideCommand(ctx, ws, box, caisson.Command{
		Argv: []string{"git", "--git-dir=" + dir, "cat-file", "--batch-check=%(objectname) %(objecttype)"}, Env: []string{"GIT_NO_LAZY_FETCH=1"},
		Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n"), Stdout: out, Deadline: askDeadline,
	})
	types, wrong := readTypes(out.String(), ids)
	if err == nil && wrong != nil {
		err = failed("ask git inside", wrong)
	}
	return types, err
}

// readTypes reads one line "ID TYPE" or "ID missing" for each of ids, up to where
// that is not so.
func readTypes(answer string, ids []string) (map[string]string, error) {
	types := map[string]string{}
	lines := strings.SplitAfter(answer, "\n")
	for i, id := range ids {
		line, whole := strings.CutSuffix(lines[min(i, len(lines)-1)], "\n")
		if !whole {
			return types, fmt.Errorf("git answered for %d objects of %d", i, len(ids))
		}
		of, kind, _ := strings.Cut(line, " ")
		switch kind {
		case "missing":
		case "commit", "tree", "blob", "tag":
			if of != id {
				return types, errors.New("git answered for another object")
			}
			types[id] = kind
		default:
			return types, fmt.Errorf("git answered %q", printable(line[:min(len(line), 80)]))
		}
	}
	if len(lines) > len(ids)+1 {
		return types, errors.New("git answered for more than was asked")
	}
	return types, nil
}

// served asks git inside which of ids are commits that it has.
func (w *Workspaces) served(ctx context.Context, ws caisson.Workspace, given Box, from source, ids []string) ([]string, error) {
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return nil, err
	}
	defer closeBox() //nolint:errcheck // it has answered
	types, err := w.typesInside(ctx, ws, box, from.dir, ids)
	if err != nil && caisson.CodeOf(err) != caisson.CodeGitFailed { // that git inside went wrong is no error
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return types[id] != "commit" }), nil
}

// fetchParts fetches commits; where all of them at once cannot be had, one half
// and the other, so that one that is not whole does not keep the others out.
func (w *Workspaces) fetchParts(ctx context.Context, ws caisson.Workspace, box Box, from source, ids []string, tries *int) (got []string, why string, err error) {
	if len(ids) == 0 {
		return nil, "", nil
	}
	if *tries--; *tries < 0 {
		return nil, fmt.Sprintf("%d commits that only logs inside know were not taken: too many of them are not whole", len(ids)), nil
	}
	err = w.fetchFrom(ctx, from, ws, box, ids)
	if err == nil {
		return ids, "", nil
	}
	if caisson.CodeOf(err) != caisson.CodeImportHeld {
		return nil, "", err
	}
	if len(ids) == 1 {
		return nil, fmt.Sprintf("commit %s, which only a log inside knows, was not taken: %v", ids[0], err), nil
	}
	half := len(ids) / 2
	one, whyOne, errOne := w.fetchParts(ctx, ws, box, from, ids[:half], tries)
	other, whyOther, errOther := w.fetchParts(ctx, ws, box, from, ids[half:], tries)
	return append(one, other...), cmp.Or(whyOne, whyOther), errors.Join(errOne, errOther)
}

// unpinned returns those of commits that nothing of ours keeps, without those
// that another one contains.
func (w *Workspaces) unpinned(ctx context.Context, from source, commits []string) ([]string, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	pins, err := w.pins(ctx, from.repo, append([]string{from.prefix}, from.pinned...)...)
	if err != nil {
		return nil, err
	}
	var ask strings.Builder
	for _, id := range commits {
		ask.WriteString(id + "\n")
	}
	for id := range maps.Values(pins) {
		ask.WriteString("^" + id + "\n")
	}
	inv := from.repo.in("rev-list", "--parents", "--stdin")
	inv.stdin = strings.NewReader(ask.String())
	out, err := w.git.run(ctx, inv)
	if err != nil {
		return nil, failed("look for what is not kept", err)
	}
	tips := map[string]bool{}
	inner := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		ids := strings.Fields(line)
		tips[ids[0]] = true
		for _, parent := range ids[1:] {
			inner[parent] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(commits), func(id string) bool { return !tips[id] || inner[id] }), nil
}
