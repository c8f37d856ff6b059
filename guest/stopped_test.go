package guest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
)

// A host's process that was stopped finds its time over and the guest's answer
// unread: the guest has kept to its time, and is not cut off. One that does not
// answer is.
func TestStoppedWhileHolding(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		want  caisson.Code
	}{
		{"read late", 5*time.Second + 100*time.Millisecond, ""},
		{"not answered", 10 * time.Second, caisson.CodeGuestProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, l := connect(t)
				go func() {
					for h, err := l.in.Next(); err == nil; h, err = l.in.Next() {
						_ = l.in.Skip(h.Length)
						if h.Type == wire.TypeHold {
							<-time.After(c.after)
							_ = l.out.Control(wire.TypeHeld, h.Stream, &wire.Held{Holder: 2, PID: 3})
						}
					}
				}()
				p, err := client.Hold(t.Context(), caisson.Command{Line: "x"})
				if caisson.CodeOf(err) != c.want || caisson.CodeOf(client.Err()) != c.want {
					t.Errorf("it is held: %v; the guest: %v", err, client.Err())
				}
				if err == nil {
					p.Drop()
				}
				_ = client.Close() // always nil
				_ = l.conn.Close()
			})
		})
	}
}

// So when it greets the guest.
func TestStoppedWhileGreeting(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		want  caisson.Code
	}{
		{"read late", 5*time.Second + 100*time.Millisecond, ""},
		{"not answered", 10 * time.Second, caisson.CodeGuestProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, l, nonce := newLiar(t)
				done := make(chan struct{})
				go func() {
					defer close(done)
					said := nonce()
					<-time.After(c.after)
					_ = l.out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: said}) // it may be cut off
				}()
				began := time.Now()
				client, err := guest.Connect(t.Context(), host, guest.Options{})
				if caisson.CodeOf(err) != c.want || time.Since(began) > 7*time.Second {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				if err == nil {
					_ = client.Close() // always nil
				}
				_ = l.conn.Close()
				<-done
			})
		})
	}
}

// A guest on a busy machine ends a command seconds after its grace: all else in
// the sandbox goes on. One that does not end it is cut off.
func TestEndsACommandLate(t *testing.T) {
	const grace = 100 * time.Millisecond
	for _, c := range []struct {
		name  string
		after time.Duration
		want  caisson.Code
	}{
		{"late", 3 * time.Second, ""},
		{"not in time", 4 * time.Second, caisson.CodeGuestProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, l := connect(t)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for h, err := l.in.Next(); err == nil; h, err = l.in.Next() {
						_ = l.in.Skip(h.Length)
						switch h.Type {
						case wire.TypeHold:
							_ = l.out.Control(wire.TypeHeld, h.Stream, &wire.Held{Holder: 2, PID: 3})
						case wire.TypeStop:
							<-time.After(grace + c.after)
							_ = l.out.Control(wire.TypeEnded, h.Stream, &wire.Ended{Code: 137, Signal: 9, Closed: true})
						default:
						}
					}
				}()
				p, err := client.Hold(t.Context(), caisson.Command{Line: "x", Grace: grace})
				if err == nil {
					err = p.Release()
				}
				if err != nil {
					t.Fatal(err)
				}
				p.Stop(caisson.CauseUser)
				exit, err := p.Wait(t.Context())
				if caisson.CodeOf(err) != c.want || exit.Cause != caisson.CauseUser || caisson.CodeOf(client.Err()) != c.want {
					t.Errorf("%+v, %v; the guest: %v", exit, err, client.Err())
				}
				_ = client.Close() // always nil
				_ = l.conn.Close()
				<-done
			})
		})
	}
}

// A guest that was stopped as a whole from outside is not cut off because it does not
// hold a process: nothing has begun, and what runs goes on with it. Where it should
// end one it is, and what it is ended for is not that it broke the protocol.
func TestStoppedFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := false
		client, l := connectWith(t, guest.Options{Stopped: func() error {
			if !paused {
				return nil
			}
			return caisson.Errorf(caisson.CodeSandboxPaused, "somebody paused it")
		}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for h, err := l.in.Next(); err == nil; h, err = l.in.Next() {
				_ = l.in.Skip(h.Length)
				if h.Type == wire.TypeHold && h.Stream == 1 {
					_ = l.out.Control(wire.TypeHeld, h.Stream, &wire.Held{Holder: 2, PID: 3})
				}
			}
		}()
		p, err := client.Hold(t.Context(), caisson.Command{Line: "x", Grace: time.Second})
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			t.Fatal(err)
		}
		paused = true
		if _, err := client.Hold(t.Context(), caisson.Command{Line: "y"}); caisson.CodeOf(err) != caisson.CodeSandboxPaused || client.Err() != nil {
			t.Errorf("it is held: %v; the guest: %v", err, client.Err())
		}
		p.Stop(caisson.CauseUser)
		_, err = p.Wait(t.Context())
		if caisson.CodeOf(err) != caisson.CodeSandboxLost || !strings.Contains(err.Error(), "somebody paused it") || caisson.CodeOf(client.Err()) != caisson.CodeSandboxLost {
			t.Errorf("it has ended: %v; the guest: %v", err, client.Err())
		}
		_ = client.Close() // always nil
		_ = l.conn.Close()
		<-done
	})
}

// standsStill makes the test program one that stops a command, and says how that ended.
const standsStill = "CAISSON_TEST_STANDS_STILL"

// A machine that stands still while a command is ended is no guest that does not end
// it: when all goes on, so does the end, and the sandbox.
func TestStandsStillWhileItEnds(t *testing.T) {
	if os.Getenv(standsStill) != "" {
		b := open(t)
		r, w := io.Pipe()
		p := b.start(t, caisson.Command{Line: `trap "" TERM; echo up; while :; do sleep 1000; done`, Stdout: w, Grace: time.Second})
		if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		p.Stop(caisson.CauseUser)
		fmt.Println("ending")
		exit, err := p.Wait(t.Context())
		fmt.Println("ended", exit.Cause, exit.Signal, err)
		return
	}
	t.Parallel()
	open(t) // where no guest can be started, that says so
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStandsStillWhileItEnds$")
	cmd.Env = append(os.Environ(), standsStill+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its guest
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if said, err := in.ReadString('\n'); said != "ending\n" {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // killed
		t.Fatalf("it says %q, %v", said, err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(5 * time.Second) // more than its host would wait for a guest that does nothing
		}
	}
	if said, err := in.ReadString('\n'); said != "ended user 9 <nil>\n" {
		t.Errorf("it says %q, %v", said, err)
	}
	_, _ = io.Copy(io.Discard, in)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
