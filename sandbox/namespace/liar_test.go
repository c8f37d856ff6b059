//go:build linux

package namespace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/box"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/namespace"
)

// skipCgo skips where the test program cannot be a guest: the runtime does not
// change the rights of all threads of a program with C in it.
func skipCgo(t *testing.T) {
	t.Helper()
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno == unix.ENOTSUP {
		t.Skip("the test program has C in it")
	}
}

// The test program is a guest program too: one that lies. What it lies about
// stands at its end, as a guest has no environment.
const lieMark = "\nCAISSON-TEST-LIE:"

// lyingEngine returns an engine whose guests tell a lie.
func lyingEngine(lie string) *namespace.Engine {
	return namespace.New(namespace.Options{Instance: "itest", Guest: func() ([]byte, error) {
		raw, err := os.ReadFile("/proc/self/exe")
		return append(raw, lieMark+lie...), err
	}})
}

// beLiar is the whole of a hostile guest. It returns only when it is told to.
func beLiar() int {
	runtime.GOMAXPROCS(1)
	raw, err := os.ReadFile("/proc/self/exe")
	at := bytes.LastIndex(raw, []byte(lieMark))
	if err != nil || at < 0 {
		return 1
	}
	lie := string(raw[at+len(lieMark):])
	raw = nil
	unix.CloseOnExec(wire.StreamFD)
	_ = unix.SetNonblock(wire.StreamFD, true)
	stream := os.NewFile(wire.StreamFD, "stream")
	control := os.NewFile(plan.ControlFD, "control")
	if strings.HasPrefix(lie, "report-") {
		_, _ = io.Copy(io.Discard, control) // the plan
	}
	switch lie {
	case "report-silence":
		stay()
	case "report-flood":
		for err == nil {
			_, err = control.Write(make([]byte, 64<<10))
		}
		return 1
	case "report-garbage":
		_, _ = control.WriteString("\x00\x00\x00\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f") // four billion tests
		return 1
	case "report-broken":
		_, _ = control.Write(pack.Bytes(&plan.Report{Tests: []plan.Test{{Control: "files", Tried: "x", Broke: "yes"}}, Failed: "self-test"}))
		return 1
	}
	if _, err := box.SetUp(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return lieInStream(lie, stream)
}

// stay does nothing, and goes on.
func stay() {
	for {
		_ = unix.Pause() // a signal ends it
	}
}

// lieInStream lies to a host that was told the truth about the box.
func lieInStream(lie string, stream io.ReadWriter) int {
	in, out := wire.NewReader(stream, wire.MaxControl), wire.NewWriter(stream, nil)
	var hello wire.Hello
	h, err := in.Next()
	if err == nil {
		var body []byte
		if body, err = in.Control(h); err == nil {
			err = wire.Decode(body, &hello)
		}
	}
	if err != nil || lie == "hello-silence" {
		stay()
	}
	if lie == "hello-nonce" {
		hello.Nonce = "guessed"
	}
	_ = out.Control(wire.TypeHello, 0, &wire.Hello{Version: wire.Version, Nonce: hello.Nonce})
	for {
		h, err := in.Next()
		if err != nil {
			stay() // the host is gone
		}
		_ = in.Skip(h.Length)
		if h.Type == wire.TypeHold {
			lieAboutCommand(lie, h.Stream, out, stream)
		}
	}
}

func lieAboutCommand(lie string, id uint32, out *wire.Writer, stream io.Writer) {
	held := wire.Held{Holder: 1, PID: 1}
	if child, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "sleep 1000 & wait"}, &os.ProcAttr{Env: []string{}}); err == nil {
		held = wire.Held{Holder: child.Pid, PID: child.Pid + 1}
		for range 1000 { // until it has a child
			if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", child.Pid)); len(raw) > 0 {
				held.PID, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
				break
			}
			runtime.Gosched()
		}
	}
	flood := func(frame []byte) {
		for err := error(nil); err == nil; {
			_, err = stream.Write(frame)
		}
	}
	header := func(t wire.Type, id, length uint32) []byte {
		return []byte{byte(t), byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
	}
	switch lie {
	case "held-silence":
	case "held-itself":
		_ = out.Control(wire.TypeHeld, id, &wire.Held{Holder: 1, PID: 1})
	case "held-host":
		_ = out.Control(wire.TypeHeld, id, &wire.Held{Holder: held.Holder, PID: os.Getppid()})
	case "held-negative":
		_ = out.Control(wire.TypeHeld, id, &wire.Held{Holder: -1, PID: -1 << 62})
	case "held-other":
		_ = out.Control(wire.TypeHeld, id+1, &held)
	default:
		_ = out.Control(wire.TypeHeld, id, &held)
	}
	switch lie {
	case "status":
		_ = out.Control(wire.TypeEnded, id, &wire.Ended{Code: 1 << 40, Closed: true})
	case "usage":
		_ = out.Control(wire.TypeEnded, id, &wire.Ended{CPU: -1 << 62, MaxRSS: -1, Left: -1, Closed: true})
	case "flood":
		flood(append(header(wire.TypeOut, id, wire.MaxData), make([]byte, wire.MaxData)...))
	case "flood-credit":
		flood(append(header(wire.TypeCredit, id, 5), byte(wire.TypeIn), 0x7f, 0xff, 0xff, 0xff))
	case "size":
		flood(header(wire.TypeOut, id, 0xffffffff))
	case "size-control":
		flood(header(wire.TypeEnded, id, 0x7fffffff))
	case "half":
		_, _ = stream.Write(header(wire.TypeEnded, id, 100)) // and never the rest
	}
}

