package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
)

// largeIgnored is the size from which an ignored file is worth a question: logs
// and objects of a build are smaller, data that somebody loaded is not.
const largeIgnored = 10 << 20

// keepsake are names of ignored files that no build makes again.
var keepsake = regexp.MustCompile(`(?i)^(\.env.*|.*\.(db|sqlite|sqlite3|db3|mdb|pem|key|p12|pfx|jks|keystore|kdbx|ppk|ovpn|tfvars)|.*\.tfstate.*|id_(rsa|dsa|ecdsa|ed25519).*|\.netrc|\.pgpass|\.npmrc|\.pypirc|credentials(\..*)?|secrets?(\..*)?)$`)

// remade are directories whose content tools fetch or make again; built are
// those of builds, where only the name of a file counts.
var (
	remade = regexp.MustCompile(`(^|/)(node_modules|bower_components|__pycache__|\.venv|venv|\.tox|\.nox|\.mypy_cache|\.pytest_cache|\.ruff_cache|\.gradle|\.next|\.turbo|\.parcel-cache)/`)
	built  = regexp.MustCompile(`(^|/)(target|build|dist|out|bin|obj)/`)
)

// statusArgs are a status of the shadow and the tree that no setting inside
// shortens.
var statusArgs = [...]string{
	"git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "-c", "core.ignoreStat=false", "-c", "core.checkStat=default", "-c", "core.trustctime=true",
	"status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignored=traditional", "--no-renames", "--ignore-submodules=none",
}

// holdIndex makes a commit that holds what is staged and not in HEAD, conflicts
// too. The same content makes the same commit.
const holdIndex = `set -eu
GIT_DIR=$CAISSON_SHADOW GIT_WORK_TREE=$CAISSON_TREE
export GIT_DIR GIT_WORK_TREE
cd "$CAISSON_TREE"
tab=$(printf '\t')
git hash-object -w --stdin </dev/null >/dev/null
staged() {
	if git rev-parse --verify --quiet HEAD >/dev/null; then
		git diff-index --cached --raw --no-abbrev --no-renames HEAD -- | sed -n 's/^:[0-7]* \([0-7]*\) [0-9a-f]* \([0-9a-f]*\) .*/\1 \2/p'
	else
		git ls-files -s | sed -n "s/^\([0-7]*\) \([0-9a-f]*\) [0-3]$tab.*/\1 \2/p"
	fi
	git ls-files -u | sed -n "s/^\([0-7]*\) \([0-9a-f]*\) [0-3]$tab.*/\1 \2/p"
}
tree=$(staged | sed -n "/^160000 /d; /^000000 /d; / 0*\$/d; s/^[0-7]* \(.*\)/100644 blob \1$tab\1/p" | sort -u | git mktree)
GIT_AUTHOR_NAME=Caisson GIT_AUTHOR_EMAIL=caisson@localhost GIT_COMMITTER_NAME=Caisson GIT_COMMITTER_EMAIL=caisson@localhost
GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000'
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE
echo index | git -c commit.gpgSign=false commit-tree "$tree"
`

// box looks at the tree and the shadow from inside. What it answers may be made
// up: it can only lie about itself, and all of it goes to the trash either way.
// It returns the marks of the files from before anything inside looked.
func (l *look) box(ctx context.Context, opts InspectOptions) (before fileMarks) {
	marks := l.w.beginMarkFiles(ctx, l.ws, l.at)
	box, closeBox, err := l.w.box(ctx, l.ws, nil)
	before = <-marks
	if err != nil {
		l.unknown("the tree", err)
		return before
	}
	defer func() {
		if err := closeBox(); err != nil {
			l.unknown("the box", err)
		}
	}()
	if l.repo != nil && !l.found.Has(LossDamage) {
		if _, err := l.w.Import(ctx, l.ws, box, opts.Import); err != nil {
			l.unknown("the commits inside", err)
		}
	}
	l.staged = true
	if err := l.tree(ctx, box); err != nil {
		l.unknown("the tree", err)
	}
	if l.repo != nil {
		if err := l.take(ctx, box); err != nil {
			l.unknown("the commits inside", err)
		}
	}
	return before
}

// tree looks at the tree.
func (l *look) tree(ctx context.Context, box Box) error {
	var names []string
	var namesErr error
	var beside sync.WaitGroup
	beside.Go(func() { names, namesErr = l.toldToOverlook(ctx, box) }) // ends with the command
	status, err := l.askStatus(ctx, box)
	beside.Wait()
	if err = errors.Join(err, namesErr); err == nil {
		err = l.readStatus(status)
	}
	if err == nil {
		err = l.overlooked(names)
	}
	if err == nil {
		err = l.modules(ctx, box)
	}
	return err
}

