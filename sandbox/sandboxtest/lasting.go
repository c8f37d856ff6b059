package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// manyEnv is how many commands are run in one sandbox, else manyCommands.
const manyEnv = "CAISSON_COMMANDS"

// manyCommands is some seconds' worth.
const manyCommands = 2000

// kept is what must not grow with the number of commands.
type kept struct {
	hostFDs, hostGoroutines   int
	guestFDs, guestThreads    int
	processes, cgroups, files int
	guestRSS, hostRSS         int64 // KiB
}

// lasts runs many commands, of every kind, in one sandbox, several at a time:
// nothing of it or of its host grows.
func (l Life) lasts(t *testing.T) {
	n := manyCommands
	if text := os.Getenv(manyEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("%s=%q is no number of commands", manyEnv, text)
		}
	} else if testing.Short() {
		n /= 10
	}
	e := l.Engine(t)
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: tempDir(t), Require: []caisson.Control{}})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	runMany(t, sb, max(n/10, 100)) // what is kept for use again is there then
	before := look(t, sb)
	begun := time.Now()
	runMany(t, sb, n)
	after := settle(t, sb, before)
	t.Logf("%d commands in %v; before %+v, after %+v", n, time.Since(begun).Round(time.Millisecond), before, after)
	if grown := before.grown(after); grown != "" {
		t.Errorf("after %d commands there is more of %s: %+v, then %+v", n, grown, before, after)
	}
}

// memorySlack is what a garbage collector may be late by, in KiB.
const memorySlack = 8 << 10

func (k kept) grown(now kept) string {
	for _, what := range []struct {
		name     string
		was, is  int
		allowing int
	}{
		{"the host's descriptors", k.hostFDs, now.hostFDs, 2},
		{"the host's goroutines", k.hostGoroutines, now.hostGoroutines, 2},
		{"the guest's descriptors", k.guestFDs, now.guestFDs, 0},
		{"the guest's threads", k.guestThreads, now.guestThreads, 4},
		{"processes", k.processes, now.processes, 0},
		{"cgroups", k.cgroups, now.cgroups, 0},
		{"private files", k.files, now.files, 0},
		{"the guest's memory", int(k.guestRSS), int(now.guestRSS), memorySlack},
		{"the host's memory", int(k.hostRSS), int(now.hostRSS), memorySlack},
	} {
		if what.is > what.was+what.allowing {
			return what.name
		}
	}
	return ""
}

// settle looks until nothing is more than it was, for a while.
func settle(t *testing.T, sb caisson.Sandbox, before kept) kept {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(prompt)
	for {
		now := look(t, sb)
		if before.grown(now) == "" {
			return now
		}
		select {
		case <-tick.C:
		case <-end:
			return now
		}
	}
}

// look counts. What this user may not look at is 0.
func look(t *testing.T, sb caisson.Sandbox) kept {
	t.Helper()
	runtime.GC()
	record := sb.Record()
	k := kept{
		hostFDs: entries("/proc/self/fd"), hostGoroutines: runtime.NumGoroutine(), hostRSS: resident("self"),
		cgroups: len(groupsOf(t, []string{string(record.ID)})),
	}
	guest := record.Guest.PID
	k.guestFDs, k.guestThreads, k.guestRSS = entries(fmt.Sprintf("/proc/%d/fd", guest)), entries(fmt.Sprintf("/proc/%d/task", guest)), resident(strconv.Itoa(guest))
	all, err := proctree.All()
	if err != nil {
		t.Fatal(err)
	}
	k.processes = len(proctree.Below(all, guest, nil))
	var out strings.Builder
	if err := runOne(t.Context(), sb, caisson.Command{Line: `ls -A "${TMPDIR:-/tmp}" /dev/shm "$HOME" 2>/dev/null | grep -v : | grep -c .; :`, Stdout: &out}, nil); err != nil {
		t.Fatal(err)
	}
	if k.files, err = strconv.Atoi(strings.TrimSpace(out.String())); err != nil {
		t.Fatal(err)
	}
	return k
}

func entries(dir string) int {
	all, _ := os.ReadDir(dir) // not ours to look at: none
	return len(all)
}

func resident(pid string) int64 {
	raw, _ := os.ReadFile(filepath.Join("/proc", pid, "status")) // ended: none
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	return 0
}

// atOnce is how many commands run at a time.
const atOnce = 4

// runMany runs n commands from several goroutines.
func runMany(t *testing.T, sb caisson.Sandbox, n int) {
	t.Helper()
	var group sync.WaitGroup
	failed := make(chan error, atOnce)
	for worker := range atOnce {
		group.Go(func() { // ends with its share of the commands
			for i := worker; i < n; i += atOnce {
				if err := runKind(t.Context(), sb, i); err != nil {
					failed <- fmt.Errorf("command %d: %w", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
}

// runKind runs the i-th command: mostly one that does nothing, and now and then
// one of each other kind.
func runKind(ctx context.Context, sb caisson.Sandbox, i int) error {
	switch i % 20 {
	case 1: // output of both kinds
		return runOne(ctx, sb, caisson.Command{Line: "echo a; echo b >&2", Stdout: io.Discard, Stderr: &strings.Builder{}}, nil)
	case 3: // input, more than is read
		return runOne(ctx, sb, caisson.Command{Line: "read x", Stdin: strings.NewReader("a\n" + strings.Repeat("b", 100<<10))}, nil)
	case 5: // what it leaves behind
		return runOne(ctx, sb, caisson.Command{Line: "sleep 1000 & setsid sleep 1000 & :"}, nil)
	case 7: // stopped by a deadline
		return runOne(ctx, sb, caisson.Command{Argv: []string{"sleep", "1000"}, Deadline: time.Millisecond, Grace: time.Second}, nil)
	case 9: // dropped
		p, err := sb.Hold(ctx, caisson.Command{Argv: []string{"true"}, Stdout: io.Discard})
		if err == nil {
			p.Drop()
		}
		return err
	case 11: // not there
		if _, err := sb.Hold(ctx, caisson.Command{Argv: []string{"/none"}}); caisson.CodeOf(err) != caisson.CodeNotFound {
			return fmt.Errorf("a program that is not there: %w", err)
		}
		return nil
	case 13: // files
		name := fmt.Sprintf("file-%d", i%atOnce)
		_, err := sb.Files().Write(ctx, name, []byte("x"), caisson.WriteOptions{})
		if err == nil {
			_, err = sb.Files().Read(ctx, name, 0, 0)
		}
		return err
	case 15: // cancelled
		return runOne(ctx, sb, caisson.Command{Argv: []string{"sleep", "1000"}, Grace: time.Second}, func(p caisson.Process) { p.Stop(caisson.CauseUser) })
	}
	return runOne(ctx, sb, caisson.Command{Argv: []string{"true"}}, nil)
}

func runOne(ctx context.Context, sb caisson.Sandbox, cmd caisson.Command, then func(caisson.Process)) error {
	p, err := sb.Hold(ctx, cmd)
	if err == nil {
		err = p.Release()
	}
	if err != nil {
		return err
	}
	if then != nil {
		then(p)
	}
	_, err = p.Wait(ctx)
	return err
}
