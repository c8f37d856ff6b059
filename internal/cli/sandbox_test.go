package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/caisson-run/caisson"
)

const leaveKeys = "\x1dd" // Ctrl-] d

// shell opens a session with a prompt that a test can wait for.
func (p *person) shell(args ...string) *seat {
	p.t.Helper()
	s := p.start(window, append([]string{"sandbox", "shell", "--no-workspace"}, args...)...)
	s.write("bind 'set enable-bracketed-paste off'; PS1='rea''dy> '\r")
	s.see("ready> ", 1)
	return s
}

// untilSize is typed to wait inside for a size, which comes beside what is typed.
func untilSize(size string) string {
	return "while ! stty size | grep -q '^" + size + "$'; do :; done; stty size; "
}

// events returns the bodies of the run's events of a kind.
func (p *person) events(kind caisson.EventKind) []string {
	p.t.Helper()
	events, err := p.ledger().Events(p.t.Context(), p.run().ID, 0, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	var bodies []string
	for _, e := range events {
		if e.Kind == kind {
			bodies = append(bodies, string(e.Body))
		}
	}
	return bodies
}

// settled waits for the end of the run.
func (p *person) settled() caisson.Run {
	p.t.Helper()
	l := p.ledger()
	for seen, id := int64(0), p.run().ID; ; {
		r, err := l.Run(p.t.Context(), id)
		if err != nil {
			p.t.Fatal(err)
		}
		if r.State.Terminal() && r.Lease.Instance == "" {
			return r
		}
		if seen, err = l.Wait(p.t.Context(), id, max(seen, r.Events)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// nothing wants no socket, no lock and no sandbox to be left after a command, once
// the process that had them has ended.
func (p *person) nothing() {
	p.t.Helper()
	for end := time.Now().Add(never); ; {
		for range 2 { // the first may itself leave a lock
			p.start(window, "sandbox", "ls").ends(0)
		}
		left := p.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			p.t.Errorf("left: %q", left)
			return
		}
	}
}

// left is what is there of sessions, but for locks of processes that live.
func (p *person) left() (left []string) {
	p.t.Helper()
	for _, dir := range []string{"terminals", "instances"} {
		entries, _ := os.ReadDir(filepath.Join(p.home, "run/caisson", dir)) // it may not be there
		for _, e := range entries {
			if dir != "instances" || !p.alive(e.Name()) {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	boxes, err := p.ledger().Sandboxes(p.t.Context(), caisson.SandboxFilter{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, box := range boxes {
		if box.State != caisson.SandboxRemoved {
			left = append(left, fmt.Sprintf("sandbox %s, which is %s", box.ID, box.State))
		}
	}
	return left
}

// alive tells whether the lock is of a process that lives.
func (p *person) alive(lock string) bool {
	inst, err := p.ledger().Instance(p.t.Context(), caisson.InstanceID(strings.TrimSuffix(lock, ".lock")))
	return err == nil && syscall.Kill(inst.Process.PID, 0) == nil
}

// holder returns the pid of the process that holds the session.
func (p *person) holder() int {
	p.t.Helper()
	inst, err := p.ledger().Instance(p.t.Context(), p.run().Lease.Instance)
	if err != nil {
		p.t.Fatal(err)
	}
	return inst.Process.PID
}

// A shell has a terminal like one outside: its size follows, keys reach what is
// in the foreground inside, and its status is the command's.
func TestShell(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	s.write("stty size; test -t 0 && test -t 2 && echo a-$((1+1))-tty\r")
	s.see("\n31 117\n", 1)
	s.see("\na-2-tty\n", 1)
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 40, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	s.write(untilSize("40 99") + "echo it-$((1+1))-grew\r")
	s.see("\nit-2-grew\n", 1)
	s.write("sh -c 'trap \"echo c-\\$((1+1))-int; exit\" INT; echo b-$((1+1))-up; while :; do read x; done'\r")
	s.see("\nb-2-up\n", 1)
	s.write("\x03")
	s.see("c-2-int\nready> ", 1) // what is typed before that is echoed twice
	// It starts nothing: a stop that comes between vfork and exec reaches the child alone.
	s.write("sh -c 'trap \"echo g-\\$((1+1))-back\" CONT; echo f-$((1+1))-up; while :; do read x; done'\r")
	s.see("\nf-2-up\n", 1)
	s.write("\x1a")
	s.see("Stopped", 1)
	s.write("jobs; echo d-$((1+1))\r")
	s.see("\nd-2\nready> ", 1)
	s.write("fg\r")
	s.see("\ng-2-back\n", 1) // the shell shows its line before it is in the foreground
	s.write("\x03")
	s.see("^C\nready> ", 1) // what is typed before that goes with it
	s.write("jobs; echo e-$((1+1)); exit 7\r")
	s.see("\ne-2\n", 1)
	s.see("ended with status 7", 1)
	s.ends(7)
	if r := p.run(); r.State != caisson.RunFailed || r.Exit != 7 || r.Spec.Session != caisson.SessionTerminal {
		t.Errorf("run %s, exit %d", r.State, r.Exit)
	}
	p.nothing()
}

// The person's terminal is given back as it was, however its time ends.
func TestTerminalIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		end    func(s *seat)
		status int
	}{
		{"end", func(s *seat) { s.write("exit\r") }, 0},
		{"keys", func(s *seat) { s.write(leaveKeys) }, 0},
		{"term", func(s *seat) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, 130},
		{"hup", func(s *seat) { _ = s.cmd.Process.Signal(syscall.SIGHUP) }, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, map[string]string{})
			master, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			defer tty.Close()
			before, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			s := p.startOn(master, tty, window, "sandbox", "shell", "--no-workspace")
			s.write("printf '\\033[?1049h\\033[?2004h\\033[?25l\\033]0;mine\\007'; echo is-$((1+1))-up\r")
			s.see("is-2-up", 1)
			c.end(s)
			s.exits(c.status)
			if after, err := term.GetState(int(tty.Fd())); err != nil || *after != *before {
				t.Errorf("the terminal is not as it was: %v", err)
			}
			tty.Close()
			<-s.end
			rest := s.screen()
			for _, want := range []string{"\x1b[22;0t", "\x1b[?2004l", "\x1b[?1049l", "\x1b[?25h", "\x1b[23;0t"} {
				if !strings.Contains(rest, want) {
					t.Errorf("%q was not undone:\n%q", want, rest)
				}
			}
			p.start(window, "sandbox", "stop", string(p.run().ID)).tolerate(0, 1)
		})
	}
}

// The last words of a program that ends at once are shown.
func TestCommandThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	for n := range 5 {
		s := p.start(window, "sandbox", "exec", "--no-workspace", "--", "sh", "-c", fmt.Sprintf("echo word-$((%d+1)); exit %d", n, n))
		s.ends(n)
		if strings.Count(s.screen(), fmt.Sprintf("word-%d\n", n+1)) != 1 {
			t.Error(s.screen())
		}
	}
	p.nothing()
}

// A session goes on when it is left to itself, and shows what it showed to who
// comes back, from another terminal and of another size.
func TestDetachAndComeBack(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	s.write("echo before-$((1+1)); read line; echo got-$line-$((1+1))\r")
	s.see("\nbefore-2\n", 1)
	s.write(leaveKeys)
	s.ends(0)
	if !strings.Contains(s.screen(), "caisson sandbox attach "+string(p.run().ID)) {
		t.Error(s.screen())
	}
	p.await(caisson.EventViewerDetached) // its holder notices that after it
	other := p.start(pty.Winsize{Rows: 20, Cols: 70}, "sandbox", "attach")
	other.see("\nbefore-2\n", 1)
	other.write("this\r")
	other.see("\ngot-this-2\n", 1)
	other.write(untilSize("20 70") + "\r")
	other.see("\n20 70\n", 1)
	other.write("exit 3\r")
	other.ends(3)
	if n, m := len(p.events(caisson.EventViewerAttached)), len(p.events(caisson.EventViewerDetached)); n != 2 || m != 1 {
		t.Errorf("%d came and %d went", n, m)
	}
	p.nothing()
	p.start(window, "sandbox", "attach", string(p.run().ID)).ends(1)
}

// A key of the sequence alone is the program's.
func TestDetachKeys(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.start(window, "sandbox", "exec", "--no-workspace", "--detach-keys", "ctrl-a,ctrl-b", "sh", "-c",
		`stty raw -echo; echo up; head -c 4 | od -An -tx1; cat > /dev/null`)
	s.see("up", 1)
	s.write("\x1dd\x01x")
	s.see("1d 64 01 78", 1)
	s.write("\x01")
	s.write("\x02")
	s.ends(0)
	p.start(window, "sandbox", "stop", string(p.run().ID)).ends(0)
	if r := p.run(); r.State != caisson.RunCancelled || r.Cause != caisson.CauseUser {
		t.Errorf("run %s, cause %q", r.State, r.Cause)
	}
	p.nothing()
}

// Two see the same; both type; the size is that of the one who typed last; one
// who only looks neither types nor sizes.
func TestTwoViewers(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	one := p.shell()
	two := p.start(pty.Winsize{Rows: 20, Cols: 70}, "sandbox", "attach", string(p.run().ID))
	two.see("ready> ", 1)
	looker := p.start(pty.Winsize{Rows: 10, Cols: 30}, "sandbox", "attach", "--read-only")
	looker.see("ready> ", 1)
	two.write(untilSize("20 70") + "\r")
	for _, s := range []*seat{one, two, looker} {
		s.see("\n20 70\n", 1)
	}
	looker.write("echo lo-$((1+1))\r")
	one.write(untilSize("31 117") + "echo a-$((1+1))\r")
	for _, s := range []*seat{one, two, looker} {
		s.see("\n31 117\n", 1)
		s.see("\na-2\n", 1)
	}
	looker.write("\x03")
	looker.ends(0)
	// One that is killed takes nothing with it.
	_ = two.cmd.Process.Kill()
	p.await(caisson.EventViewerDetached)
	one.write("echo b-$((1+1)); exit\r")
	one.see("\nb-2\n", 1)
	one.ends(0)
	if strings.Contains(one.screen(), "lo-2") {
		t.Error("who only looks has typed")
	}
	p.nothing()
}

// A program is not held up by a viewer that is stopped.
func TestStoppedViewer(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	slow := p.start(window, "sandbox", "attach")
	slow.see("ready> ", 1)
	p.halt(slow.cmd.Process.Pid)
	s.write("head -c 6000000 /dev/zero | tr '\\0' x | fold -w 100; echo; echo all-$((1+1))\r")
	s.see("\nall-2\n", 1)
	if err := slow.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.write("exit\r")
	s.ends(0)
	slow.tolerate(0, caisson.ExitInterrupted) // it was stopped for so long, or not
	p.nothing()
}

// The end of the holder is the end of all that it held, and the next command
// says so and leaves nothing.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	if err := syscall.Kill(p.holder(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.ends(caisson.ExitUnknown)
	if !strings.Contains(s.screen(), "was killed") {
		t.Error(s.screen())
	}
	p.start(window, "doctor", "--residue").ends(0)
	p.nothing()
	if r := p.run(); r.State != caisson.RunCancelled || r.Cause != caisson.CauseUnknown {
		t.Errorf("run %s, cause %q", r.State, r.Cause)
	}
	calls, err := p.ledger().Calls(t.Context(), p.run().ID)
	if err != nil || len(calls) != 1 || calls[0].State.Outcome() != caisson.OutcomeUnknown {
		t.Errorf("%+v, %v", calls, err)
	}
}

// SIGTERM has the holder end the session in order.
func TestHolderIsTerminated(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	if err := syscall.Kill(p.holder(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ends(caisson.ExitInterrupted)
	if r := p.settled(); r.State != caisson.RunCancelled || r.Cause != caisson.CauseShutdown {
		t.Errorf("run %s, cause %q", r.State, r.Cause)
	}
	p.nothing()
}

// Many come and go, some of them while it ends; it goes on, and then it ends.
func TestComeAndGo(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.shell()
	for range 5 {
		var seats []*seat
		for range 4 {
			seats = append(seats, p.start(window, "sandbox", "attach"))
		}
		for _, other := range seats {
			other.see("ready> ", 1)
			other.write(leaveKeys)
		}
		for _, other := range seats {
			other.ends(0)
		}
	}
	// Its holder notices that they are gone after they are.
	id := p.run().ID
	p.until(func(l caisson.Ledger) bool {
		gone := 0
		events, err := l.Events(t.Context(), id, 0, 0)
		for _, e := range events {
			if e.Kind == caisson.EventViewerDetached {
				gone++
			}
		}
		return err == nil && gone >= 20
	})
	var late []*seat
	for range 4 {
		late = append(late, p.start(window, "sandbox", "attach", string(p.run().ID)))
	}
	s.write("exit 4\r")
	s.ends(4)
	for _, other := range late {
		other.tolerate(4, 1) // it came in time, or is told that it did not
	}
	if came, went := len(p.events(caisson.EventViewerAttached)), len(p.events(caisson.EventViewerDetached)); went != 20 || came < 21 {
		t.Errorf("%d came and %d went", came, went)
	}
	p.nothing()
}

// A workspace is named by the run that made it also to the commands on what
// works in it now, which is another.
func TestStopByTheRunOfTheWorkspace(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "run", "--", "true").ends(0)
	made := string(p.run().ID)
	p.start(window, "sandbox", "shell", "-d", made).ends(0)
	p.until(func(l caisson.Ledger) bool { // it is in the background before it has a sandbox
		runs, err := l.Runs(t.Context(), caisson.RunFilter{States: []caisson.RunState{caisson.RunRunning}})
		return err == nil && len(runs) == 1
	})
	show := p.start(window, "sandbox", "show", made)
	show.ends(0)
	if !strings.Contains(show.screen(), "running  shell") {
		t.Error(show.screen())
	}
	p.start(window, "sandbox", "stop", made).ends(0)
	p.nothing()
}