// A guest that is wholly the enemy's: whatever it says, or does not say, the
// host ends the sandbox in bounded time and memory and says what it was.
func TestLyingGuest(t *testing.T) {
	skipCgo(t)
	protocol := []caisson.Code{caisson.CodeGuestProtocol, caisson.CodeSandboxLost}
	setUp := []caisson.Code{caisson.CodeIsolationUnavailable, caisson.CodeSandboxLost, caisson.CodeGuestProtocol}
	for _, c := range []struct {
		lie  string
		want []caisson.Code
	}{
		{"report-silence", setUp},
		{"report-flood", setUp},
		{"report-garbage", setUp},
		{"report-broken", []caisson.Code{caisson.CodeIsolationUnavailable}},
		{"hello-silence", protocol},
		{"hello-nonce", protocol},
		{"held-silence", protocol},
		{"held-itself", protocol},
		{"held-host", protocol},
		{"held-negative", protocol},
		{"held-other", protocol},
		{"status", protocol},
		{"usage", protocol},
		{"flood", protocol},
		{"flood-credit", protocol},
		{"size", protocol},
		{"size-control", protocol},
		{"half", protocol},
		{"stall", protocol},
	} {
		t.Run(c.lie, func(t *testing.T) {
			t.Parallel()
			e := lyingEngine(c.lie)
			defer e.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // its own bounds are seconds
			defer cancel()
			began := time.Now()
			record, err := believe(ctx, e)
			if !slices.Contains(c.want, caisson.CodeOf(err)) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if ctx.Err() != nil {
				t.Errorf("the host did not end it by itself")
			}
			if _, left := remnantsOf(t, e, record); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
		})
	}
}

// believe uses a sandbox as a host would, and returns why it ended.
func believe(ctx context.Context, e caisson.Engine) (caisson.SandboxRecord, error) {
	record := caisson.SandboxRecord{ID: caisson.NewSandboxID()}
	sb, err := e.Open(ctx, caisson.SandboxSpec{ID: record.ID, Require: []caisson.Control{}})
	if err != nil {
		return record, err
	}
	record = sb.Record()
	p, err := sb.Hold(ctx, caisson.Command{Line: "true", Stdout: io.Discard, Grace: time.Millisecond})
	if err == nil {
		err = p.Release()
	}
	if err == nil {
		time.AfterFunc(500*time.Millisecond, func() { p.Stop(caisson.CauseUser) })
		_, err = p.Wait(ctx)
	}
	select {
	case <-sb.Done():
	case <-ctx.Done():
		err = errors.Join(err, errors.New("the sandbox goes on"))
	}
	return record, errors.Join(err, sb.Close())
}

// liarEnv makes the test program a host whose guest stays when it is gone.
const liarEnv = "CAISSON_TEST_LIAR_HOST"

func liarHost() int {
	sb, err := lyingEngine("stall").Open(context.Background(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(sb.Record().Guest.PID)
	select {}
}

// A guest that does not end with its host is residue as soon as that is gone,
// and no sooner; the next command ends it.
func TestGuestThatStays(t *testing.T) {
	skipCgo(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), liarEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(out, &pid); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the host has no guest: %v, %v", err, cmd.Wait())
	}
	guest, err := process.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t).(*namespace.Engine)
	record := caisson.SandboxRecord{ID: "none", Guest: &guest}
	if _, all := remnantsOf(t, e, record); len(all) != 1 || !all[0].Live {
		t.Errorf("with its host: %+v", all)
	}
	if err := e.Tidy(t.Context()); err != nil || process.Alive(guest) != caisson.Alive {
		t.Errorf("it was ended with its host alive (%v)", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	// The next command may be one of another test beside this one.
	if _, all := remnantsOf(t, e, record); process.Alive(guest) != caisson.Dead && (len(all) != 1 || all[0].Live) {
		t.Errorf("without its host: %+v", all)
	}
	if err := e.Tidy(t.Context()); err != nil || process.Alive(guest) != caisson.Dead {
		t.Errorf("it goes on without its host (%v)", err)
	}
}

// What a guest says without end, or announces, takes no memory of the host,
// also where nobody takes the output.
func TestLyingGuestTakesNoMemory(t *testing.T) {
	skipCgo(t)
	for _, lie := range []string{"flood", "flood-credit", "size", "size-control"} {
		e := lyingEngine(lie)
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		hold, feed := io.Pipe() // whose other end nobody reads
		p, err := sb.Hold(t.Context(), caisson.Command{Line: "true", Stdout: feed})
		if err == nil {
			err = p.Release()
		}
		if err == nil {
			p.Stop(caisson.CauseUser)
			_, err = p.Wait(t.Context())
		}
		<-sb.Done()
		runtime.ReadMemStats(&after)
		hold.Close()
		if code := caisson.CodeOf(err); code != caisson.CodeGuestProtocol && code != caisson.CodeSandboxLost {
			t.Errorf("%s: %v", lie, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s: %d bytes of the host were taken", lie, took)
		}
		if err := errors.Join(sb.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	}
}