// ask asks git inside.
func (l *look) ask(ctx context.Context, box Box, argv ...string) ([]byte, error) {
	out := &limitedBuffer{limit: maxOutput}
	_, err := l.w.insideCommand(ctx, l.ws, box, caisson.Command{Argv: argv, Stdout: out, Env: l.gitEnv()})
	return out.Bytes(), err
}

// askStatus asks git inside for the status of the tree. What it could not look at
// is unknown: it says so, and succeeds.
func (l *look) askStatus(ctx context.Context, box Box) ([]byte, error) {
	out := &limitedBuffer{limit: maxOutput}
	said, err := l.w.insideCommand(ctx, l.ws, box, caisson.Command{Argv: statusArgs[:], Stdout: out, Env: l.gitEnv()})
	if err == nil && unlooked.MatchString(said) {
		l.lose(LossUnknown, "a part of the tree", said)
	}
	return out.Bytes(), err
}

// toldToOverlook lists the files of whose changes git inside was told to say
// nothing. The index inside is read as data, which of a large tree is a small part
// of the work; git inside is asked where it is not read here.
func (l *look) toldToOverlook(ctx context.Context, box Box) ([]string, error) {
	if raw, err := l.readIndex(); err == nil {
		if names, err := overlookedIn(raw, len(l.ws.Base)/2); err == nil {
			return names, nil
		}
	}
	flags, err := l.ask(ctx, box, "git", "ls-files", "-v", "-z")
	if err != nil {
		return nil, err
	}
	var names []string
	for item := range bytes.SplitSeq(bytes.TrimSuffix(flags, []byte{0}), []byte{0}) {
		if bytes.HasPrefix(item, []byte("H ")) || len(flags) == 0 {
			continue // nearly all of a large tree
		}
		tag, name, ok := strings.Cut(string(item), " ")
		if !ok || len(tag) != 1 {
			return nil, fmt.Errorf("git inside answered %q", printable(string(item[:min(len(item), 80)])))
		}
		if tag == "S" || strings.ToUpper(tag) != tag {
			names = append(names, name)
		}
	}
	return names, nil
}

// readIndex reads the index inside.
func (l *look) readIndex() ([]byte, error) {
	root, err := boundShadow(l.ws)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(root, "index", maxOutput)
}

func (l *look) gitEnv() []string {
	return []string{"GIT_DIR=" + l.ws.Shadow, "GIT_WORK_TREE=" + l.ws.Path}
}

// readStatus reads what git inside says, strictly.
func (l *look) readStatus(raw []byte) error {
	staged := false
	root, err := boundTree(l.ws)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, item := range splitZ(raw) {
		kind, rest, ok := strings.Cut(item, " ")
		if !ok {
			return fmt.Errorf("git inside answered %q", printable(item[:min(len(item), 80)]))
		}
		var path, how string
		switch kind {
		case "1", "u":
			n := map[string]int{"1": 8, "u": 10}[kind]
			fields := strings.SplitN(rest, " ", n)
			if len(fields) != n || len(fields[0]) != 2 {
				return fmt.Errorf("git inside answered %q", printable(item[:min(len(item), 80)]))
			}
			path, how = fields[n-1], changeWord(fields[0], kind == "u")
			staged = staged || kind == "u" || fields[0][0] != '.'
		case "?":
			path, how = rest, "not tracked"
		case "!":
			if why := worthKeeping(root, rest); why != "" {
				l.lose(LossIgnored, rest, why)
			}
			continue
		default:
			return fmt.Errorf("git inside answered %q", printable(item[:min(len(item), 80)]))
		}
		l.lose(LossChange, path, how)
		if l.found.Changed = append(l.found.Changed, caisson.Bytes(path)); len(l.found.Changed) > maxChanged {
			return fmt.Errorf("more than %d files are changed", maxChanged)
		}
	}
	l.staged = staged
	return nil
}

// changeWord says what git's two letters mean.
func changeWord(xy string, conflict bool) string {
	if conflict {
		return "in conflict"
	}
	words := map[byte]string{'M': "modified", 'T': "of another type", 'A': "added", 'D': "deleted", 'R': "renamed", 'C': "copied"}
	var how []string
	if word := words[xy[0]]; word != "" {
		how = append(how, word+", staged")
	}
	if word := words[xy[1]]; word != "" {
		how = append(how, word)
	}
	return strings.Join(how, "; ")
}

