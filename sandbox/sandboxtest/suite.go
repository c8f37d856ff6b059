// Package sandboxtest is what every engine must do. An engine's tests call Run
// with a way to make one.
//
// The cases run programs of the host inside: a shell and python3 must be in
// /usr. A case that needs more skips, and says of what.
package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// Harness says what is tested.
type Harness struct {
	// Engine returns an engine that is released with the test.
	Engine func(t testing.TB) caisson.Engine
}

// patience bounds what should take far less, on a machine that is busy.
const patience = 3 * time.Minute

// Run runs all cases.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"TestCase_S01", deadlineEndsTree},
		{"TestCase_S02", pipeHolderDoesNotHold},
		{"TestCase_S03", stdinEndsAtOnce},
		{"TestCase_S05", nothingIsCreatedOnHost},
		{"TestCase_S06", gitMayHoldLinks},
		{"TestCase_S07", gitWorksInside},
		{"TestCase_S09", worksWithoutWorkspace},
		{"TestCase_S10", tmpIsPrivate},
		{"TestCase_S11", environmentIsNotInherited},
		{"TestCase_S14", hostSocketsAreOutOfReach},
		{"TestCase_S15_Forks", forksAreBounded},
		{"TestCase_S15_Memory", memoryIsBounded},
		{"TestCase_S15_Tmp", tmpIsBounded},
		{"TestCase_S16", outputIsExact},
		{"TestCase_S17", linksLeadNowhere},
		{"TestCase_S18", orphansAreReaped},
		{"TestCase_S19", argumentsAreExact},
		{"TestCase_S20", networkIsOutOfReach},
		{"ReadOnly", hostPathsAreReadOnly},
		{"ReadOnlyWorkspace", workspaceMayBeReadOnly},
		{"Mounts", mountsAreShown},
		{"Owner", filesKeepTheirOwner},
		{"Processes", hostProcessesAreUnseen},
		{"Keys", hostKeysAreUnseen},
		{"Privileges", nothingGainsPrivileges},
		{"Syscalls", systemCallsAreFiltered},
		{"Guest", guestIsShielded},
		{"Loopback", loopbackWorks},
		{"Two", twoAreApart},
		{"Close", closeEndsAll},
		{"Home", homeIsKept},
		{"Report", reportIsWhole},
		{"Require", requirementsAreKept},
		{"Development", developmentWorks},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

// opened is an open sandbox in a test.
type opened struct {
	caisson.Sandbox
	t        testing.TB
	ws       string
	patience time.Duration
}

// open opens a sandbox with a workspace of its own, changed by with.
func open(t testing.TB, h Harness, with ...func(*caisson.SandboxSpec)) *opened {
	t.Helper()
	ws := tempDir(t)
	spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws}
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
	return &opened{sb, t, spec.Workspace, patience}
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
	r := o.do(caisson.Command{Argv: append([]string{"python3", "-c", program}, args...)})
	if r.Code != 0 {
		o.t.Fatalf("python3: exit %d\n%s%s", r.Code, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// processes counts the processes inside beside the guest and the counting one.
const countProcesses = `n=0; for p in /proc/[0-9]*; do
	read -r name < $p/comm 2>/dev/null || continue
	n=$((n+1)); done; echo $n`

// need skips unless the program is where boxes have programs.
func need(t testing.TB, name string) {
	t.Helper()
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/usr/local/go/bin"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return
		}
	}
	t.Skipf("this machine has no %s in /usr", name)
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

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
