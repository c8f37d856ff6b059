//go:build linux

package namespace

import (
	"context"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/sandbox/mask"
)

// masks are at the top of every box that hides something.
var masks = plan.Mask{File: "/.hidden-file", Dir: "/.hidden-dir"}

// hide masks what the spec hides, before anything runs.
func (b *box) hide(ctx context.Context, spec caisson.SandboxSpec) error {
	if len(spec.Hide) == 0 || spec.Workspace == "" {
		return nil
	}
	m, err := mask.Open(mask.Options{
		Workspace: spec.Workspace, Patterns: spec.Hide, Guest: b.root.PID, File: masks.File, Dir: masks.Dir,
	})
	if err != nil {
		return err
	}
	b.mask, b.git = m, spec.GitDir != ""
	return b.renew(ctx)
}

// renew masks what has come since.
func (b *box) renew(ctx context.Context) error {
	if b.mask == nil {
		return nil
	}
	found, err := b.mask.Renew(ctx)
	if err == nil && len(found) > 0 && b.git {
		b.tellGit(ctx, found)
	}
	return err
}

// leaveAlone makes git inside take hidden files as they are committed, and not
// as untracked: it cannot read them, and `git add` and `git checkout` of a whole
// tree would stop at them.
const leaveAlone = `xargs -0 git ls-files -z -- | git update-index -z --skip-worktree --stdin
f=$(git rev-parse --git-path info/exclude) && mkdir -p "${f%/*}" || exit
printf '%s' "$1" | while IFS= read -r line; do
	grep -qxF -e "$line" "$f" 2>/dev/null || printf '%s\n' "$line" >> "$f"
done`

const (
	gitDeadline = 10 * time.Second
	maxExcludes = 64 << 10 // in one argument, which the kernel bounds at 128 KiB
)

// tellGit is a convenience, done by git inside, on files that are the agent's:
// where it does not work, git inside complains of what it cannot read, and never
// takes it for empty or deleted.
func (b *box) tellGit(ctx context.Context, paths []string) {
	var specs, excludes strings.Builder
	for _, path := range paths {
		specs.WriteString(":(top,literal)" + path + "\x00")
		if line := "/" + ignoreEscaper.Replace(path) + "\n"; !strings.Contains(path, "\n") && excludes.Len()+len(line) < maxExcludes {
			excludes.WriteString(line)
		}
	}
	p, err := b.client.Hold(ctx, caisson.Command{
		Argv: []string{"sh", "-c", leaveAlone, "sh", excludes.String()}, Stdin: strings.NewReader(specs.String()), Deadline: gitDeadline,
	})
	if err != nil {
		return
	}
	if p.Release() != nil {
		p.Drop()
		return
	}
	_, _ = p.Wait(ctx) // as promised, whatever came of it
}

// ignoreEscaper makes a path a pattern of git that matches nothing else.
var ignoreEscaper = strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[", " ", "\\ ")

// late is a held process of a box that hides something: its program may begin
// long after it was held.
type late struct {
	caisson.Process
	box *box
}

// Release implements caisson.Process.
func (l late) Release() error {
	if err := l.box.renew(context.Background()); err != nil { // bounded; Release has no context
		return err
	}
	return l.Process.Release()
}

// hidingFiles are the files of a box that hides something.
type hidingFiles struct {
	caisson.Files
	box *box
}

// Read implements caisson.Files.
func (f hidingFiles) Read(ctx context.Context, path string, offset, limit int64) (caisson.FileContent, error) {
	if err := f.box.renew(ctx); err != nil {
		return caisson.FileContent{}, err
	}
	return f.Files.Read(ctx, path, offset, limit)
}

// Write implements caisson.Files.
func (f hidingFiles) Write(ctx context.Context, path string, data []byte, opts caisson.WriteOptions) (caisson.FileInfo, error) {
	if err := f.box.renew(ctx); err != nil {
		return caisson.FileInfo{}, err
	}
	return f.Files.Write(ctx, path, data, opts)
}

// Stat implements caisson.Files.
func (f hidingFiles) Stat(ctx context.Context, path string) (caisson.FileInfo, error) {
	if err := f.box.renew(ctx); err != nil {
		return caisson.FileInfo{}, err
	}
	return f.Files.Stat(ctx, path)
}

// Glob implements caisson.Files.
func (f hidingFiles) Glob(ctx context.Context, dir, pattern string, limit int) (caisson.GlobResult, error) {
	if err := f.box.renew(ctx); err != nil {
		return caisson.GlobResult{}, err
	}
	return f.Files.Glob(ctx, dir, pattern, limit)
}

// Grep implements caisson.Files.
func (f hidingFiles) Grep(ctx context.Context, q caisson.GrepQuery) (caisson.GrepResult, error) {
	if err := f.box.renew(ctx); err != nil {
		return caisson.GrepResult{}, err
	}
	return f.Files.Grep(ctx, q)
}
