package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// ExportOptions say where patches go.
type ExportOptions struct {
	Dir string    // a directory, made if it is not there; nothing in it is replaced
	Out io.Writer // takes all patches as one mailbox, where Dir is ""
}

// Patch is one commit as a patch.
type Patch struct {
	File    string `json:"file"` // in Dir
	Commit  string `json:"commit"`
	Subject string `json:"subject"`
}

// Exported is what was exported.
type Exported struct {
	Base    string  `json:"base"` // that the patches apply to
	Tip     string  `json:"tip"`
	Dir     string  `json:"dir,omitempty"`
	Patches []Patch `json:"patches"`
	Empty   []Patch `json:"empty,omitempty"` // commits that change nothing: git am takes no patch of one
	Joined  []Patch `json:"joined,omitempty"`
}

// exportConfig makes git read and write messages as UTF-8, whatever a person's
// configuration says of commits.
var exportConfig = []string{"i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8"}

// Export writes the commits of the workspace's branch since its base as patches,
// one a commit, which `git am --keep-non-patch` applies on the base one by one,
// to end with the tree of the branch. What came in by a merge is one patch, of
// the merge commit (Exported.Joined). Of a commit that changes nothing there is
// none. A line of a message at which git am would take the patch to begin is
// indented by a space. Made of objects alone.
func (w *Workspaces) Export(ctx context.Context, ws caisson.Workspace, opts ExportOptions) (Exported, error) {
	repo, err := w.repository(ctx, ws.Binding.CommonDir, true)
	if err != nil {
		return Exported{}, err
	}
	tip, err := w.branchTip(ctx, repo, ws.Branch)
	if err != nil || tip == "" {
		return Exported{}, caisson.Errorf(caisson.CodeNotFound, "branch %s is gone", ws.Branch)
	}
	result := Exported{Base: ws.Base, Tip: tip, Patches: []Patch{}}
	e := &export{w: w, repo: repo, result: &result}
	last, err := e.line(ctx)
	if err != nil || len(result.Patches) == 0 {
		return result, err
	}
	scratch, err := os.MkdirTemp(w.private(ws.ID), "export-")
	if err != nil {
		return result, failed("write the patches", err)
	}
	defer os.RemoveAll(scratch)
	names, err := e.format(ctx, last, scratch)
	if err != nil {
		return result, err
	}
	if opts.Dir == "" {
		for _, name := range names {
			patch, err := readPatch(filepath.Join(scratch, name))
			if err != nil {
				return result, err
			}
			if _, err := opts.Out.Write(patch); err != nil {
				return result, failed("write the patches", err)
			}
		}
		return result, nil
	}
	result.Dir, err = w.place(opts.Dir, scratch, names)
	return result, err
}

// place puts patches into a directory of the person's, all or, where one of the
// names is taken, none.
func (w *Workspaces) place(dir, scratch string, names []string) (string, error) {
	there, rest := dir, ""
	real, err := filepath.EvalSymlinks(there)
	for errors.Is(err, fs.ErrNotExist) && there != filepath.Dir(there) {
		there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest)
		real, err = filepath.EvalSymlinks(there)
	}
	if err != nil {
		return dir, caisson.Errorf(caisson.CodeUsage, "%s cannot be made: %w", dir, err)
	}
	dir = filepath.Join(real, rest)
	if tree := w.treeOf(dir); tree != "" {
		return dir, caisson.Errorf(caisson.CodePathOutside, "%s is in a workspace, which an agent can write", dir).WithHint("Name another directory with `-o`, or use `--stdout`.")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return dir, caisson.Errorf(caisson.CodeUsage, "%s cannot be made: %w", dir, err)
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return dir, caisson.Errorf(caisson.CodeAlreadyExists, "%s is there already", filepath.Join(dir, name)).WithHint("Name an empty directory with `-o`.")
		}
	}
	for _, name := range names {
		patch, err := readPatch(filepath.Join(scratch, name))
		if err == nil {
			err = atomicfile.Create(filepath.Join(dir, name), patch, 0o644)
		}
		if err != nil {
			return dir, failed("write the patches", err)
		}
	}
	return dir, nil
}

// export is one export being made.
type export struct {
	w      *Workspaces
	repo   *repository
	result *Exported
}

func (e *export) git(ctx context.Context, args ...string) ([]byte, error) {
	inv := e.repo.in(args...)
	inv.config = exportConfig
	return e.w.git.run(ctx, inv)
}

