//go:build linux

package bubblewrap_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

const system = "/usr/bin/bwrap"

// at returns an engine that looks for bwrap elsewhere.
func at(t *testing.T, anyOwner bool, places ...string) *bubblewrap.Engine {
	e := bubblewrap.New(bubblewrap.Options{Guest: sandboxtest.Guest, Instance: "itest"}.At(anyOwner, places...))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// place returns a path that every user may go to.
func place(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "caisson-wrapper-") //nolint:usetesting // one that the box's user may enter
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, name)
}

const told = "\nwhat it does: "

// lie is what this program does in the place of bwrap: the shell line at its end.
func lie() int {
	raw, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		line := string(raw[bytes.LastIndex(raw, []byte(told))+len(told):])
		err = unix.Exec("/bin/sh", []string{"sh", "-c", line}, nil)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// liar puts a program at a path that runs a shell line.
func liar(t *testing.T, path, line string) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program(t, path, string(raw)+told+line)
}

// program puts a program at a path. Nothing is forked meanwhile: a child would
// have the file open for writing until it runs a program of its own, and nobody
// could run this one.
func program(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func copyOf(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(system)
	if err != nil {
		t.Skip("this machine has no " + system)
	}
	program(t, path, string(raw))
}

// A wrapper that says nothing, or something that is not so, is ended with all
// that it has started, and in time: at once but for one that says nothing. What
// it is told apart by is what is said of it; the bound is far below that of the
// programs, and far above what a loaded machine takes.
func TestWrapperThatLies(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"silent":    {"sleep 1000 & sleep 1001", "did not say within"},
		"wrong":     {`echo '{"child-pid": 1}' >&7; sleep 1000 & sleep 1001`, "could not be proved"},
		"no child":  {`echo '{"child-pid": 0}' >&7; sleep 1000 & sleep 1001`, "could not be proved"},
		"no number": {`echo '{"child-pid": "x"}' >&7; sleep 1000 & sleep 1001`, "could not make"},
		// A child, but of a namespace that is the host's.
		"unconfined": {`sleep 1000 & echo "{\"child-pid\": $!}" >&7; sleep 1001`, "could not be proved"},
		"ended":      {"echo no such luck >&2; exit 3", "no such luck"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marker := strconv.FormatInt(time.Now().UnixNano(), 10)
			path := place(t, "bwrap")
			liar(t, path, strings.ReplaceAll(c.text, "1000", "1000."+marker))
			start := time.Now()
			sb, err := at(t, true, path).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
			if err == nil {
				sb.Close()
			}
			if caisson.CodeOf(err) != caisson.CodeIsolationUnavailable || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("open: %v, want isolation-unavailable: %s", err, c.want)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v: %v", took, err)
			}
			if left := running(t, marker); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// running lists the processes with a word in their arguments.
func running(t *testing.T, word string) []string {
	t.Helper()
	all, err := proctree.All()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range all {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)) // it may be gone
		if strings.Contains(string(raw), word) {
			found = append(found, string(raw))
		}
	}
	return found
}

// Only a file that nobody but root can change is run.
func TestWrapperIsRoots(t *testing.T) {
	path := place(t, "bwrap")
	copyOf(t, path)
	if _, err := at(t, false, path).Probe(t.Context()); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("in /tmp: %v", err)
	}
	link := place(t, "bwrap")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := at(t, false, link).Probe(t.Context()); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("through a link: %v", err)
	}
	t.Setenv("PATH", filepath.Dir(path))
	if _, err := at(t, false, "/nowhere/bwrap").Probe(t.Context()); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable || !strings.Contains(fmt.Sprint(err), "not installed") {
		t.Errorf("in PATH: %v", err)
	}
	if err := os.Chmod(path, os.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := at(t, true, path).Probe(t.Context()); !strings.Contains(fmt.Sprint(err), "set-uid") {
		t.Errorf("set-uid: %v", err)
	}
}

// A wrapper that is replaced, or written over, is looked at and tried again.
func TestWrapperIsPinned(t *testing.T) {
	path := place(t, "bwrap")
	copyOf(t, path)
	e := at(t, true, path)
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := path + ".new"
	liar(t, other, "echo replaced >&2; exit 1")
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Probe(t.Context()); !strings.Contains(fmt.Sprint(err), "replaced") {
		t.Errorf("after it was replaced: %v", err)
	}
	liar(t, path, "echo written over >&2; exit 1")
	if _, err := e.Probe(t.Context()); !strings.Contains(fmt.Sprint(err), "written over") {
		t.Errorf("after it was written over: %v", err)
	}
	copyOf(t, path)
	if _, err := e.Probe(t.Context()); err != nil {
		t.Errorf("after it was put back: %v", err)
	}
}

// Nothing of the box is in an argument list or an environment of the host's.
func TestWrapperTellsNobody(t *testing.T) {
	e := engine(t)
	ws := t.TempDir()
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws, Env: []string{"SECRET=caisson-4713"}})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	guest, there := proctree.Of(sb.Record().Guest.PID)
	if !there {
		t.Fatal("there is no guest")
	}
	for _, pid := range []int{guest.PID, guest.Parent} {
		for _, name := range []string{"cmdline", "environ"} {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			if err != nil {
				continue // kept from this user too
			}
			if text := string(raw); strings.Contains(text, ws) || strings.Contains(text, "caisson-4713") || name == "environ" && len(text) > len("PWD=/\x00") {
				t.Errorf("%s of %d: %q", name, pid, text)
			}
		}
	}
}

// A box whose wrapper is killed ends.
func TestWrapperIsKilled(t *testing.T) {
	sb, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	guest, _ := proctree.Of(sb.Record().Guest.PID)
	p, err := os.FindProcess(guest.Parent)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-sb.Done():
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
	// Its files are closed a moment before it has ended.
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if now, there := proctree.Of(guest.PID); !there || now.Start != guest.Start || now.Zombie {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the guest lives on")
		}
	}
}
