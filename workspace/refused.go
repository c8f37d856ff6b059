package workspace

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// complained is how git says of an object why it does not take it, as printable
// leaves it: the lines joined.
var complained = regexp.MustCompile(`object ([0-9a-f]{40,64}): ([A-Za-z]+): (.*?)(?: error: | fatal: |\)|$)`)

// maxRefused bounds the files that are left out of one snapshot.
const maxRefused = 16

// refused is that git outside does not take files which came from inside.
type refused struct {
	paths []string // relative to the tree
	says  string   // which ones, and why
}

// namePaths returns err with the paths of the objects that git outside does not
// take: who is to do something about a file does not know it by its object. Where
// git inside does not say, err stays as it is.
func (w *Workspaces) namePaths(ctx context.Context, from source, ws caisson.Workspace, box Box, wants []string, err error) error {
	why := map[string]string{}
	for _, m := range complained.FindAllStringSubmatch(err.Error(), -1) {
		why[m[1]] = cmp.Or(why[m[1]], m[3]+" ("+m[2]+")")
	}
	if len(why) == 0 {
		return err
	}
	asked := &bytes.Buffer{}
	for _, want := range wants {
		asked.WriteString(want + "\n")
	}
	for _, have := range from.haves {
		if isObjectID(have) {
			asked.WriteString("^" + have + "\n")
		}
	}
	found := &objectPaths{of: why}
	_, lookErr := w.insideCommand(ctx, ws, box, caisson.Command{
		Argv:  []string{"git", "--git-dir=" + from.dir, "rev-list", "--objects", "--ignore-missing", "--stdin"},
		Stdin: asked, Stdout: found,
	})
	if lookErr != nil || len(found.paths) == 0 {
		return err
	}
	slices.Sort(found.says)
	says := "git does not take over " + strings.Join(found.says, "; ")
	return caisson.Errorf(caisson.CodeImportHeld, "%s", says).With("paths", found.paths).
		WithHint("Mend it inside, or remove it. Where it is committed there, take it out of the commits too: `git rebase -i`, or `git commit --amend` if it is in the last one.")
}

// objectPaths finds the paths of some objects in what `git rev-list --objects`
// writes.
type objectPaths struct {
	of    map[string]string // by object, why it is looked for
	line  []byte
	over  bool // the line is longer than any that could be of use
	paths []string
	says  []string
}

func (o *objectPaths) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		if o.over = o.over || len(o.line)+len(part) > 8<<10; !o.over {
			o.line = append(o.line, part...)
		}
		if ended {
			o.take(string(o.line))
			o.line, o.over = o.line[:0], false
		}
		p = rest
	}
	return n, nil
}

func (o *objectPaths) take(line string) {
	id, path, is := strings.Cut(line, " ")
	if why := o.of[id]; is && path != "" && why != "" && !o.over && len(o.paths) < maxRefused {
		o.paths = append(o.paths, path)
		o.says = append(o.says, printable(path)+": "+why)
	}
}

// refusedIn returns what git outside does not take, where that is why a snapshot
// was not kept and it is known by its paths.
func refusedIn(err error) refused {
	if caisson.CodeOf(err) != caisson.CodeImportHeld {
		return refused{}
	}
	e := caisson.AsError(err)
	paths, _ := e.Detail["paths"].([]string)
	return refused{paths, e.Message}
}

// leaveOut takes files that git outside does not take out of the index of a look:
// they are in it as they are committed, or not at all. Their names are its input.
const leaveOut = `
if [ "${CAISSON_LEAVE:-}" ]; then
	left=$GIT_INDEX_FILE.left
	cat >"$left"
	git update-index -z --force-remove --stdin <"$left"
	if git rev-parse --verify --quiet HEAD >/dev/null; then
		xargs -0 git --literal-pathspecs ls-tree -z --full-tree HEAD -- <"$left" | git update-index -z --index-info
	fi
	rm -f "$left"
fi
`