// line returns the last of a line of commits that begins at the base. They are
// the branch's own, as long as each follows the one before, changes something and
// can be told as a patch; from there on they are made anew.
func (e *export) line(ctx context.Context) (string, error) {
	out, err := e.git(ctx, "log", "-z", "--first-parent", "--reverse", "--date=raw", "--format=%H %T %P%n%an%n%ae%n%ad%n%B", e.result.Tip, "^"+e.result.Base, "--")
	if err != nil {
		return "", failed("read the commits", err)
	}
	before, err := e.w.git.line(ctx, e.repo.in("rev-parse", "--verify", "--end-of-options", e.result.Base+"^{tree}"))
	if err != nil {
		return "", failed("read the commits", err)
	}
	last := e.result.Base
	for _, item := range splitZ(out) {
		fields := strings.SplitN(item, "\n", 5)
		ids := strings.Fields(fields[0])
		if len(fields) < 5 || len(ids) < 2 {
			return "", caisson.Errorf(caisson.CodeGitFailed, "git gave a commit that cannot be read")
		}
		subject, _, _ := strings.Cut(strings.TrimSpace(fields[4]), "\n")
		patch := Patch{Commit: ids[0], Subject: subject}
		if len(ids) > 3 {
			e.result.Joined = append(e.result.Joined, patch)
		}
		if ids[1] == before {
			e.result.Empty = append(e.result.Empty, patch)
			continue
		}
		e.result.Patches = append(e.result.Patches, patch)
		before = ids[1]
		message := harmless(fields[4])
		if len(ids) == 3 && ids[2] == last && message == fields[4] && strings.TrimSpace(fields[1]) != "" {
			last = ids[0]
			continue
		}
		if last, err = e.commit(ctx, ids[1], last, message, fields[1:4]); err != nil {
			return "", err
		}
	}
	return last, nil
}

// commit makes a commit anew: the author's, with another parent.
func (e *export) commit(ctx context.Context, tree, parent, message string, author []string) (string, error) {
	inv := e.repo.in("commit-tree", "-p", parent, "-F", "-", "--", tree)
	inv.config, inv.stdin = exportConfig, strings.NewReader(message)
	name := cmp.Or(strings.TrimSpace(author[0]), "unknown")
	inv.env = []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + author[1], "GIT_AUTHOR_DATE=" + author[2],
		"GIT_COMMITTER_NAME=Caisson", "GIT_COMMITTER_EMAIL=caisson@localhost", "GIT_COMMITTER_DATE=" + author[2],
	}
	id, err := e.w.git.line(ctx, inv)
	if err != nil {
		return "", failed("prepare the patches", err)
	}
	return id, nil
}

// harmless indents the lines of a message at which its reader would take the
// patch, or the next mail, to begin.
func harmless(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		for _, start := range []string{"---", "diff -", "Index: ", "From ", ">From "} {
			if strings.HasPrefix(line, start) {
				lines[i] = " " + line
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}

// format has git write the patches into dir and returns their names.
func (e *export) format(ctx context.Context, last, dir string) ([]string, error) {
	out, err := e.git(ctx, "format-patch", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--submodule=short", "--binary", "--full-index",
		"--no-signature", "--no-attach", "--no-thread", "--no-cover-letter", "--no-notes", "-p", "--stat", "-M", "-o", dir, e.result.Base+".."+last, "--")
	if err != nil {
		return nil, failed("write the patches", err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, filepath.Base(strings.TrimSuffix(line, "\n")))
	}
	if len(names) != len(e.result.Patches) {
		return nil, caisson.Errorf(caisson.CodeGitFailed, "git wrote %d patches of %d commits", len(names), len(e.result.Patches))
	}
	for i, name := range names {
		e.result.Patches[i].File = name
	}
	return names, nil
}

// readPatch reads a patch as git wrote it. Where lines of it end with a carriage
// return, which git am takes away from plain ones, it is encoded.
func readPatch(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, failed("read a patch", err)
	}
	if info.Size() > maxOutput {
		return nil, caisson.Errorf(caisson.CodeGitFailed, "%s has %d bytes; a patch of more than %d is not exported", printable(filepath.Base(path)), info.Size(), maxOutput)
	}
	patch, err := os.ReadFile(path)
	if err != nil {
		return nil, failed("read a patch", err)
	}
	if !bytes.Contains(patch, []byte("\r\n")) {
		return patch, nil
	}
	return quotedPrintable(patch), nil
}

// quotedPrintable encodes the body of a mail. Source: RFC 2045, 6.7, but for the
// bound on the length of a line, as it is read from a file.
func quotedPrintable(mail []byte) []byte {
	head, body, _ := bytes.Cut(mail, []byte("\n\n"))
	charset := "UTF-8"
	var b bytes.Buffer
	for line := range bytes.Lines(head) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		lower := strings.ToLower(string(line))
		switch {
		case strings.HasPrefix(lower, "mime-version:"), strings.HasPrefix(lower, "content-transfer-encoding:"):
		case strings.HasPrefix(lower, "content-type:"):
			if _, named, is := strings.Cut(lower, "charset="); is {
				charset = named
			}
		default:
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	b.WriteString("MIME-Version: 1.0\nContent-Type: text/plain; charset=" + charset + "\nContent-Transfer-Encoding: quoted-printable\n\n")
	const hex = "0123456789ABCDEF"
	for i, c := range body {
		last := i+1 == len(body) || body[i+1] == '\n'
		first := i == 0 || body[i-1] == '\n'
		switch {
		case c == '\n', c == '\t' && !last, c == ' ' && !last, c > ' ' && c < 0x7f && c != '=' && (!first || c != 'F'):
			b.WriteByte(c)
		default:
			b.Write([]byte{'=', hex[c>>4], hex[c&15]})
		}
	}
	return b.Bytes()
}
