package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
)

// serving returns the pid of the process that keeps the person's only sandbox open.
func (p *person) serving() int {
	p.t.Helper()
	l := p.ledger()
	boxes, err := l.Sandboxes(p.t.Context(), caisson.SandboxFilter{States: []caisson.SandboxState{caisson.SandboxRunning}})
	if err != nil || len(boxes) != 1 {
		p.t.Fatalf("%d sandboxes, %v", len(boxes), err)
	}
	inst, err := l.Instance(p.t.Context(), boxes[0].Instance)
	if err != nil {
		p.t.Fatal(err)
	}
	return inst.Process.PID
}

// A shell in a sandbox that is kept open has a terminal of its own, is left and
// come back to, and is ended with the sandbox.
func TestShellInServed(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	s := p.start(window, "sandbox", "shell", "one")
	s.write("bind 'set enable-bracketed-paste off'; PS1='rea''dy> '\r")
	s.see("ready> ", 1)
	s.write("stty size; echo $TERM-$((1+1)); echo of-shell > /tmp/x\r")
	s.see("\n31 117\n", 1)
	s.see("\nxterm-2\n", 1)
	other := p.start(window, "sandbox", "exec", "-T", "one", "cat", "/tmp/x")
	other.see("of-shell", 1)
	other.ends(0)
	s.write(leaveKeys)
	s.see("left to itself", 1)
	s.ends(0)
	again := p.start(window, "sandbox", "attach", "one")
	again.write("echo back-$((1+1))\r")
	again.see("\nback-2\n", 1)
	again.write("exit 7\r")
	again.ends(7)
	last := p.start(window, "sandbox", "shell", "one")
	last.write("echo up-$((1+1))\r")
	last.see("up-2", 1)
	p.start(window, "sandbox", "stop", "one").ends(0)
	last.ends(caisson.ExitInterrupted)
}

// Ctrl-C at a command without a terminal inside ends it; the sandbox goes on. A
// client that is killed takes its command with it.
func TestClientInServed(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	s := p.start(window, "sandbox", "exec", "-T", "one", "--", "sh", "-c", "echo up-$((1+1)); exec sleep 600.25")
	s.see("up-2", 1)
	s.write("\x03")
	s.ends(caisson.ExitInterrupted)
	s = p.start(window, "sandbox", "exec", "-T", "one", "--", "sh", "-c", "echo up-$((1+1)); exec sleep 600.5")
	s.see("up-2", 1)
	_ = s.cmd.Process.Kill()
	<-s.end
	l := p.ledger()
	for seen := int64(0); ; {
		runs, err := l.Runs(t.Context(), caisson.RunFilter{States: []caisson.RunState{caisson.RunCancelled}})
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) == 2 {
			break
		}
		if seen, err = l.Wait(t.Context(), "", seen); err != nil {
			t.Fatal(err)
		}
	}
	p.start(window, "sandbox", "exec", "-T", "one", "--", "sh", "-c", "ps ax | grep -q '[s]leep 600' && exit 1; echo none-$((1+1))").ends(0)
}

// The serving process that is told to end while a shell is open brings all to its
// end in order, and the person's terminal is given back.
func TestServingIsToldToEnd(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	s := p.start(window, "sandbox", "shell", "one")
	s.write("echo up-$((1+1))\r")
	s.see("up-2", 1)
	fd, err := unix.PidfdOpen(p.serving(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, syscall.SIGTERM, nil, 0); err != nil {
		t.Fatal(err)
	}
	s.ends(caisson.ExitInterrupted)
	if !gone(t.Context(), fd, never) {
		t.Error("it lives")
	}
	boxes, err := p.ledger().Sandboxes(t.Context(), caisson.SandboxFilter{States: []caisson.SandboxState{caisson.SandboxStopped}})
	if err != nil || len(boxes) != 1 {
		t.Errorf("%d sandboxes are stopped, %v", len(boxes), err)
	}
}

// A session's terminal is where its holder has it, also for who has another
// directory for sockets.
func TestTerminalInAnotherRuntimeDir(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{"other/f": ""})
	p.start(window, "sandbox", "create", "one").ends(0)
	elsewhere := *p
	elsewhere.env = append(slices.Clip(p.env), "XDG_RUNTIME_DIR="+filepath.Join(p.home, "other"))
	s := elsewhere.start(window, "sandbox", "shell", "one")
	s.write("bind 'set enable-bracketed-paste off'; PS1='rea''dy> '\r")
	s.see("ready> ", 1)
	back := p.start(window, "sandbox", "attach", "one")
	back.write("echo back-$((1+1)); exit 7\r")
	back.ends(7)
	s.ends(7)
	own := elsewhere.start(window, "sandbox", "shell", "--no-workspace") // which it holds itself
	own.write("echo up-$((1+1))\r")
	own.see("up-2", 1)
	own.write(leaveKeys)
	own.ends(0)
	runs, err := p.ledger().Runs(t.Context(), caisson.RunFilter{Limit: 1})
	if err != nil || len(runs) != 1 {
		t.Fatal(err)
	}
	own = p.start(window, "sandbox", "attach", string(runs[0].ID))
	own.write("exit 3\r")
	own.ends(3)
}

