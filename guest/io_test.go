package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
	"github.com/caisson-run/caisson/internal/proctree"
)

// A command reads stdin and none was given. Origin: microsandbox 1549.
func TestCase_S03(t *testing.T) {
	b := open(t)
	exit, out := b.sh(t, "cat; readlink /proc/self/fd/0")
	if exit.Code != 0 || out != "/dev/null\n" {
		t.Errorf("%+v, %q", exit, out)
	}
}

func TestStdinArrivesWhole(t *testing.T) {
	b := open(t)
	want := bytes.Repeat([]byte("0123456789\n"), 400_000) // more than one window
	out := &output{}
	exit, _ := b.run(t, caisson.Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(want), Stdout: out})
	if exit.Code != 0 || out.String() != string(want) {
		t.Errorf("%+v, %d bytes", exit, len(out.buf))
	}
	// One that does not read it ends all the same.
	if exit, _ := b.run(t, caisson.Command{Argv: []string{"true"}, Stdin: bytes.NewReader(want)}); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	// An end of input that comes while another command is held is seen.
	held, err := b.Hold(context.Background(), caisson.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if exit, got := b.run(t, caisson.Command{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}); exit.Code != 0 || got != "x" {
		t.Errorf("%+v, %q", exit, got)
	}
	held.Drop()
}

// Output of 3 GiB with bytes that are not UTF-8 and one line of 500 MiB.
// Origin: codex 35421, 6415. The sizes here are an eighth: time is proportional.
func TestCase_S16(t *testing.T) {
	if testing.Short() {
		t.Skip("carries 384 MiB")
	}
	b := open(t)
	spill := filepath.Join(t.TempDir(), "spill")
	w := capture.New(capture.Options{SpillPath: spill, SpillCap: 1 << 20})
	p := b.start(t, caisson.Command{
		Line: `head -c 67108864 /dev/zero | tr '\0' x; echo; head -c 335544320 /dev/zero | tr '\0' '\377'; printf 'the end'`, Stdout: w,
	})
	before := rss(t)
	exit, err := p.Wait(context.Background())
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	out := w.Finish()
	if out.Total != 67108864+1+335544320+7 || !out.Invalid || len(out.Text) > capture.DefaultCap || !strings.HasSuffix(out.Text, "\ufffdthe end") {
		t.Errorf("%d bytes, invalid %v, %d shown", out.Total, out.Invalid, len(out.Text))
	}
	if grown := rss(t) - before; grown > 16<<10 {
		t.Errorf("%d KiB more memory", grown)
	}
}

