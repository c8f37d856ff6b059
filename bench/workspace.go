package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/ledger/sqlite"
	"github.com/caisson-run/caisson/workspace"
)

const (
	// smallTree is how many files the repository of workspace.create has: as
	// many as a project of a few people.
	smallTree = 200
	// inDirectory is how many files a directory of a made tree has.
	inDirectory = 100
	// keptFrom is the size from which a repository is kept for the next time.
	keptFrom = 100_000
	// bigFor bounds a metric of a large tree, which is checked out once.
	bigFor = 6 * time.Minute
	// checkoutsFor bounds one that checks it out again and again.
	checkoutsFor = 15 * time.Minute
)

// person is whose repository it is, and where Caisson keeps its workspaces.
type person struct {
	git   string
	home  string
	repo  string // bare
	state string
	env   []string
	work  *workspace.Workspaces
	open  func(context.Context, caisson.Workspace) (workspace.OpenedBox, error)
	n     int // names that were used
}

// withPerson makes a repository of so many files on a disk and opens Caisson
// for it.
func (b *bench) withPerson(ctx context.Context, files int, do func(*person) error) (err error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return skipped("git is not there")
	}
	dir, remove, err := b.disk()
	if err != nil {
		return err
	}
	defer remove()
	p := &person{git: git, home: filepath.Join(dir, "home"), repo: filepath.Join(dir, "repo"), state: filepath.Join(dir, "state")}
	p.env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	if err := os.MkdirAll(p.home, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(p.home, ".gitconfig"), []byte("[user]\n\tname = A\n\temail = a@example.com\n"), 0o600); err != nil {
		return err
	}
	if err := p.makeRepository(ctx, files); err != nil {
		return err
	}
	ledger, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(p.state, "ledger.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	p.work = workspace.New(workspace.Options{
		StateDir: p.state, Ledger: ledger, Env: p.env,
		Box: func(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) { return p.open(ctx, ws) },
	})
	return do(p)
}

// makeRepository makes p.repo, from a copy of an earlier time where there is one.
func (p *person) makeRepository(ctx context.Context, files int) error {
	if files < keptFrom {
		return p.generate(ctx, p.repo, files)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return p.generate(ctx, p.repo, files)
	}
	kept := filepath.Join(cache, "caisson-bench", fmt.Sprint("files-", files))
	if _, err := os.Stat(kept); err != nil {
		if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
			return err
		}
		making := kept + filepath.Base(filepath.Dir(p.repo)) // of this process only
		if err := p.generate(ctx, making, files); err != nil {
			return errors.Join(err, os.RemoveAll(making))
		}
		if err := os.Rename(making, kept); err != nil { // another was first
			if err := os.RemoveAll(making); err != nil {
				return err
			}
		}
	}
	return p.run(ctx, nil, "clone", "-q", "--bare", "--no-hardlinks", kept, p.repo)
}

// generate makes a bare repository with one commit, whose tree is never
// checked out.
func (p *person) generate(ctx context.Context, repo string, files int) error {
	if err := p.run(ctx, nil, "init", "-q", "--bare", "--initial-branch=main", repo); err != nil {
		return err
	}
	read, write := io.Pipe()
	go func() { // ends when the reader does
		out := bufio.NewWriter(write)
		writeTree(out, files)
		_ = write.CloseWithError(out.Flush())
	}()
	defer read.Close() //nolint:errcheck // ends who still writes
	return p.run(ctx, read, "-C", repo, "fast-import", "--quiet")
}

// writeTree writes a commit in the form of git-fast-import(1).
func writeTree(out io.Writer, files int) {
	const kinds = 200
	for i := range kinds {
		text := fmt.Sprintf("package p\n\n// F%d returns its number, which this file is about.\nfunc F%d() int { return %d }\n", i, i, i)
		fmt.Fprintf(out, "blob\nmark :%d\ndata %d\n%s\n", i+1, len(text), text)
	}
	fmt.Fprint(out, "commit refs/heads/main\ncommitter A <a@example.com> 1700000000 +0000\ndata 5\nfirst\n")
	for i := range files {
		d := i / inDirectory
		fmt.Fprintf(out, "M 100644 :%d part%02d/dir%02d/file%03d.go\n", i%kinds+1, d/50, d%50, i%inDirectory)
	}
	fmt.Fprintln(out)
}