// The process that serves is stopped: whoever asks it is told so in a while, with
// its number, and nothing of what was asked is done when it goes on.
func TestServingIsStopped(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "create", "one").ends(0)
	going := p.start(window, "sandbox", "exec", "-T", "one", "--", "sh", "-c", "echo up-$((1+1)); exec sleep 600.75")
	going.see("up-2", 1)
	pid := p.serving()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	named := fmt.Sprintf("process %d, which serves sandboxes, is stopped", pid)
	p.halt(pid)
	defer func() { _ = unix.PidfdSendSignal(fd, syscall.SIGCONT, nil, 0) }() // where the test fails
	var asked []*seat
	for _, args := range [][]string{
		{"exec", "-T", "one", "true"}, {"shell", "one"}, {"start", "one"}, {"start", "--recreate", "one"}, {"stop", "one"},
	} {
		asked = append(asked, p.start(window, append([]string{"sandbox"}, args...)...))
	}
	for i := range len(asked) + 1 {
		if i == len(asked) { // by itself: who comes while it waits is told of the hold
			asked = append(asked, p.start(window, "sandbox", "hold", "one", "--reason", "x", "--", "true"))
		}
		s := asked[i]
		s.see(named, 1)
		s.exits(75) // the stopped one has the terminals that it was lent
		s.see(fmt.Sprintf("kill -CONT %d", pid), 1)
	}
	// Who waits for a command that has begun can go.
	going.write("\x03")
	p.until(func(l caisson.Ledger) bool {
		runs, err := l.Runs(t.Context(), caisson.RunFilter{States: []caisson.RunState{caisson.RunRunning, caisson.RunCancelling}})
		return err == nil && slices.ContainsFunc(runs, func(r caisson.Run) bool { return r.Spec.Session == caisson.SessionStreams && r.CancelAsked != "" })
	})
	going.write("\x03")
	going.exits(caisson.ExitInterrupted)
	signal(syscall.SIGCONT)
	p.start(window, "sandbox", "exec", "-T", "one", "true").ends(0)
	if p.serving() != pid {
		t.Error("another process serves")
	}
	l := p.ledger()
	boxes, err := l.Sandboxes(t.Context(), caisson.SandboxFilter{})
	if err != nil || len(boxes) != 1 || boxes[0].Generation != 1 {
		t.Errorf("%+v, %v", boxes, err)
	}
	// What was told in the record is done when it goes on, and who told it hears that.
	p.halt(pid)
	s := p.start(window, "runs", "cancel", string(boxes[0].Run))
	s.ends(75)
	s.see(fmt.Sprintf("process %d, which drives run %s, is stopped", pid, boxes[0].Run), 1)
	signal(syscall.SIGCONT)
	p.until(func(l caisson.Ledger) bool {
		r, err := l.Run(t.Context(), boxes[0].Run)
		return err == nil && r.State == caisson.RunCancelled
	})
}

// halt stops a process, but not in the middle of a write to the ledger.
func (p *person) halt(pid int) {
	p.t.Helper()
	ledgertest.Halt(p.t, p.ledgerPath(), pid)
}

// until waits for what the ledger is to say.
func (p *person) until(says func(caisson.Ledger) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), never)
	defer cancel()
	l := p.ledger()
	for seen := int64(0); !says(l); {
		var err error
		if seen, err = l.Wait(ctx, "", seen); err != nil {
			p.t.Fatalf("the ledger does not say what is waited for: %v", err)
		}
	}
}

// The process that holds a terminal is stopped: who wants to see it, or to end it,
// is told so in a while. What it was told in the record it does when it goes on.
func TestTerminalOfTheStopped(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	p.start(window, "sandbox", "shell", "--no-workspace", "-d").ends(0)
	run, pid := p.run().ID, p.holder()
	p.until(func(l caisson.Ledger) bool { // till then whoever wants it to end has it ended by the record
		r, err := l.Run(t.Context(), run)
		return err == nil && r.State == caisson.RunRunning
	})
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p.halt(pid)
	defer func() { _ = unix.PidfdSendSignal(fd, syscall.SIGCONT, nil, 0) }() // where the test fails
	attach := p.start(window, "sandbox", "attach", string(run))
	stop := p.start(window, "sandbox", "stop", string(run))
	for _, s := range []*seat{attach, stop} {
		s.exits(75)
		s.see(fmt.Sprintf("process %d, which drives run %s, is stopped", pid, run), 1)
	}
	if err := unix.PidfdSendSignal(fd, syscall.SIGCONT, nil, 0); err != nil {
		t.Fatal(err)
	}
	if !gone(t.Context(), fd, never) {
		t.Error("it lives")
	}
}