// Who takes the output is so far behind that the end of it is still in the pipe
// when the command has ended and was reaped: all of it comes.
func TestOutputIsTakenLate(t *testing.T) {
	b := open(t)
	const size = 1<<20 + 32<<10 // what may be under way, and less than any pipe holds
	slow := &late{output: &output{}, until: func() bool {
		all, err := proctree.All()
		return err == nil && exists(b.dir+"/ending") && !slices.ContainsFunc(proctree.Below(all, b.pid, nil), b.started)
	}}
	exit, _ := b.run(t, caisson.Command{Line: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf 'the end'; touch ending", size), Stdout: slow})
	if out := slow.String(); exit.Code != 0 || len(out) != size+7 || !strings.HasSuffix(out, "xthe end") {
		t.Errorf("%+v, %d bytes, want %d", exit, len(out), size+7)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// late takes nothing until something is so, or too late.
type late struct {
	*output
	until func() bool
}

func (l *late) Write(p []byte) (int, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(prompt); !l.until(); {
		select {
		case <-tick.C:
		case <-end:
			return 0, errors.New("it never was")
		}
	}
	return l.output.Write(p)
}

// rss returns the resident memory of this process in KiB.
func rss(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize() >> 10
}

// Arguments with newlines, bytes that are not UTF-8, and one of 100 KiB.
// Origin: OpenShell 1965, nono 1521.
func TestCase_S19(t *testing.T) {
	b := open(t)
	args := []string{"a\nb", "", "\xff\xfe\x80", "é", strings.Repeat("y", 100<<10), "--", "$(echo no)", "\x01\x7f"}
	exit, out := b.run(t, caisson.Command{Argv: append([]string{"printf", `%s\0`}, args...), Env: []string{"ODD=\xff\n"}})
	if want := strings.Join(args, "\x00") + "\x00"; exit.Code != 0 || out != want {
		t.Errorf("%+v, %d bytes, want %d", exit, len(out), len(want))
	}
	exit, out = b.run(t, caisson.Command{Line: `printf %s "$ODD"`, Env: []string{"ODD=\xff\n"}})
	if exit.Code != 0 || out != "\xff\n" {
		t.Errorf("%+v, %q", exit, out)
	}
	if _, err := b.Hold(context.Background(), caisson.Command{Argv: []string{"echo", "a\x00b"}}); caisson.CodeOf(err) != caisson.CodeCallInvalid {
		t.Errorf("NUL: %v", err)
	}
}

func TestEnvironmentAndLimitsAreAsGiven(t *testing.T) {
	b := open(t)
	_, out := b.run(t, caisson.Command{Argv: []string{"env"}, Env: []string{"LANG=xx", "NEW=1"}})
	want := fmt.Sprintf("PATH=/usr/local/bin:/usr/bin:/bin\nHOME=%s\nLANG=xx\nNEW=1\n", b.dir)
	if out != want {
		t.Errorf("environment %q, want %q", out, want)
	}
	if _, out := b.sh(t, "ulimit -c; ulimit -n; ulimit -f; ls /proc/self/fd | wc -l"); out != "0\n4096\n16777216\n4\n" {
		t.Errorf("limits and descriptors: %q", out)
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	b := open(t)
	outside := t.TempDir()
	for name, of := range map[string]struct {
		cmd  caisson.Command
		want caisson.Code
	}{
		"no program":     {caisson.Command{Argv: []string{"no-such-program"}}, caisson.CodeNotFound},
		"no path":        {caisson.Command{Argv: []string{"./nothing"}}, caisson.CodeNotFound},
		"a directory":    {caisson.Command{Argv: []string{"/usr"}}, caisson.CodePathInvalid},
		"dir outside":    {caisson.Command{Line: "true", Dir: outside}, caisson.CodePathOutside},
		"dir above":      {caisson.Command{Line: "true", Dir: ".."}, caisson.CodePathOutside},
		"dir not there":  {caisson.Command{Line: "true", Dir: "nothing"}, caisson.CodeNotFound},
		"both":           {caisson.Command{Line: "true", Argv: []string{"true"}}, caisson.CodeCallInvalid},
		"neither":        {caisson.Command{}, caisson.CodeCallInvalid},
		"link outside":   {caisson.Command{Line: "true", Dir: "link"}, caisson.CodePathOutside},
		"not executable": {caisson.Command{Argv: []string{"./plain"}}, caisson.CodePathInvalid},
	} {
		_ = os.Symlink(outside, filepath.Join(b.dir, "link"))
		_ = os.WriteFile(filepath.Join(b.dir, "plain"), []byte("x"), 0o600)
		if _, err := b.Hold(context.Background(), of.cmd); caisson.CodeOf(err) != of.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What only the kernel can tell is told by the exit.
	_ = os.WriteFile(filepath.Join(b.dir, "garbage"), []byte("\x7fELF nonsense"), 0o700) //nolint:gosec // a program
	if exit, _ := b.run(t, caisson.Command{Argv: []string{"./garbage"}}); exit.Code != 126 {
		t.Errorf("%+v", exit)
	}
}

func TestTerminal(t *testing.T) {
	b := open(t)
	out := &output{}
	in, feed := io.Pipe()
	p := b.start(t, caisson.Command{
		Line: "tty -s && stty size; read x; stty size; echo got $x", PTY: &caisson.Winsize{Rows: 12, Cols: 34}, Stdin: in, Stdout: out,
	})
	for !strings.Contains(out.String(), "12 34") {
		select {
		case <-b.Done():
			t.Fatal("the guest is gone")
		default:
		}
	}
	if err := p.Resize(caisson.Winsize{Rows: 50, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	_, _ = feed.Write([]byte("word\n"))
	exit, err := p.Wait(context.Background())
	_ = feed.Close()
	if err != nil || exit.Code != 0 || !strings.Contains(out.String(), "50 60") || !strings.Contains(out.String(), "got word") {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
	// ^C reaches the foreground group of its own terminal.
	in, feed = io.Pipe()
	defer feed.Close()
	out = &output{}
	p = b.start(t, caisson.Command{Line: "echo up; sleep 1000", PTY: &caisson.Winsize{Rows: 1, Cols: 1}, Stdin: in, Stdout: out})
	for !strings.Contains(out.String(), "up") {
		continue
	}
	_, _ = feed.Write([]byte{3})
	if exit, err := p.Wait(context.Background()); err != nil || exit.Code != 130 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// A shell that a person types at ignores SIGTERM, and yet need not be killed:
// its terminal goes, which it and its jobs understand.
func TestTerminalHangsUp(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	b := open(t)
	out := &output{}
	in, feed := io.Pipe()
	defer feed.Close()
	p := b.start(t, caisson.Command{
		Argv: []string{bash, "--norc", "--noprofile", "-i"}, PTY: &caisson.Winsize{Rows: 12, Cols: 34}, Stdin: in, Stdout: out, Grace: time.Minute,
	})
	_, _ = feed.Write([]byte("sleep 1000 & echo up-$((1+1))\r"))
	for !strings.Contains(out.String(), "up-2") {
		select {
		case <-b.Done():
			t.Fatal("the guest is gone")
		default:
		}
	}
	p.Stop(caisson.CauseUser)
	exit, err := p.Wait(context.Background())
	if err != nil || exit.Signal != int(unix.SIGHUP) {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	b := open(t)
	r, w := io.Pipe()
	p := b.start(t, caisson.Command{Line: `trap "echo caught; exit 5" USR1; echo up; while :; do sleep 1000 & wait $!; done`, Stdout: w})
	buf := make([]byte, 3)
	if _, err := io.ReadFull(r, buf); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(10); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	exit, err := p.Wait(context.Background())
	_ = w.Close()
	if err != nil || exit.Code != 5 {
		t.Errorf("%+v, %v", exit, err)
	}
	if err := p.Signal(10); caisson.CodeOf(err) != caisson.CodeStateInvalid {
		t.Errorf("after its end: %v", err)
	}
}

func TestUsageIsTold(t *testing.T) {
	b := open(t)
	exit, _ := b.sh(t, `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`)
	if exit.CPU <= 0 || exit.Wall < exit.CPU/4 || exit.MaxRSS < 100<<10 {
		t.Errorf("%+v", exit)
	}
}