// run runs the person's own git.
func (p *person) run(ctx context.Context, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, p.git, args...) //nolint:forbidigo // a person's plain git is what ours is compared with
	cmd.Dir, cmd.Env, cmd.Stdin = p.home, p.env, in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run git %s: %w: %s", args[0], err, out)
	}
	return nil
}

// create makes the next workspace.
func (p *person) create(ctx context.Context) (caisson.Workspace, error) {
	p.n++
	return p.work.Create(ctx, workspace.CreateSpec{Dir: p.repo, Name: fmt.Sprint("w", p.n), Base: "main"})
}

// workspaceCreate makes a workspace of a small repository, beside `git worktree
// add` of a new branch of the same. What was made is removed between the
// rounds. Must: at most 1.5 of it. In rounds of one.
func workspaceCreate(ctx context.Context, b *bench, n int) (r result, err error) {
	err = b.withPerson(ctx, smallTree, func(p *person) error {
		r, err = p.creation(ctx, n)
		r.Size = smallTree
		return err
	})
	return r, err
}

// workspaceCreateBig is workspace.create of n thousand files, done three times.
func workspaceCreateBig(ctx context.Context, b *bench, n int) (r result, err error) {
	err = b.withPerson(ctx, n*1000, func(p *person) error {
		r, err = p.creation(ctx, 3)
		r.Size = n * 1000
		return err
	})
	return r, err
}

func (p *person) creation(ctx context.Context, n int) (result, error) {
	var cpu, baseCPU []time.Duration
	ours := func(ctx context.Context) (time.Duration, error) {
		var ws caisson.Workspace
		took, used, err := metered(ctx, func(ctx context.Context) (err error) {
			ws, err = p.create(ctx)
			return err
		})
		cpu = append(cpu, used)
		if err != nil {
			return 0, err
		}
		return took, p.remove(ctx, ws.Path, ws.Branch)
	}
	theirs := func(ctx context.Context) (time.Duration, error) {
		p.n++
		name := fmt.Sprint("t", p.n)
		tree := filepath.Join(filepath.Dir(p.state), "trees", name)
		took, used, err := metered(ctx, func(ctx context.Context) error {
			return p.run(ctx, nil, "-C", p.repo, "worktree", "add", "-q", "-b", name, tree, "main")
		})
		baseCPU = append(baseCPU, used)
		if err != nil {
			return 0, err
		}
		return took, p.remove(ctx, tree, name)
	}
	c, err := compare(ctx, n, byTurns(ours, theirs))
	if err != nil {
		return result{}, err
	}
	r := c.times("git worktree add")
	used, ratio := rounded(ms(median(cpu))), rounded(float64(median(cpu))/float64(median(baseCPU)))
	r.CPUMs, r.CPURatio = &used, &ratio
	return r, nil
}

// remove removes a worktree without a word, also where it is locked.
func (p *person) remove(ctx context.Context, tree, branch string) error {
	if err := os.RemoveAll(tree); err != nil {
		return err
	}
	if err := p.run(ctx, nil, "-C", p.repo, "worktree", "remove", "-f", "-f", tree); err != nil {
		return err
	}
	return p.run(ctx, nil, "-C", p.repo, "branch", "-q", "-D", branch)
}

// metered does a thing and tells how long it took and how much processor time
// this process and the children that ended meanwhile have used.
func metered(ctx context.Context, do func(context.Context) error) (took, cpu time.Duration, err error) {
	before, err := processorTime()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	err = do(ctx)
	took = time.Since(begun)
	after, timeErr := processorTime()
	return took, after - before, errors.Join(err, timeErr)
}

func processorTime() (time.Duration, error) {
	var all time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return all, nil
}

