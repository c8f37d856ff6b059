package guest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/inside"
	"github.com/caisson-run/caisson/process"
)

// The test program is the guest too: in its own user, pid and mount namespaces,
// with a /proc of its own. With guestProgram set it becomes that program.
const (
	guestMode    = "CAISSON_TEST_GUEST"
	guestProgram = "CAISSON_TEST_GUEST_PROGRAM"
)

func TestMain(m *testing.M) {
	if os.Getenv(guestMode) == "" {
		os.Exit(m.Run())
	}
	if err := beGuest(); err != nil {
		fmt.Fprintln(os.Stderr, "test guest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func beGuest() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if program := os.Getenv(guestProgram); program != "" {
		return unix.Exec(program, []string{program}, nil)
	}
	os.Clearenv()
	unix.CloseOnExec(guest.StreamFD)
	if err := unix.SetNonblock(guest.StreamFD, true); err != nil {
		return err
	}
	return inside.Serve(inside.Options{Stream: os.NewFile(guest.StreamFD, "stream")})
}

// box is a running guest.
type box struct {
	*guest.Client
	dir string
	pid int
	cmd *exec.Cmd
}

// guestPair starts a guest, after prepare has had its end of the stream, and
// returns the host's.
func guestPair(tb testing.TB, program string, prepare ...func(stream int)) (net.Conn, *exec.Cmd) {
	tb.Helper()
	if program == "" && raceEnabled {
		program = builtGuest(tb)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range prepare {
		f(fds[1])
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
	conn, err := net.FileConn(ours)
	if err != nil {
		tb.Fatal(err)
	}
	_ = ours.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{guestMode + "=1", guestProgram + "=" + program}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		tb.Skipf("no user namespaces here: %v", err)
	}
	_ = theirs.Close()
	return conn, cmd
}

// open starts a guest on a new workspace.
func open(tb testing.TB, change ...func(*guest.Options)) *box {
	tb.Helper()
	return openProgram(tb, "", change...)
}

func openProgram(tb testing.TB, program string, change ...func(*guest.Options)) *box {
	tb.Helper()
	conn, cmd := guestPair(tb, program)
	return greet(tb, conn, cmd, change...)
}

// greet greets a guest.
func greet(tb testing.TB, conn net.Conn, cmd *exec.Cmd, change ...func(*guest.Options)) *box {
	tb.Helper()
	dir := tb.TempDir()
	root, err := process.Of(cmd.Process.Pid)
	if err != nil {
		tb.Fatal(err)
	}
	opts := guest.Options{
		Workspace: dir, Root: root, Identify: process.Within(root),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8"},
	}
	for _, f := range change {
		f(&opts)
	}
	client, err := guest.Connect(context.Background(), conn, opts)
	b := &box{Client: client, dir: dir, pid: cmd.Process.Pid, cmd: cmd}
	tb.Cleanup(func() {
		if client != nil {
			_ = client.Close()
		}
		_ = cmd.Wait()
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// output is a writer for tests.
type output struct {
	mu  sync.Mutex
	buf []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf)
}

// start holds and releases a command.
func (b *box) start(tb testing.TB, cmd caisson.Command) caisson.Process {
	tb.Helper()
	p, err := b.Hold(context.Background(), cmd)
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.Release(); err != nil {
		tb.Fatal(err)
	}
	return p
}

// run runs a command to its end and returns its output.
func (b *box) run(tb testing.TB, cmd caisson.Command) (caisson.Exit, string) {
	tb.Helper()
	out := &output{}
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = out, out
	}
	exit, err := b.start(tb, cmd).Wait(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return exit, out.String()
}

// sh runs a shell line to its end and returns its output.
func (b *box) sh(tb testing.TB, line string) (caisson.Exit, string) {
	tb.Helper()
	return b.run(tb, caisson.Command{Line: line})
}

// builtGuest builds the real guest program.
func builtGuest(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "caisson-guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "../cmd/caisson-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			tb.Fatalf("build the guest: %s", out)
		}
		tb.Skipf("no go program here: %v", err)
	}
	return path
}