// worthKeeping says why an ignored file should not go unnoticed, or "".
func worthKeeping(root *os.Root, name string) string {
	if remade.MatchString(name) {
		return ""
	}
	if strings.HasSuffix(name, "/") {
		return "a repository of its own"
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ""
	case err != nil:
		return "it cannot be looked at"
	case keepsake.MatchString(path.Base(name)):
		return fmt.Sprintf("%d bytes", info.Size())
	case info.Mode().IsRegular() && info.Size() >= largeIgnored && !built.MatchString(name):
		return fmt.Sprintf("%d MiB", info.Size()>>20)
	}
	return ""
}

// overlooked lists those of the files of whose changes git inside was told to say
// nothing that are there.
func (l *look) overlooked(names []string) error {
	root, err := boundTree(l.ws)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		if _, err := root.Lstat(name); err == nil && !slices.Contains(l.found.Changed, caisson.Bytes(name)) {
			l.lose(LossUnknown, name, "git was told to overlook its changes")
			l.found.Changed = append(l.found.Changed, caisson.Bytes(name))
		}
	}
	return nil
}

// take brings all objects that the shadow names to the repository, for pins.
func (l *look) take(ctx context.Context, box Box) error {
	var err error
	if l.refs, err = readShadow(l.ws); err != nil {
		return err
	}
	root, err := boundShadow(l.ws)
	if err != nil {
		return err
	}
	l.inside, err = readGitState(root)
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	for _, op := range l.inside.operations {
		l.lose(LossOperation, op, "inside")
	}
	if l.staged {
		l.holdIndex(ctx, box)
	}
	if err := l.askOutside(ctx); err != nil {
		return err
	}
	return l.fetchAll(ctx, box)
}

// holdIndex has git inside make a commit of what is staged there.
func (l *look) holdIndex(ctx context.Context, box Box) {
	out := &limitedBuffer{limit: 4096}
	if _, err := l.w.inside(ctx, l.ws, box, holdIndex, out); err != nil {
		l.unknown("what is staged inside", err)
	} else if l.index = strings.TrimSpace(out.String()); !isObjectID(l.index) {
		l.index = ""
		l.unknown("what is staged inside", errors.New("git inside gave no commit"))
	}
}

// named are all objects that the shadow names.
func (l *look) named() []string {
	var ids []string
	for _, id := range l.refs.refs {
		ids = append(ids, id)
	}
	ids = slices.Concat(ids, l.inside.stashes, l.inside.logged, l.inside.state)
	if l.index != "" {
		ids = append(ids, l.index)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// existing asks inside which of the objects are there.
func (l *look) existing(ctx context.Context, box Box, ids []string) (map[string]bool, error) {
	types, err := l.w.typesInside(ctx, l.ws, box, l.ws.Shadow, ids)
	there := map[string]bool{}
	for id := range types {
		there[id] = true
	}
	return there, err
}

// fetchAll brings what the shadow names to the repository, unless it has that,
// whole. Git inside is asked only for what it has not: the rest is borrowed.
func (l *look) fetchAll(ctx context.Context, box Box) error {
	ids := l.named()
	if err := l.know(ctx, ids); err != nil {
		return err
	}
	var have, want []string
	for _, id := range ids {
		if l.types[id] != "" {
			have = append(have, id)
		} else {
			want = append(want, id)
		}
	}
	if !l.whole(ctx, have) {
		want = ids
	}
	if len(want) == 0 {
		return nil
	}
	there, err := l.existing(ctx, box, want)
	if err != nil {
		return err
	}
	for name, id := range l.refs.refs {
		if slices.Contains(want, id) && !there[id] {
			l.lose(LossUnknown, name, "what it leads to is not there")
		}
	}
	want = slices.DeleteFunc(want, func(id string) bool { return !there[id] })
	for _, id := range want {
		delete(l.types, id) // it is not as it was
	}
	return l.w.fetch(ctx, l.repo, l.ws, box, want, []string{l.ws.Base})
}

// whole tells whether the repository has all that the objects lead to. What its
// references lead to it has.
func (l *look) whole(ctx context.Context, ids []string) bool {
	led := map[string]bool{}
	for _, id := range l.there {
		led[id] = true
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return led[id] })
	return l.w.whole(ctx, l.repo, ids)
}