// withBox makes a workspace and opens a sandbox around it.
func (p *person) withBox(ctx context.Context, b *bench, do func(caisson.Workspace, caisson.Sandbox) error) error {
	e, end, err := engines[0].open(ctx, b)
	if err != nil {
		return err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	open := func(ctx context.Context, ws caisson.Workspace, limits caisson.Limits) (caisson.Sandbox, error) {
		return e.Open(ctx, caisson.SandboxSpec{
			ID: caisson.NewSandboxID(), Require: []caisson.Control{}, Limits: limits,
			Workspace: ws.Path, GitCover: ws.Cover, GitDir: ws.Shadow, GitObjects: ws.Objects, Home: ws.Home,
		})
	}
	p.open = func(ctx context.Context, ws caisson.Workspace) (workspace.OpenedBox, error) {
		return open(ctx, ws, caisson.Limits{CPUs: int64(runtime.NumCPU())}) // as the host opens one for a look
	}
	ws, err := p.create(ctx)
	if err != nil {
		return err
	}
	box, err := open(ctx, ws, caisson.Limits{})
	if err != nil {
		return err
	}
	return errors.Join(do(ws, box), box.Close())
}

// workspaceSnapshot keeps a tree of n thousand files of which one was changed,
// in an open sandbox; beside `git status` of the same tree by the person. Done
// up to ten times. Must: at most twice as long, and at most 1,000 ms.
func workspaceSnapshot(ctx context.Context, b *bench, n int) (r result, err error) {
	err = b.withPerson(ctx, n*1000, func(p *person) error {
		return p.withBox(ctx, b, func(ws caisson.Workspace, box caisson.Sandbox) error {
			turn := 0
			ours := func(ctx context.Context) (time.Duration, error) {
				turn++
				changed := filepath.Join(ws.Path, "part00", "dir00", "file000.go")
				if err := atomicfile.Write(changed, fmt.Appendf(nil, "package p // %d\n", turn), 0o644); err != nil {
					return 0, err
				}
				return timed(func(ctx context.Context) error {
					snap, err := p.work.Snapshot(ctx, ws, box, "bench", turn)
					if err == nil && !snap.Changed {
						err = errors.New("the change was not seen")
					}
					return err
				})(ctx)
			}
			theirs := timed(func(ctx context.Context) error { return p.run(ctx, nil, "-C", ws.Path, "status", "--short") })
			c, err := compare(ctx, 10, byTurns(ours, theirs))
			r = c.times("git status")
			r.Size = n * 1000
			return err
		})
	})
	return r, err
}

// workspaceImport brings one commit, made inside a moment before, from an open
// sandbox to the branch of a small repository; beside a fetch of as much by
// plain git from a directory. Must: at most 50 ms. In rounds of one.
func workspaceImport(ctx context.Context, b *bench, n int) (r result, err error) {
	err = b.withPerson(ctx, smallTree, func(p *person) error {
		return p.withBox(ctx, b, func(ws caisson.Workspace, box caisson.Sandbox) error {
			other := filepath.Join(filepath.Dir(p.state), "other")
			if err := p.run(ctx, nil, "clone", "-q", p.repo, other); err != nil {
				return err
			}
			ours := func(ctx context.Context) (time.Duration, error) {
				if err := runIn(ctx, box, caisson.Command{Line: "echo x >>new.txt && git add new.txt && git commit -qm one"}); err != nil {
					return 0, err
				}
				return timed(func(ctx context.Context) error {
					got, err := p.work.Import(ctx, ws, box, workspace.ImportOptions{})
					if err == nil && !got.Moved {
						err = errors.New("the commit was not seen")
					}
					return err
				})(ctx)
			}
			theirs := func(ctx context.Context) (time.Duration, error) {
				if err := p.run(ctx, nil, "-C", other, "commit", "-qm", "one", "--allow-empty"); err != nil {
					return 0, err
				}
				return timed(func(ctx context.Context) error {
					return p.run(ctx, nil, "-C", p.repo, "fetch", "-q", other, "main:refs/heads/fetched")
				})(ctx)
			}
			c, err := compare(ctx, n, byTurns(ours, theirs))
			r = c.times("git fetch")
			return err
		})
	})
	return r, err
}

// workspaceInspect looks at all that the removal of a workspace of n thousand
// files would lose, which opens a sandbox for one look at it, between two marks of
// all files; beside `git status` of the same tree by the person. Done up to ten
// times. Must, of a large tree: at most three times as long.
func workspaceInspect(ctx context.Context, b *bench, n int) (r result, err error) {
	err = b.withPerson(ctx, n*1000, func(p *person) error {
		return p.withBox(ctx, b, func(ws caisson.Workspace, box caisson.Sandbox) error {
			if err := box.Close(); err != nil { // its processes have the tree open, and inspection says so
				return err
			}
			ours := timed(func(ctx context.Context) error {
				found, err := p.work.Inspect(ctx, ws, workspace.InspectOptions{})
				if err == nil && len(found.Losses) > 0 {
					err = fmt.Errorf("something would be lost: %v", found.Losses)
				}
				return err
			})
			theirs := timed(func(ctx context.Context) error { return p.run(ctx, nil, "-C", ws.Path, "status", "--short") })
			c, err := compare(ctx, 10, byTurns(ours, theirs))
			r = c.times("git status")
			r.Size = n * 1000
			return err
		})
	})
	return r, err
}
