//go:build !race

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inUserNamespace is how a program is started in a user namespace of its own, in
// which it has the number 1000.
func inUserNamespace() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
	}
	if os.Geteuid() == 0 {
		attr.UidMappings[0].HostID, attr.GidMappings[0].HostID = 64321, 64322
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
	}
	return attr
}

// said runs a shell line so and returns what it wrote.
func said(t *testing.T, c *Cloner, line string, attr *syscall.SysProcAttr, files ...*os.File) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child, err := c.Start(Program{
		Path: "/bin/sh", Argv: []string{"sh", "-c", line}, Env: []string{"A=b"}, Dir: "/", Attr: attr,
		Files: append([]*os.File{nil, w, w}, files...),
	})
	w.Close()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("no user namespace here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := child.Wait(); err != nil || !state.Success() {
		t.Fatalf("%v, %v: %s", state, err, out)
	}
	return string(out)
}

// A program that may be late with its timers is, and one that is not told to be
// has what this process has.
func TestCloneTimerSlack(t *testing.T) {
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for slack, want := range map[time.Duration]int{0: own, 3 * time.Millisecond: 3_000_000} {
		var c Cloner
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child, err := c.Start(Program{
			Path: "/bin/cat", Argv: []string{"cat", "/proc/self/timerslack_ns"}, Dir: "/", Files: []*os.File{nil, w, w},
			Attr: &syscall.SysProcAttr{}, TimerSlack: slack,
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if state, waitErr := child.Wait(); err != nil || waitErr != nil || !state.Success() || strings.TrimSpace(string(got)) != fmt.Sprint(want) {
			t.Errorf("%v: %q, want %d (%v, %v)", slack, got, want, err, waitErr)
		}
	}
}

// So with its turns of the processor.
func TestCloneTurn(t *testing.T) {
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil || own.Runtime == 0 || own.Policy != unix.SCHED_NORMAL {
		t.Skipf("this kernel tells of no turns: %+v, %v", own, err)
	}
	for turn, want := range map[time.Duration]uint64{0: own.Runtime, 300 * time.Microsecond: 300_000} {
		var c Cloner
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child, err := c.Start(Program{Path: "/bin/cat", Argv: []string{"cat"}, Dir: "/", Files: []*os.File{r}, Attr: &syscall.SysProcAttr{}, Turn: turn})
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		got, err := unix.SchedGetAttr(child.Pid, 0)
		if err != nil || got.Runtime != want || got.Nice != own.Nice || got.Policy != own.Policy {
			t.Errorf("%v: %+v, want %d (%v)", turn, got, want, err)
		}
		w.Close()
		if _, err := child.Wait(); err != nil {
			t.Error(err)
		}
	}
}

const shows = `id -u; id -g; id -G; echo $$; pwd; /usr/bin/env; /bin/grep -E 'Cap(Inh|Prm|Amb)|SigBlk|SigIgn|SigCgt|NoNewPrivs' /proc/self/status; ps -o sid= -p $$ 2>/dev/null; ls -l /proc/self/fd | sed 's/.* \([0-9]* -> \)/\1/' | grep -v /proc/`

// A program that is started so finds all as one that os.StartProcess starts.
func TestCloneIsAsOSStartProcess(t *testing.T) {
	var c Cloner
	file, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ours := said(t, &c, shows, inUserNamespace(), file, file)
	child, err := os.StartProcess("/bin/sh", []string{"sh", "-c", shows}, &os.ProcAttr{
		Dir: "/", Env: []string{"A=b"}, Files: []*os.File{nil, w, w, file, file}, Sys: inUserNamespace(),
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = child.Wait()
	// The pipes are not the same, and what whoever runs the tests left open does
	// not reach ours.
	clean := func(s string) string {
		var out []string
		for line := range strings.Lines(s) {
			before, _, _ := strings.Cut(line, "pipe:")
			if n := atoi(strings.SplitN(line, " -> ", 2)[0]); n <= 4 || !strings.Contains(line, " -> ") {
				out = append(out, strings.TrimSpace(before))
			}
		}
		return strings.Join(out, "\n")
	}
	// Ours ignores no signal, whatever the one that starts it does.
	if !strings.Contains(ours, "SigIgn:\t0000000000000000\n") {
		t.Errorf("it ignores signals:\n%s", ours)
	}
	ignored := regexp.MustCompile("(?m)^SigIgn:.*$")
	ours, theirs = ignored.ReplaceAllString(ours, ""), ignored.ReplaceAll(theirs, nil)
	if got, want := clean(ours), clean(string(theirs)); got != want || !strings.HasPrefix(got, "1000\n1000\n") {
		t.Errorf("ours:\n%s\nos:\n%s", got, want)
	}
}

// Descriptors that somebody opened without close-on-exec do not reach it, and
// low numbers of ours do not get in the way of its own.
func TestCloneLeaksNoDescriptor(t *testing.T) {
	var c Cloner
	var open []int
	for range 20 {
		fd, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, fd)
	}
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	var files []*os.File
	for i := range 30 {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "%d ", i)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	line := "for i in 3 4 5 6 7 8 9; do eval cat '<&'$i; done; cat /dev/fd/32; ls /proc/self/fd | grep -c ."
	got := said(t, &c, line, &syscall.SysProcAttr{}, files...)
	if want := "0 1 2 3 4 5 6 29 33\n"; got != want { // 1, 2, 3 to 32, and the directory
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCloneSaysWhyNot(t *testing.T) {
	var c Cloner
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		Program
		want error
	}{
		{Program{Path: "/nowhere", Dir: "/"}, unix.ENOENT},
		{Program{Path: text, Dir: "/"}, unix.ENOEXEC},
		{Program{Path: "/bin/true", Dir: "/nowhere"}, unix.ENOENT},
		{Program{Path: "/bin/true", Dir: "/", Argv: []string{"a\x00b"}}, unix.EINVAL},
		{Program{Path: "/bin/true", Dir: "/", Attr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 1, HostID: 1, Size: 0}}}}, unix.EINVAL},
		{Program{Path: "/bin/true", Dir: "/", Attr: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: 1 << 20}}, unix.EBADF},
	} {
		if p.Argv == nil {
			p.Argv = []string{"x"}
		}
		if p.Attr == nil {
			p.Attr = &syscall.SysProcAttr{}
		}
		if _, err := c.Start(p.Program); !errors.Is(err, p.want) {
			t.Errorf("%+v: %v, want %v", p.Program, err, p.want)
		}
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %v", err)
	}
}

