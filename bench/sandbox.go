package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/tool"
)

const nothing = "/bin/true"

// engines are those that exec.cold, exec.warm and capture are measured for. The
// metrics of the first bear no name, those of others end in theirs:
// exec.warm.bubblewrap.
var engines = []benchEngine{
	{name: namespace.Name, open: namespaceEngine},
	{name: bubblewrap.Name, open: bubblewrapEngine},
	{name: landlock.Name, open: landlockEngine},
}

// benchEngine is an engine as it is measured.
type benchEngine struct {
	name string
	// open returns the engine with everything on that it has, and what must be
	// done with it at the end; skipped where this host cannot use it.
	open func(ctx context.Context, b *bench) (caisson.Engine, func() error, error)
	// base is what its warm command is compared with, by how much at most; nil:
	// a plain fork and exec, twice.
	base func(ctx context.Context, b *bench) (do timer, name string, end func() error, err error)
	warm float64
}

// of are the metrics of one engine.
func (e benchEngine) of(name string) string {
	if e.name == namespace.Name {
		return name
	}
	return name + "." + e.name
}

func (e benchEngine) metrics() []metric {
	warm := e.warm
	if warm == 0 {
		warm = 2
	}
	cold := []bound{most("ratio", 1.25), most("rss_mib", 50)}
	if e.name != namespace.Name {
		cold = nil // what another engine takes is its own; it is told
	}
	return []metric{
		{name: e.of("exec.cold"), n: 100, measure: e.execCold, must: cold},
		{name: e.of("exec.warm"), n: 500, measure: e.execWarm, must: []bound{most("ratio", warm)}},
		{name: e.of("capture"), n: 1024, measure: e.captureOutput, must: []bound{leastRatio(0.5), most("growth_mib", 16)}},
	}
}

// execCold opens a sandbox, runs its first command, which does nothing, and
// closes it; beside bwrap with the same namespaces, mounts and files. Landlock
// and seccomp, which bwrap is not asked for, are on. Must: at most 1.25 of
// bwrap, from a process of at most 50 MiB. In rounds of one.
func (e benchEngine) execCold(ctx context.Context, b *bench, n int) (result, error) {
	c, err := e.cold(ctx, b, n)
	if err != nil {
		return result{}, err
	}
	rss, err := memory(os.Getpid(), "VmRSS")
	r := c.times("bwrap")
	rss = rounded(rss)
	r.RSSMiB = &rss
	return r, err
}

// bigProcess is how much memory exec.cold.big has.
const bigProcess = 300 << 20

// execColdBig is exec.cold from a process of 300 MiB: what a process has must
// not be copied for each sandbox. Must: at most 1.5 of bwrap, which is started
// from the same process. In rounds of one.
func execColdBig(ctx context.Context, b *bench, n int) (result, error) {
	ballast := bytes.Repeat([]byte{1}, bigProcess)
	c, err := engines[0].cold(ctx, b, n)
	if err != nil {
		return result{}, err
	}
	rss, err := memory(os.Getpid(), "VmRSS")
	runtime.KeepAlive(ballast)
	debug.FreeOSMemory() // those that come after want a small process
	r := c.times("bwrap")
	rss = rounded(rss)
	r.RSSMiB = &rss
	return r, err
}

