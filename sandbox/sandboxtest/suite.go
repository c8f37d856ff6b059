// Package sandboxtest is what every engine must do. An engine's tests call Run
// with a way to make one.
//
// The cases run programs inside: a shell must be there. A case that needs more
// skips where it is not inside, and says of what. A control that the engine says
// it does not enforce must be reported with reason and fix and be refused to
// whoever requires it; then the case passes as "reported", which is not the same
// as held, and the table that Run logs at the end tells them apart.
package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// Harness says what is tested. The zero value of each field but Engine is an
// engine that makes a whole boundary of its own on this kernel.
type Harness struct {
	// Engine returns an engine that is released with the test.
	Engine func(t testing.TB) caisson.Engine
	// OtherKernel: processes inside have no pid on this host.
	OtherKernel bool
	// OtherRoot: the programs inside are not this host's but an image's.
	OtherRoot bool
	// MasksAtOpen: files are hidden when a sandbox is opened, and nothing runs in
	// it once there is one more to hide.
	MasksAtOpen bool
	// SharedPaths: there is no file tree of its own. What is at a path of the
	// host is at that path inside, or refused; nothing can be shown elsewhere.
	SharedPaths bool
	// SharedNetwork: there is no network of its own, so no loopback either.
	SharedNetwork bool
	// OwnLimits: its user namespace has limits of its own for what the kernel
	// counts by user.
	OwnLimits bool
	// Require is what sandboxes are opened with: less than the default for an
	// engine that does not enforce that.
	Require []caisson.Control
	// Without are names of cases that are left out.
	Without []string

	table *table
}

// patience bounds what should take far less, on a machine that is busy.
const patience = 5 * time.Minute

// Run runs all cases and logs what came of each control.
func Run(t *testing.T, h Harness) {
	h.table = &table{}
	for _, c := range cases() {
		if slices.Contains(h.Without, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Cleanup(func() { h.table.add(c.Case, t) })
			c.test(t, h)
		})
	}
	h.table.log(t, h)
}

// opened is an open sandbox in a test.
type opened struct {
	caisson.Sandbox
	t        testing.TB
	h        Harness
	ws       string
	patience time.Duration
}

// open opens a sandbox with a workspace of its own, changed by with.
func open(t testing.TB, h Harness, with ...func(*caisson.SandboxSpec)) *opened {
	t.Helper()
	ws := tempDir(t)
	spec := caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Workspace: ws}
	for _, change := range with {
		change(&spec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sb, err := h.Engine(t).Open(ctx, spec)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, path := range sb.Record().Leftovers {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s is left", path)
			}
		}
	})
	return &opened{sb, t, h, spec.Workspace, patience}
}

// tempDir returns a directory whose path has no links.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// in is o for a test below its own.
func (o *opened) in(t testing.TB) *opened {
	below := *o
	below.t = t
	return &below
}

// result is what came of a command.
type result struct {
	caisson.Exit
	out, err string
	took     time.Duration
}

// do runs a command to its end.
func (o *opened) do(cmd caisson.Command) result {
	o.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), o.patience)
	defer cancel()
	start := time.Now()
	p, err := o.Hold(ctx, cmd)
	if err != nil {
		o.t.Fatalf("hold %v%s: %v", cmd.Argv, cmd.Line, err)
	}
	if err := p.Release(); err != nil {
		o.t.Fatalf("release: %v", err)
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		o.t.Fatalf("wait: %v", err)
	}
	return result{exit, out.String(), errs.String(), time.Since(start)}
}

// sh runs a shell line that must succeed, and returns its output.
func (o *opened) sh(line string) string {
	o.t.Helper()
	r := o.do(caisson.Command{Line: line})
	if r.Code != 0 {
		o.t.Fatalf("%s: exit %d\n%s%s", line, r.Code, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// fails runs a shell line that must not succeed.
func (o *opened) fails(line string) {
	o.t.Helper()
	if r := o.do(caisson.Command{Line: line}); r.Code == 0 {
		o.t.Errorf("%s: succeeded\n%s%s", line, r.out, r.err)
	}
}

// python runs a program that must succeed, and returns its output.
func (o *opened) python(program string, args ...string) string {
	o.t.Helper()
	o.need("python3")
	r := o.do(caisson.Command{Argv: append([]string{"python3", "-c", program}, args...)})
	if r.Code != 0 {
		o.t.Fatalf("python3: exit %d\n%s%s", r.Code, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// count counts the processes inside; 0 where others are to be seen too.
func (o *opened) count() int {
	o.t.Helper()
	if !o.Isolation().Enforces(caisson.ControlProcesses) {
		return 0
	}
	n, err := strconv.Atoi(o.sh(`n=0; for p in /proc/[0-9]*; do
	read -r name < $p/comm 2>/dev/null || continue
	n=$((n+1)); done; echo $n`))
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

// need skips unless the programs are there inside.
func (o *opened) need(programs ...string) {
	o.t.Helper()
	for _, name := range programs {
		if o.do(caisson.Command{Argv: []string{"sh", "-c", `command -v "$1"`, "sh", name}}).Code != 0 {
			o.t.Skipf("there is no %s inside", name)
		}
	}
}

// needHost skips unless the program is on this host.
func needHost(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("this machine has no %s", name)
	}
}

// enforced tells whether the sandbox says that it enforces a control. Where it
// does not, the report must say why and what to do, and the case is over.
func (o *opened) enforced(control caisson.Control) bool {
	o.t.Helper()
	row := o.Isolation().Row(control)
	if row.Enforced {
		return true
	}
	if row.Why == "" || row.Fix == "" {
		o.t.Errorf("%s is not enforced, and the report does not say why and what to do: %+v", control, row)
	}
	o.h.reported(o.t, control)
	return false
}

// reported notes that a case was met by the report and not by the boundary.
func (h Harness) reported(t testing.TB, control caisson.Control) {
	h.table.note(t, "reported: "+string(control)+" is not enforced")
}

// guest returns the pid of the guest, if it is to be seen on this host.
func (o *opened) guest() (pid int, seen bool) {
	o.t.Helper()
	guest := o.Record().Guest
	if o.h.OtherKernel {
		return 0, false
	}
	if guest == nil || guest.PID == 0 {
		o.t.Fatal("the record does not name the guest")
	}
	return guest.PID, true
}

// host runs a program on the host.
func host(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func makeDir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
