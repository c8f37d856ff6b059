package cli_test

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
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
	if !gone(t.Context(), fd, endBound) {
		t.Error("it lives")
	}
	boxes, err := p.ledger().Sandboxes(t.Context(), caisson.SandboxFilter{States: []caisson.SandboxState{caisson.SandboxStopped}})
	if err != nil || len(boxes) != 1 {
		t.Errorf("%d sandboxes are stopped, %v", len(boxes), err)
	}
}
