package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// beats is a command that is held: it says its number, takes no end that it is
// asked for, and writes the time as long as it lives.
const beats = `trap '' TERM HUP INT; echo $$ > "$HOME/pid.tmp"; mv "$HOME/pid.tmp" "$HOME/pid"; while :; do date +%s%N >> "$HOME/beats"; sleep 0.01; done`

// held starts a hold of the sandbox on branch one with that command, and returns
// who holds it and the number of the command.
func (p *person) held(args ...string) (holder *seat, command int) {
	p.t.Helper()
	all := append([]string{"sandbox", "hold", "one", "--reason", "see it"}, args...)
	holder = p.start(window, append(all, "--", "sh", "-c", beats)...)
	p.t.Cleanup(func() {
		if pid, err := strconv.Atoi(strings.TrimSpace(read(filepath.Join(p.home, "home/pid")))); err == nil && alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // only where the test failed
		}
	})
	for end := time.Now().Add(never); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		pid, err := strconv.Atoi(strings.TrimSpace(read(filepath.Join(p.home, "home/pid"))))
		if err == nil && strings.Contains(read(filepath.Join(p.home, "home/beats")), "\n") {
			return holder, pid
		}
	}
	p.t.Fatalf("the command does not begin:\n%s", holder.screen())
	return nil, 0
}

func read(path string) string {
	raw, _ := os.ReadFile(path) // it may not be there yet
	return string(raw)
}

// alive tells whether a process is there and has not ended, as the kernel says.
func alive(pid int) bool {
	stat := read(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(stat, ") ")
	return stat != "" && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// edit changes the note of the only hold there is.
func (p *person) edit(change func(map[string]any)) {
	p.t.Helper()
	found, _ := filepath.Glob(filepath.Join(p.home, "state/caisson/holds/*.json"))
	if len(found) != 1 {
		p.t.Fatalf("%d holds", len(found))
	}
	note := map[string]any{}
	if err := json.Unmarshal([]byte(read(found[0])), &note); err != nil {
		p.t.Fatal(err)
	}
	change(note)
	raw, err := json.Marshal(note)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(found[0], raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// opened returns when the sandbox on branch one was opened last.
func (p *person) opened() time.Time {
	p.t.Helper()
	boxes, err := p.ledger().Sandboxes(p.t.Context(), caisson.SandboxFilter{States: []caisson.SandboxState{caisson.SandboxRunning}})
	if err != nil || len(boxes) != 1 {
		p.t.Fatalf("%d sandboxes, %v", len(boxes), err)
	}
	return boxes[0].At
}

// ended verifies that the held command is gone, and was before the sandbox was
// opened again.
func (p *person) ended(command int) {
	p.t.Helper()
	if alive(command) {
		p.t.Errorf("process %d lives: %s", command, read(fmt.Sprintf("/proc/%d/stat", command)))
	}
	lines := strings.Fields(read(filepath.Join(p.home, "home/beats")))
	last, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	if at := p.opened(); !time.Unix(0, last).Before(at) {
		p.t.Errorf("it was at work at %s, and the sandbox was open at %s", time.Unix(0, last), at)
	}
}

// A hold whose holder was killed is ended, with its command, before the sandbox is
// opened again.
func TestHoldOfTheKilled(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	holder, command := p.held()
	if err := holder.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.cmd.Wait()
	if !alive(command) {
		t.Fatal("the command has ended by itself")
	}
	p.start(window, "sandbox", "start", "one").ends(0)
	p.ended(command)
	p.start(window, "sandbox", "exec", "-T", "one", "true").ends(0)
}

// A hold whose holder is stopped is kept for its time. Then the holder is ended,
// with its command, before the sandbox is opened again. What clock hangs on the
// wall makes no difference.
func TestHoldOfTheFrozen(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	holder, command := p.held("--for", "10m")
	p.halt(holder.cmd.Process.Pid)
	p.edit(func(note map[string]any) { note["until"] = time.Now().Add(-time.Hour) }) // the clock was set ahead
	s := p.start(window, "sandbox", "start", "one")
	s.ends(75)
	s.see("handoff-active", 1)
	if !alive(command) || !alive(holder.cmd.Process.Pid) {
		t.Fatal("they were ended in their time")
	}
	p.edit(func(note map[string]any) {
		note["until"], note["ends"] = time.Now().Add(time.Hour), 1 // the clock was set back
	})
	p.start(window, "sandbox", "start", "one").ends(0)
	_ = holder.cmd.Wait()
	p.ended(command)
}

// A hold of whose holder nothing can be told is kept.
func TestHoldOfTheUnknown(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	holder, command := p.held()
	var is any
	p.edit(func(note map[string]any) { is, note["instance"], note["ends"] = note["instance"], "inobody", 1 })
	for _, args := range [][]string{{"start", "one"}, {"exec", "-T", "one", "true"}, {"hold", "one", "--reason", "x", "--", "true"}} {
		s := p.start(window, append([]string{"sandbox"}, args...)...)
		s.ends(75)
		if args[0] == "start" {
			s.see("cannot be told here, and so the hold is kept", 1)
		}
	}
	if !alive(command) {
		t.Error("the command was ended")
	}
	p.edit(func(note map[string]any) { note["instance"] = is })
	p.start(window, "sandbox", "start", "one").ends(0)
	_ = holder.cmd.Wait()
	p.ended(command)
}

// A held command has the person's terminal: what is typed, and its keys.
func TestHoldOnATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	s := p.start(window, "sandbox", "hold", "one", "--reason", "x", "--", "sh", "-c",
		`trap 'echo told; exit 7' INT; stty size; echo up-$((1+1)); read x; echo got-$x; while :; do read y; done`)
	s.see("31 117", 1)
	s.see("up-2", 1)
	s.write("\x1a") // Ctrl-Z: nobody could have it go on
	s.write("word\r")
	s.see("got-word", 1)
	s.write("\x03")
	s.see("told", 1)
	s.ends(7)
	p.start(window, "sandbox", "exec", "-T", "one", "true").ends(0)
	// A person's shell with jobs of its own is one too.
	s = p.start(window, "sandbox", "hold", "one", "--reason", "x", "--", "bash", "--norc", "-i")
	s.write("bind 'set enable-bracketed-paste off'; PS1='rea''dy> '\r")
	s.see("ready> ", 1)
	s.write("sh -c 'echo sle\"\"eps; exec sleep 600.125'\r") // the job itself says that it is there
	s.see("sleeps", 1)
	s.write("\x1a")
	s.see("Stopped", 1)
	s.write("kill %1; wait; echo on-$(git branch --show-current)\r")
	s.see("on-one", 1)
	s.write("exit 3\r")
	s.ends(3)
	if ws := p.opened(); ws.IsZero() {
		t.Error("it is not open")
	}
}
