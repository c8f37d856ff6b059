//go:build linux

package namespace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// hostEnv makes the test program a host of a kind, which probes and says what
// it found.
const hostEnv = "CAISSON_TEST_HOST"

type found struct {
	Isolation caisson.Isolation
	Code      caisson.Code
	Hint      string
}

func probeHost() int {
	if err := becomeHost(os.Getenv(hostEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e := newEngine()
	var f found
	var err error
	f.Isolation, err = e.Probe(context.Background())
	f.Code = caisson.CodeOf(err)
	var coded *caisson.Error
	if errors.As(err, &coded) {
		f.Hint = coded.HintText()
	}
	if err := errors.Join(json.NewEncoder(os.Stdout).Encode(f), e.Close()); err != nil {
		return 1
	}
	return 0
}

// becomeHost makes this process a host of a kind.
func becomeHost(kind string) error {
	switch kind {
	case "forbidden":
		return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	case "filtered": // as container engines do it
		return filterNamespaces()
	case "masked": // so do they with /proc
		return unix.Mount("none", "/proc/irq", "tmpfs", 0, "")
	}
	return nil
}

// filterNamespaces forbids new user namespaces in every thread of this process.
func filterNamespaces() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// hostOf runs a host inside a user namespace of its own.
func hostOf(t *testing.T, kind string) found {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), hostEnv+"="+kind)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("host: %v", err)
	}
	var f found
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// A host that allows no user namespaces: refused, with cause and fix.
// Origin: codex 15057, srt 74.
func TestCase_S12(t *testing.T) {
	for kind, want := range map[string]string{"forbidden": "max_user_namespaces", "filtered": "container", "masked": "systempaths=unconfined"} {
		f := hostOf(t, kind)
		if f.Code != caisson.CodeIsolationUnavailable || !strings.Contains(f.Hint, want) {
			t.Errorf("%s: %+v", kind, f)
		}
		if len(f.Isolation.Controls) > 0 {
			t.Errorf("%s: it reports %+v", kind, f.Isolation)
		}
	}
}

// A sandbox in a sandbox is refused, and told why.
func TestCase_S12_Inside(t *testing.T) {
	e := engine(t)
	sb, ws := sandboxtest.Open(t, e)
	for name, from := range map[string]string{"host": "/proc/self/exe", "guest": os.Getenv(sandboxtest.GuestEnv)} {
		raw, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(ws, name), raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	p, err := sb.Hold(t.Context(), caisson.Command{
		Argv: []string{"./host"}, Stdout: &out, Stderr: &errs,
		Env: []string{hostEnv + "=inside", sandboxtest.GuestEnv + "=" + filepath.Join(ws, "guest")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Fatalf("exit %d, %v: %s", exit.Code, err, errs.String())
	}
	var f found
	if err := json.Unmarshal([]byte(out.String()), &f); err != nil {
		t.Fatal(err)
	}
	if f.Code != caisson.CodeIsolationUnavailable || !strings.Contains(f.Hint, "the inside of a caisson sandbox") {
		t.Errorf("%+v", f)
	}
}

// Root of a user namespace is an ordinary user, and works as one.
func TestNested(t *testing.T) {
	f := hostOf(t, "nested")
	if f.Code != "" || !f.Isolation.Enforces(caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses, caisson.ControlPrivileges) {
		t.Errorf("%+v", f)
	}
}

// On a file system whose owners cannot be mapped, a box of root's is the
// kernel's root, says so, and is refused to whoever needs more.
func TestUnmappable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root lends files to another user")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lower", "upper", "work", "ws"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ws := filepath.Join(dir, "ws")
	if err := unix.Mount("overlay", ws, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)); err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(ws, 0); err != nil {
			t.Error(err)
		}
	})
	e := engine(t)
	spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws}
	sb, err := e.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if row := sb.Isolation().Row(caisson.ControlPrivileges); row.Enforced || row.Why == "" || row.Fix == "" {
		t.Errorf("%+v", row)
	}
	p, err := sb.Hold(t.Context(), caisson.Command{Line: "echo x > file && ! (echo x > /proc/sys/kernel/core_pattern) && ! cat /proc/kcore"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Errorf("exit %d, %v", exit.Code, err)
	}
	spec.ID, spec.Require = caisson.NewSandboxID(), []caisson.Control{caisson.ControlPrivileges}
	if sb, err := e.Open(t.Context(), spec); caisson.CodeOf(err) != caisson.CodeIsolationUnavailable {
		t.Errorf("open: %v, want isolation-unavailable", err)
		if err == nil {
			sb.Close()
		}
	}
}