func (e benchEngine) cold(ctx context.Context, b *bench, n int) (comparison, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return comparison{}, skipped("bwrap is not there")
	}
	engine, end, err := e.open(ctx, b)
	if err != nil {
		return comparison{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	ws, remove, err := b.scratch()
	if err != nil {
		return comparison{}, err
	}
	defer remove()
	etc, err := etcInside(ctx, engine)
	if err != nil {
		return comparison{}, err
	}
	theirs := plain(bwrap, bwrapArgs(ws, etc)...)
	if err := theirs(ctx); err != nil {
		return comparison{}, skipped("bwrap cannot run here: " + err.Error())
	}
	ours := func(ctx context.Context) error {
		return within(ctx, engine, ws, func(box caisson.Sandbox) error { return runIn(ctx, box, caisson.Command{Argv: []string{nothing}}) })
	}
	return compare(ctx, n, byTurns(timed(ours), timed(theirs)))
}

// execWarm runs a command that does nothing in an open sandbox, beside a plain
// fork and exec of it, or what the engine has for that. Must: at most twice as
// long, or what the engine says. In rounds of one.
func (e benchEngine) execWarm(ctx context.Context, b *bench, n int) (r result, err error) {
	engine, end, err := e.open(ctx, b)
	if err != nil {
		return result{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	theirs, name := timed(plain(nothing)), "fork and exec"
	if e.base != nil {
		var endBase func() error
		if theirs, name, endBase, err = e.base(ctx, b); err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, endBase()) }()
	}
	err = within(ctx, engine, "", func(box caisson.Sandbox) error {
		ours := func(ctx context.Context) error { return runIn(ctx, box, caisson.Command{Argv: []string{nothing}}) }
		c, err := compare(ctx, n, byTurns(timed(ours), theirs))
		r = c.times(name)
		return err
	})
	return r, err
}

// captureOutput brings the output of a command out of a sandbox as
// the shell tool does: the preview, and all of it in a spill; beside `cat >
// file` of the same bytes. n is MiB; it is done three times. Must: half the
// speed of cat, and at most 16 MiB of growth of this process over its size
// before, at the peak.
func (e benchEngine) captureOutput(ctx context.Context, b *bench, n int) (r result, err error) {
	engine, end, err := e.open(ctx, b)
	if err != nil {
		return result{}, err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	dir, remove, err := b.disk()
	if err != nil {
		return result{}, err
	}
	defer remove()
	size := int64(n) << 20
	line := fmt.Sprintf("head -c %d /dev/zero", size)
	file := filepath.Join(dir, "file")
	theirs := removing(file, timed(plain("/bin/sh", "-c", line+` | cat > "$1"`, "sh", file)))
	err = within(ctx, engine, "", func(box caisson.Sandbox) error {
		ours, err := shellCall(box, dir, line, size)
		if err != nil {
			return err
		}
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { //nolint:forbidigo // no file: it resets the peak
			return fmt.Errorf("reset peak of memory: %w", err)
		}
		before, err := memory(os.Getpid(), "VmRSS")
		if err != nil {
			return err
		}
		c, err := compare(ctx, 3, byTurns(ours, theirs))
		if err != nil {
			return err
		}
		peak, err := memory(os.Getpid(), "VmHWM")
		growth := rounded(max(peak-before, 0))
		r = c.rates("MB/s", "cat > file", float64(size)/1e6, float64(size)/1e6)
		r.GrowthMiB, r.Size = &growth, n
		return err
	})
	return r, err
}

// shellCall is the timer of the shell tool running a line of so much output,
// from the gate's opening, as a call does.
func shellCall(box caisson.Sandbox, spills, line string, size int64) (timer, error) {
	tools := tool.Builtin(tool.Options{Sandbox: box, Seen: tool.NewSeen(), SpillDir: spills})
	i := slices.IndexFunc(tools, func(t caisson.Tool) bool { return t.Spec().Ref.Name == "shell" })
	input, err := json.Marshal(map[string]any{"command": line, "timeout": int(longest.Seconds()), "description": ""})
	if err != nil {
		return nil, err
	}
	call := caisson.Call{ID: "r.1.1", Tool: tools[i].Spec().Ref, Input: input}
	do := timed(func(ctx context.Context) error {
		held, err := tools[i].Hold(ctx, call, caisson.EffectIDOf(call.ID))
		if err != nil {
			return err
		}
		got, err := held.Open(ctx)
		switch {
		case err != nil:
			return err
		case got.Bytes != size || got.Spill == nil || got.Spill.Bytes != size:
			return fmt.Errorf("of %d bytes %d came out; %s", size, got.Bytes, got.Summary)
		}
		return nil
	})
	return removing(filepath.Join(spills, string(call.ID)), do), nil
}

// removing removes a file after it was made and timed, which also spares the
// disk what was not yet written.
func removing(file string, do timer) timer {
	return func(ctx context.Context) (time.Duration, error) {
		took, err := do(ctx)
		if removed := os.Remove(file); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return took, err
	}
}

// namespaceEngine returns the built-in engine.
func namespaceEngine(ctx context.Context, b *bench) (caisson.Engine, func() error, error) {
	guest, err := b.program("caisson-guest")
	if err != nil {
		return nil, nil, err
	}
	e := namespace.New(namespace.Options{Guest: func() ([]byte, error) { return os.ReadFile(guest) }})
	return usable(ctx, e, e.Close)
}

// bubblewrapEngine returns the engine that uses bwrap.
func bubblewrapEngine(ctx context.Context, b *bench) (caisson.Engine, func() error, error) {
	guest, err := b.program("caisson-guest")
	if err != nil {
		return nil, nil, err
	}
	e := bubblewrap.New(bubblewrap.Options{Guest: func() ([]byte, error) { return os.ReadFile(guest) }})
	return usable(ctx, e, e.Close)
}

// landlockEngine returns the engine without namespaces.
func landlockEngine(ctx context.Context, b *bench) (caisson.Engine, func() error, error) {
	guest, err := b.program("caisson-guest")
	if err != nil {
		return nil, nil, err
	}
	dir, remove, err := b.scratch()
	if err != nil {
		return nil, nil, err
	}
	e := landlock.New(landlock.Options{Guest: func() ([]byte, error) { return os.ReadFile(guest) }, Dir: dir})
	return usable(ctx, e, func() error {
		defer remove()
		return e.Close()
	})
}

// usable is e and its end, unless this host lacks a part of what is measured.
func usable(ctx context.Context, e caisson.Engine, end func() error) (caisson.Engine, func() error, error) {
	isolation, err := e.Probe(ctx)
	if err == nil && strings.Contains(isolation.Row(caisson.ControlFiles).By, "Landlock") && isolation.Enforces(caisson.ControlSyscalls) {
		return e, end, nil
	}
	err = errors.Join(err, end())
	switch {
	case caisson.CodeOf(err) == caisson.CodeIsolationUnavailable:
		return nil, nil, skipped("no sandbox of " + e.Name() + " here: " + err.Error())
	case err != nil:
		return nil, nil, err
	}
	return nil, nil, skipped("this kernel has no Landlock or no seccomp")
}

// within opens a sandbox, does do and closes it. Nothing is required of it here:
// what must be on was looked at when the engine was opened.
func within(ctx context.Context, e caisson.Engine, ws string, do func(caisson.Sandbox) error) error {
	box, err := e.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws, Require: []caisson.Control{}})
	if err != nil {
		return err
	}
	return errors.Join(do(box), box.Close())
}

