package mask

import (
	"context"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// Client runs commands and reads files inside a box.
type Client interface {
	Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error)
	Files() caisson.Files
}

// Renewer hides, and returns what is hidden that was not before; *Mask and *Fixed.
type Renewer interface {
	Renew(ctx context.Context) ([]string, error)
}

// Guard hides what is there, and returns a client that hides what has come since,
// whatever it is asked for. Where git is set, git inside is told to leave alone
// what is hidden.
func Guard(ctx context.Context, m Renewer, client Client, git bool) (Client, error) {
	g := &guard{m, client, git}
	return g, g.renew(ctx)
}

type guard struct {
	mask   Renewer
	client Client
	git    bool
}

func (g *guard) renew(ctx context.Context) error {
	found, err := g.mask.Renew(ctx)
	if err == nil && len(found) > 0 && g.git {
		g.tellGit(ctx, found)
	}
	return err
}

// Hold implements Client.
func (g *guard) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	if err := g.renew(ctx); err != nil {
		return nil, err
	}
	p, err := g.client.Hold(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return late{p, g}, nil
}

// Files implements Client.
func (g *guard) Files() caisson.Files { return files{g.client.Files(), g} }

// late is a held process: its program may begin long after it was held.
type late struct {
	caisson.Process
	mask *guard
}

// Release implements caisson.Process.
func (l late) Release() error {
	if err := l.mask.renew(context.Background()); err != nil { // bounded; Release has no context
		return err
	}
	return l.Process.Release()
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
func (g *guard) tellGit(ctx context.Context, paths []string) {
	var specs, excludes strings.Builder
	for _, path := range paths {
		specs.WriteString(":(top,literal)" + path + "\x00")
		if line := "/" + ignoreEscaper.Replace(path) + "\n"; !strings.Contains(path, "\n") && excludes.Len()+len(line) < maxExcludes {
			excludes.WriteString(line)
		}
	}
	p, err := g.client.Hold(ctx, caisson.Command{
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