// Many at once, while this program collects garbage: children share its memory.
func TestCloneManyAtOnce(t *testing.T) {
	var c Cloner
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 8 {
				if got := said(t, &c, "id -u", inUserNamespace()); got != "1000\n" {
					t.Errorf("%q", got)
				}
				_ = bytes.Repeat([]byte{1}, 1<<20)
				runtime.GC()
			}
		})
	}
	all.Wait()
	if after, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); after != before {
		t.Errorf("dumpable was %d and is %d", before, after)
	}
}

// However large this program is, a program in a user namespace takes as long.
func BenchmarkClone(b *testing.B) {
	var c Cloner
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	for _, size := range []int{0, 300 << 20} {
		ballast := bytes.Repeat([]byte{1}, size)
		b.Run(fmt.Sprintf("%dMiB/ours", size>>20), func(b *testing.B) {
			for b.Loop() {
				p, err := c.Start(Program{Path: "/bin/true", Argv: []string{"true"}, Dir: "/", Attr: attr})
				if err != nil {
					b.Fatal(err)
				}
				_, _ = p.Wait()
			}
		})
		b.Run(fmt.Sprintf("%dMiB/os", size>>20), func(b *testing.B) {
			for b.Loop() {
				p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: attr})
				if err != nil {
					b.Fatal(err)
				}
				_, _ = p.Wait()
			}
		})
		runtime.KeepAlive(ballast)
	}
}