func runIn(ctx context.Context, box caisson.Sandbox, cmd caisson.Command) error {
	p, err := box.Hold(ctx, cmd)
	if err == nil {
		err = p.Release()
	}
	if err != nil {
		return err
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("exit %d", exit.Code)
	}
	return err
}

// etcInside lists what a sandbox shows of /etc; nothing where it shows no list.
func etcInside(ctx context.Context, e caisson.Engine) ([]string, error) {
	var names bytes.Buffer
	err := within(ctx, e, "", func(box caisson.Sandbox) error {
		return runIn(ctx, box, caisson.Command{Line: "ls -A /etc || true", Stdout: &names})
	})
	return strings.Fields(names.String()), err
}

// bwrapArgs ask bwrap for the same namespaces, mounts and files.
func bwrapArgs(ws string, etc []string) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
		"--uid", "1000", "--gid", "1000", "--hostname", "box",
	}
	show := func(path string) {
		info, err := os.Lstat(path)
		switch {
		case err != nil: // not on this host
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			args = append(args, "--symlink", target, path)
		default:
			args = append(args, "--ro-bind", path, path)
		}
	}
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		show(path)
	}
	for _, name := range etc {
		show("/etc/" + name)
	}
	args = append(args, "--dev", "/dev", "--proc", "/proc")
	for _, name := range []string{"sys", "irq", "bus", "sysrq-trigger"} {
		show("/proc/" + name)
	}
	return append(args, "--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--tmpfs", "/home/agent", "--bind", ws, ws, "--chdir", ws, nothing)
}
