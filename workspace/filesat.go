package workspace

import (
	"bytes"
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
)

// FilesAt returns the content of files of a commit of the repository that dir
// is in, read as git objects: what stands in any tree on disk does not count.
// rev is a revision as the person writes it; empty means HEAD of dir's checkout.
// A name that is no regular file there is left out, one that is larger than
// limit is an error (CodeConfigInvalid). A repository without any commit has
// none. CodeNoRepository where dir is in none.
func (w *Workspaces) FilesAt(ctx context.Context, dir, rev string, limit int64, names ...string) (map[string][]byte, error) {
	repo, commit, err := w.commitAt(ctx, dir, rev)
	if err != nil || commit == "" {
		return nil, err
	}
	args := append([]string{"ls-tree", "-z", "--long", "--full-tree", commit, "--"}, names...)
	out, err := w.git.run(ctx, repo.in(args...))
	if err != nil {
		return nil, failed("list files of the base", err)
	}
	files := map[string][]byte{}
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		about, name, ok := strings.Cut(string(entry), "\t")
		f := strings.Fields(about) // mode, type, object, size
		if !ok || len(f) != 4 || f[0] != "100644" && f[0] != "100755" {
			continue
		}
		if size, err := strconv.ParseInt(f[3], 10, 64); err != nil || size > limit {
			return nil, caisson.Errorf(caisson.CodeConfigInvalid, "%s of the repository is larger than %d bytes", printable(name), limit)
		}
		if files[name], err = w.git.run(ctx, repo.in("cat-file", "blob", f[2])); err != nil {
			return nil, failed("read a file of the base", err)
		}
	}
	return files, nil
}

// NamesAt returns the names of the regular files that a directory of a commit of the
// repository has, by the rules of FilesAt; none where there is no such directory.
func (w *Workspaces) NamesAt(ctx context.Context, dir, rev, under string) ([]string, error) {
	repo, commit, err := w.commitAt(ctx, dir, rev)
	if err != nil || commit == "" {
		return nil, err
	}
	under += "/"
	out, err := w.git.run(ctx, repo.in("ls-tree", "-z", "--full-tree", commit, "--", under))
	if err != nil {
		return nil, failed("list a directory of the base", err)
	}
	var names []string
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		about, path, _ := strings.Cut(string(entry), "\t")
		if name, is := strings.CutPrefix(path, under); is && strings.HasPrefix(about, "100") {
			names = append(names, name)
		}
	}
	return names, nil
}

// commitAt finds the commit that rev names; "" where rev is empty and there is none.
func (w *Workspaces) commitAt(ctx context.Context, dir, rev string) (*repository, string, error) {
	at, err := w.discover(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	repo, err := w.repository(ctx, at.common, false)
	if err != nil {
		return nil, "", err
	}
	commit, err := w.git.line(ctx, repo.at(at.gitDir, "rev-parse", "--verify", "--quiet", "--end-of-options", cmp.Or(rev, "HEAD")+"^{commit}"))
	if err != nil || !isObjectID(commit) {
		if rev == "" {
			return repo, "", nil
		}
		return repo, "", unusable("%q names no commit here", printable(rev)).WithHint("Name a branch, tag or commit that exists.")
	}
	return repo, commit, nil
}
